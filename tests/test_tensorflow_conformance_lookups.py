"""Lookups against those of TensorFlow on CPUs, TPUEmbeddingForServing, through the class and the operations.

Where that differs from a TPU, by what TensorFlow documents, so does it from us: a dense input keeps a last axis of 1,
entries of no or negative weight are left out of means, and rows without ids at the end can be missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_embeddings import counting, embedding, ragged, sparse
from tensorflow_interfaces import ByFeature, OfClass
from tensorflow_recipes import dense, each_interface, look_up

BATCH, LENGTH, ROWS_OF_TABLE = 4, 3, 50
COMBINERS = ("sum", "mean", "sqrtn")
SGD = embedding.SGD(0.1)


class Draw:
    """Random inputs of every kind for every combiner, and their weights."""

    def __init__(self, seed: int) -> None:
        rng = self._rng = np.random.default_rng(seed)
        self.inputs: dict[str, Any] = {}
        self.weights: dict[str, Any] = {}
        for combiner in COMBINERS:
            for kind in (sparse, ragged):
                name = f"{combiner} {kind.__name__}"
                self.inputs[name] = kind(self._rows())
                rows = self._rows()
                self.inputs[f"{name} weighted"] = kind(rows)
                # Positive ones: others are left out of means there.
                self.weights[f"{name} weighted"] = kind(
                    [rng.uniform(0.1, 2, len(row)).tolist() for row in rows], tf.float32
                )
                self.inputs[f"{name} sequence"] = kind(self._rows())
            self.inputs[f"{combiner} plain"] = sparse(self._rows())
            self.inputs[f"{combiner} plain weighted"] = sparse(rows)
            self.weights[f"{combiner} plain weighted"] = sparse(
                [rng.uniform(0, 2, len(row)).tolist() for row in rows], tf.float32
            )
            self.inputs[f"{combiner} sparse rank 3"] = self._of_rank_3()
            self.inputs[f"{combiner} ragged shaped"] = ragged(self._rows())
            self.inputs[f"{combiner} ragged shaped sequence"] = ragged(self._rows())
            self.inputs[f"{combiner} dense"] = dense(self._dense())
            self.inputs[f"{combiner} dense with an axis"] = dense(self._dense())[:, None]
            self.inputs[f"{combiner} dense rank 3"] = tf.reshape(dense(self._dense() + self._dense()), [BATCH, 2, 1])

    def _ids(self, count: int) -> list[int]:
        return self._rng.integers(0, ROWS_OF_TABLE, count).tolist()

    def _dense(self) -> list[list[int]]:
        return [[i] for i in self._ids(BATCH)]

    def _rows(self) -> list[list[int]]:
        # At least one id: TensorFlow looks up nothing else.
        return [
            self._ids(1 + int(self._rng.integers(4))),
            *(self._ids(int(self._rng.integers(6))) for _ in range(BATCH - 1)),
        ]

    def _of_rank_3(self) -> tf.SparseTensor:
        dense_shape = (BATCH, 3, 5)
        indices = np.argwhere(self._rng.random(dense_shape) < 0.4)
        return tf.SparseTensor(indices, tf.constant(self._ids(len(indices)), tf.int64), dense_shape)


def shape_of(name: str) -> list[int]:
    if "shaped sequence" in name:
        return [BATCH, LENGTH]
    if "shaped" in name:
        return [BATCH // 2, 2]
    if "rank 3" in name:
        return [BATCH, 2 if "dense" in name else 3]
    return [BATCH, LENGTH] if "sequence" in name else [BATCH]


def random_features(seed: int) -> dict[str, Any]:
    """Returns a feature for each input of a Draw, on a table for each combiner."""
    values = np.random.default_rng(seed).normal(size=(3, ROWS_OF_TABLE, 5)).astype(np.float32)
    tables = {
        combiner: embedding.TableConfig(
            ROWS_OF_TABLE, 5, tf.constant_initializer(parameters), SGD, combiner=combiner, name=combiner
        )
        for combiner, parameters in zip(COMBINERS, values, strict=True)
    }
    return {
        name: embedding.FeatureConfig(
            tables[name.split()[0]],
            max_sequence_length=LENGTH if "sequence" in name else 0,
            validate_weights_and_indices="plain" not in name,
            output_shape=shape_of(name) if "shaped" in name else None,
            name=name,
        )
        for name in Draw(seed).inputs
    }


def as_on_a_tpu(name: str, served: tf.Tensor) -> np.ndarray:
    """Returns what TensorFlow looked up on a CPU in the shape that a TPU gives it."""
    if name.endswith(("with an axis", "dense rank 3")):
        return served.numpy()[..., 0, :]
    missing = shape_of(name)[0] - len(served)
    assert not missing or "plain" in name
    return np.pad(served, [(0, missing)] + [(0, 0)] * (served.ndim - 1))


@each_interface
def test_lookups_equal_those_for_serving(interface: Any) -> None:
    assert_equal_to_those_for_serving(interface, 5, look_up)


@pytest.mark.parametrize("interface", [OfClass, ByFeature])
def test_lookups_in_functions_equal_those_for_serving(interface: Any) -> None:
    assert_equal_to_those_for_serving(interface, 2, tf.function(look_up, autograph=False))


def assert_equal_to_those_for_serving(interface: Any, draws: int, look: Any) -> None:
    features = random_features(1)
    tables = interface(features, {name: shape_of(name) for name in features})
    serving = embedding.TPUEmbeddingForServing(features, SGD)
    for seed in range(draws):
        draw = Draw(seed)
        weights = {name: draw.weights.get(name) for name in draw.inputs}
        found, expected = look(tables, draw.inputs, weights), serving(draw.inputs, weights)
        for name, served in expected.items():
            values = as_on_a_tpu(name, served)
            np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6, err_msg=f"{name}, seed {seed}")


ROWS = [[1, 2], [], [3], [4, 4], []]
"""Of a table whose row i is [2i, 2i + 1]."""
WEIGHTS: dict[str, list[list[float]]] = {
    "none": [],
    "positive": [[0.5, 2.0], [], [3.0], [1.0, 1.0], []],
    "zero": [[0.5, 2.0], [], [3.0], [0.0, 0.0], []],
    "negative": [[0.5, 2.0], [], [3.0], [1.0, -1.0], []],
}
# (combiner, weights): the first, third and fourth row; the others are zeros.
PUBLISHED: dict[tuple[str, str], list[Any]] = {
    ("sum", "none"): [[6, 8], [6, 7], [16, 18]],
    ("sum", "positive"): [[9, 11.5], [18, 21], [16, 18]],
    ("sum", "zero"): [[9, 11.5], [18, 21], [0, 0]],
    ("sum", "negative"): [[9, 11.5], [18, 21], [0, 0]],
    ("mean", "none"): [[3, 4], [6, 7], [8, 9]],
    ("mean", "positive"): [[3.6, 4.6], [6, 7], [8, 9]],
    ("mean", "zero"): [[3.6, 4.6], [6, 7], [0, 0]],
    ("mean", "negative"): [[3.6, 4.6], [6, 7], [0, 0]],
    ("sqrtn", "none"): [[4.242641, 5.656854], [6, 7], [11.313708, 12.727922]],
    ("sqrtn", "positive"): [[4.365642, 5.578320], [6, 7], [11.313708, 12.727922]],
    ("sqrtn", "zero"): [[4.365642, 5.578320], [6, 7], [0, 0]],
    ("sqrtn", "negative"): [[4.365642, 5.578320], [6, 7], [0, 0]],
}


@each_interface
@pytest.mark.parametrize("kind", [sparse, ragged])
@pytest.mark.parametrize(("combiner", "weights"), PUBLISHED)
def test_lookups_are_the_published_ones(combiner: str, weights: str, kind: Any, interface: Any) -> None:
    table = embedding.TableConfig(8, 2, counting, SGD, combiner=combiner, name="table")
    tables = interface({"feature": embedding.FeatureConfig(table, name="feature")}, {"feature": [5]})
    given = {"feature": kind(WEIGHTS[weights], tf.float32)} if WEIGHTS[weights] else None
    found = look_up(tables, {"feature": kind(ROWS)}, given)["feature"]
    first, third, fourth = PUBLISHED[combiner, weights]
    np.testing.assert_allclose(found, [first, [0, 0], third, fourth, [0, 0]], rtol=1e-6)


@pytest.mark.parametrize("combiner", COMBINERS)
def test_lookups_for_serving_leave_weights_that_are_not_positive_out_of_means(combiner: str) -> None:
    """The one difference in numbers, as far as it is documented."""
    table = embedding.TableConfig(8, 2, counting, SGD, combiner=combiner, name="table")
    feature = embedding.FeatureConfig(table, name="feature")
    weights = sparse(WEIGHTS["negative"], tf.float32)
    served = embedding.TPUEmbeddingForServing(feature, SGD)(sparse(ROWS), weights)
    ours = look_up(OfClass({"feature": feature}, {"feature": [5]}), {"feature": sparse(ROWS)}, {"feature": weights})
    np.testing.assert_allclose(ours["feature"][:3], served[:3], rtol=1e-6)
    assert not ours["feature"][3].numpy().any()
    assert served[3].numpy().tolist() == ([0, 0] if combiner == "sum" else [8, 9])


@each_interface
@pytest.mark.parametrize("kind", [sparse, ragged])
@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (3, [[[2, 3], [4, 5], [0, 0]], [[0, 0]] * 3, [[6, 7], [0, 0], [0, 0]], [[8, 9], [8, 9], [0, 0]], [[0, 0]] * 3]),
        (1, [[[2, 3]], [[0, 0]], [[6, 7]], [[8, 9]], [[0, 0]]]),
    ],
)
def test_sequences_are_the_published_ones(length: int, expected: Any, kind: Any, interface: Any) -> None:
    table = embedding.TableConfig(8, 2, counting, SGD, combiner="mean", name="table")
    feature = embedding.FeatureConfig(table, max_sequence_length=length, name="feature")
    tables = interface({"feature": feature}, {"feature": [5, length]})
    assert look_up(tables, {"feature": kind(ROWS)})["feature"].numpy().tolist() == expected
