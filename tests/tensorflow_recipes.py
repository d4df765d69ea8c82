"""Batches of every kind for TensorFlow's tables, and what must come of them.

Tables, ids and the loss are those of TensorFlow's own TPU embedding tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from reference import ReferenceEngine
from reference_inputs import Ragged
from tensorflow_embeddings import ROWS, embedding, feature_config, ragged, sparse
from tensorflow_interfaces import INTERFACES, Features, Interface, Shapes, configuration, initial_variables, tables_of
from tolerance import ENGINE, Tolerance

Rows = list[list[Any]]
"""The ids, or weights, of each row of the activations (of each sequence)."""

FOUR_ROWS: dict[str, Rows] = {
    "watched": [*ROWS["watched"], [0, 1], [1]],
    "favorited": [*ROWS["favorited"], [0], [0, 1]],
    "friends": [*ROWS["friends"], [3], [0, 1, 2]],
}
"""The batch of two replicas."""

BATCH = 2
HALF = {name: [[0.5] * len(row) for row in rows] for name, rows in ROWS.items()}
"""Weights for the batch of one replica."""


def dense(rows: Rows, dtype: Any = tf.int64) -> tf.Tensor:
    """Returns rows of one id each as a Tensor [rows]."""
    return tf.constant([row[0] for row in rows], dtype)


KINDS = {"sparse": sparse, "ragged": ragged, "dense": dense}
Kind = Callable[..., Any]


def with_axes(tensor: Any, axes: Sequence[int]) -> Any:
    """Returns an input whose rows are spread over some axes; a ragged one has none."""
    if isinstance(tensor, tf.SparseTensor):
        return tf.sparse.reshape(tensor, [*axes, tensor.shape[-1]])
    return tensor if isinstance(tensor, tf.RaggedTensor) else tf.reshape(tensor, [*axes, 1])


@dataclass(frozen=True)
class Recipe:
    """Ids for each feature, the kind of its input, and the shape of its output."""

    rows: Mapping[str, Rows]
    kinds: Mapping[str, Kind]
    shapes: Shapes
    lengths: Mapping[str, int] = field(default_factory=dict)
    """The maximum length of features that are sequences."""

    def inputs(self) -> dict[str, Any]:
        return {name: self._tensor(name, rows, tf.int64) for name, rows in self.rows.items()}

    def weights(self, weights: Mapping[str, Rows]) -> dict[str, Any]:
        """Returns weights for features, and None for the others."""
        return {name: self._tensor(name, weights[name], tf.float32) if name in weights else None for name in self.rows}

    def part(self, start: int, stop: int) -> Recipe:
        """Returns samples of it, whose outputs have one axis."""
        rows = {name: rows[start:stop] for name, rows in self.rows.items()}
        return replace(self, rows=rows, shapes={name: [stop - start] for name in rows})

    def features(self, optimizer: Any, **table_options: Any) -> Features:
        """Returns the features on new tables."""
        return {
            name: embedding.FeatureConfig(feature.table, max_sequence_length=self.lengths.get(name, 0), name=name)
            for name, feature in feature_config(optimizer=optimizer, **table_options).items()
        }

    def _tensor(self, name: str, rows: Rows, dtype: Any) -> Any:
        tensor, shape = self.kinds[name](rows, dtype), self.shapes[name]
        return with_axes(tensor, shape) if len(shape) > 1 and name not in self.lengths else tensor


def recipe(kind: str | Mapping[str, str], shape: Sequence[int], lengths: Mapping[str, int] | None = None) -> Recipe:
    """Returns the rows of FOUR_ROWS, over and over, as one kind of input or one for each feature."""
    names, lengths = sorted(FOUR_ROWS), lengths or {}
    kinds = dict.fromkeys(names, kind) if isinstance(kind, str) else kind
    count = int(np.prod(shape))
    rows = {name: [FOUR_ROWS[name][row % 4] for row in range(count)] for name in names}
    for name in names:
        if kinds[name] == "dense":
            ids = [row for rows in FOUR_ROWS[name] for row in rows]
            rows[name] = [[ids[row % 4]] for row in range(count)]
    shapes = {name: [*shape, lengths[name]] if name in lengths else shape for name in names}
    return Recipe(rows, {name: KINDS[kinds[name]] for name in names}, shapes, lengths)


MIXED = {"watched": "sparse", "favorited": "ragged", "friends": "dense"}
LENGTHS = {"watched": 2, "favorited": 2, "friends": 3}

PLAIN = {kind: recipe(kind, [BATCH]) for kind in KINDS}
MORE = {
    "mixed": recipe(MIXED, [BATCH]),
    **{f"{kind}, rank 3": recipe(kind, [BATCH, 4]) for kind in KINDS},
    "mixed, rank 3": recipe(MIXED, [BATCH, 4]),
    "dense, rank 4": recipe("dense", [BATCH, 3, 2]),
    "sparse, rank 4": recipe("sparse", [BATCH, 3, 2]),
    **{f"{kind} sequences": recipe(kind, [BATCH], LENGTHS) for kind in ("sparse", "ragged")},
    "short sequences": recipe("sparse", [BATCH], {"friends": 2}),
}


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: embedding.SGD(0.1),
    "adagrad": lambda: embedding.Adagrad(0.1),
    "adagrad_momentum": lambda: embedding.AdagradMomentum(
        0.1, momentum=0.9, use_nesterov=True, exponent=3.0, epsilon=0.1, beta2=0.9
    ),
    "adam": lambda: embedding.Adam(0.1),
    "ftrl": lambda: embedding.FTRL(0.1),
}


def as_written(step: Any) -> Any:
    """Does as tf.function does in the other mode: nothing."""
    return step


each_interface = pytest.mark.parametrize("interface", INTERFACES)
each_mode = pytest.mark.parametrize(
    "mode", [as_written, partial(tf.function, autograph=False)], ids=["eager", "function"]
)


def train_step(interface: Interface, inputs: Any, weights: Any = None, replicas: int = 1) -> dict[str, tf.Tensor]:
    """Trains on the mean over the batch, of all replicas, of the summed squares; returns the activations."""
    interface.enqueue(inputs, weights)
    with tf.GradientTape() as tape:
        activations = interface.dequeue()
        tape.watch(activations)
        loss = tf.add_n([tf.reduce_sum(each**2) / (replicas * each.shape[0]) for each in activations.values()])
    interface.apply_gradients(tape.gradient(loss, activations))
    return activations


def look_up(interface: Interface, inputs: Any, weights: Any = None) -> dict[str, tf.Tensor]:
    """Returns the activations of a step that does not train."""
    interface.enqueue(inputs, weights, training=False)
    return interface.dequeue()


class Expected:
    """The same tables in float64, trained by plain loops."""

    def __init__(self, features: Features, shapes: Shapes) -> None:
        self.names, tables = sorted(features), tables_of(features)
        self.combiners = [table.combiner for table in tables]
        self.engine = ReferenceEngine(configuration(features, shapes))
        for table in tables:
            self.engine.load(table.name, initial_variables(table))

    def look_up(self, rows: Mapping[str, Rows], weights: Mapping[str, Rows] | None = None) -> dict[str, np.ndarray]:
        """Returns the activations of a step that does not train."""
        return self._activations(rows, weights or {}, "inference")

    def train_step(
        self,
        rows: Mapping[str, Rows],
        weights: Mapping[str, Rows] | None = None,
        rates: Sequence[float] = (),
        gradients: Mapping[str, Any] | None = None,
    ) -> dict[str, np.ndarray]:
        """Does as the function `train_step`, or sends other gradients than those of its loss."""
        activations = self._activations(rows, weights or {}, "train")
        gradients = gradients or {name: 2 * values / len(values) for name, values in activations.items()}
        self.engine.send_gradients([gradients[name] for name in self.names], rates)
        return activations

    def variables(self) -> dict[str, dict[str, np.ndarray]]:
        """Returns parameters and slots by the name of the table."""
        return {table: self.engine.retrieve(table) for table in self.engine.tables}

    def _activations(self, rows: Mapping[str, Rows], weights: Mapping[str, Rows], mode: str) -> dict[str, np.ndarray]:
        batch = [
            Ragged(
                np.cumsum([0, *map(len, rows[name])]),
                np.array([i for row in rows[name] for i in row], np.int64),
                [w for row in weights[name] for w in row] if name in weights else None,
            )
            for name in self.names
        ]
        self.engine.enqueue(batch, combiners=self.combiners, mode=mode)
        return dict(zip(self.names, self.engine.receive_activations(), strict=True))


def assert_close(found: Mapping[str, Any], expected: Mapping[str, Any], tolerance: Tolerance = ENGINE) -> None:
    """Each array is near the one of its name, as seen from that one's largest value."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        largest = max(1.0, np.abs(values).max(initial=0.0))
        replace(tolerance, atol=tolerance.atol * largest).assert_close(found[name], values, name)


def assert_variables_close(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Each variable of each table is near the one of its name."""
    assert found.keys() == expected.keys()
    for table, variables in expected.items():
        assert_close(found[table], variables)
