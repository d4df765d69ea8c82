"""One training, written down once for every way to run it: tables, features, batches, dense part, rates.

The dense part is element-wise. Its gradients are products, or sums, never a sum of products, which some compilers round
once and others twice; and its rate is a power of two. So its bits are the same in every framework.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from engines import State
from numpy.typing import NDArray

from anycore import EmbeddingConfig, FeatureConfig, Ragged, TableConfig
from anycore.optimizers import FTRL, Adagrad, Adam, DynamicInput

STEPS, BATCH, SEED = 20, 6, 3
LENGTH = 3
"""Of the sequence that the feature 'recent' is."""
RATE = 0.125
"""Of the dense part."""
COUNTS = {"liked": 14, "recent": 13, "tags": 9, "watched": 12}
"""Ids of a batch by feature; their rows differ."""

# Sorted by name, as TensorFlow sorts a dict of features.
CONFIG = EmbeddingConfig(
    [
        TableConfig("movies", 40, 5, Adagrad(learning_rate=0.25, gradient_clipping_limits=(-0.5, 0.5)), "mean"),
        TableConfig(
            "people", 30, 3, Adam(learning_rate=DynamicInput(0), use_sum_inside_sqrt=True, weight_decay_factor=0.01)
        ),
        TableConfig("words", 20, 3, FTRL(learning_rate=0.1, l1=0.01, l2=0.001), "sqrtn"),
    ],
    [
        FeatureConfig("liked", "movies", [BATCH]),
        FeatureConfig("recent", "movies", [BATCH, LENGTH]),
        FeatureConfig("tags", "words", [BATCH]),
        FeatureConfig("watched", "movies", [BATCH]),
        FeatureConfig("who", "people", [BATCH]),
    ],
)

Arrays = dict[str, NDArray[np.float32]]


class Bag(NamedTuple):
    """A feature's ids, row after row."""

    splits: NDArray[np.int64]
    ids: NDArray[np.int64]
    weights: NDArray[np.float32] | None


class Step(NamedTuple):
    """What one step is given."""

    bags: dict[str, Bag]
    who: NDArray[np.int64]
    """One id a sample."""
    targets: Arrays
    rate: np.float32
    """Of the table 'people'."""

    def inputs(self) -> dict[str, Any]:
        """Returns what an engine takes, in the order of its features."""
        return {**{name: Ragged(*bag) for name, bag in self.bags.items()}, "who": self.who}


def steps() -> Iterator[Step]:
    """Yields the training."""
    random = np.random.default_rng(0)
    sizes = {feature.name: CONFIG.tables[CONFIG.table_id(feature.table)].vocabulary_size for feature in CONFIG.features}
    for number in range(STEPS):
        bags = {}
        for name, count in COUNTS.items():
            splits = np.concatenate([[0], np.sort(random.integers(0, count + 1, BATCH - 1)), [count]])
            weights = random.normal(1, 0.5, count).astype(np.float32) if name in ("liked", "tags") else None
            bags[name] = Bag(splits, random.integers(0, sizes[name], count), weights)
        targets = {name: random.normal(size=bias.shape).astype(np.float32) for name, bias in biases().items()}
        yield Step(bags, random.integers(0, sizes["who"], BATCH), targets, np.float32(0.1 / (1 + number)))


def biases() -> Arrays:
    """Returns the biases that the dense part starts with."""
    shapes = {"recent": (BATCH, LENGTH, 5), "tags": (BATCH, 3), "who": (BATCH, 3)}
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def dense_start() -> Arrays:
    """Returns what the dense part starts with."""
    return {**biases(), "scale": np.linspace(-2, 2, BATCH * 5, dtype=np.float32).reshape(BATCH, 5)}


def losses(dense: Mapping[str, Any], activations: Mapping[str, Any], targets: Mapping[str, Any]) -> list[Any]:
    """Returns arrays of any library whose elements' sum is the loss."""
    differences = [activations[name] + dense[name] - targets[name] for name in targets]
    return [dense["scale"] * activations["liked"] * activations["watched"], *(0.5 * (d * d) for d in differences)]


def gradients(dense: Arrays, activations: Arrays, targets: Arrays) -> tuple[Arrays, Arrays]:
    """Returns the gradients of the dense part and of the activations, which are those that a framework finds."""
    scale, liked, watched = dense["scale"], activations["liked"], activations["watched"]
    differences = {name: activations[name] + dense[name] - targets[name] for name in targets}
    of_activations = {"liked": scale * watched, "watched": scale * liked, **differences}
    return {"scale": liked * watched, **differences}, of_activations


def descend(dense: Arrays, of_dense: Arrays) -> Arrays:
    """Returns the dense part after a step."""
    return {name: values - np.float32(RATE) * of_dense[name] for name, values in dense.items()}


def named(activations: Any) -> dict[str, Any]:
    """Returns the activations by the names of their features."""
    return dict(zip((feature.name for feature in CONFIG.features), activations, strict=True))


def outcome(tables: State, dense: Mapping[str, Any]) -> State:
    """Returns all that was trained."""
    return {**tables, "dense": {name: np.asarray(dense[name]) for name in sorted(dense)}}
