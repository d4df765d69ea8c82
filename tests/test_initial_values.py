"""Starting values from TensorFlow's initializers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_embeddings import counting, embedding

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, InputError
from anycore.tensorflow import initial_values
from anycore.tensorflow.configuration import Table, table_configs, tables_of
from anycore.tensorflow.initial_values import load_initial_values

SHAPE = (7, 3)


@pytest.fixture
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_values, "PIECE_FLOATS", 8)


def table_of(initializer: Any = None, optimizer: Any = None) -> Table:
    config = embedding.TableConfig(*SHAPE, initializer=initializer, name="video")
    return tables_of([embedding.FeatureConfig(config)], optimizer or embedding.SGD())[0]


def loaded(table: Table) -> dict[str, np.ndarray]:
    engine = EmbeddingEngine(EmbeddingConfig(table_configs([table]), [FeatureConfig("watched", "video", (2,))]))
    load_initial_values(engine, table)
    return engine.retrieve("video")


class Recorder:
    """An initializer that notes with what it was called."""

    def __init__(self, seed: int | None = None) -> None:
        self.shapes: list[Any] = []
        self.seed = seed

    def __call__(self, shape: Any, dtype: Any) -> Any:
        self.shapes.append(tuple(shape))
        return tf.fill(shape, tf.cast(len(self.shapes), dtype))


class RandomRecorder(Recorder, tf.random_uniform_initializer):
    """One that TensorFlow's random ones are like."""


@pytest.mark.usefixtures("_small_pieces")
def test_an_initializer_of_the_callers_makes_the_whole_table_at_once() -> None:
    recorder = Recorder()
    assert (loaded(table_of(recorder))["parameters"] == 1).all()
    assert recorder.shapes == [SHAPE]
    np.testing.assert_array_equal(loaded(table_of(counting))["parameters"], np.arange(21).reshape(SHAPE))
    values = np.arange(21.0).reshape(SHAPE)
    np.testing.assert_array_equal(loaded(table_of(tf.constant_initializer(values)))["parameters"], values)


@pytest.mark.usefixtures("_small_pieces")
def test_random_values_without_a_seed_are_made_piece_by_piece() -> None:
    recorder = RandomRecorder()
    assert loaded(table_of(recorder))["parameters"][:, 0].tolist() == [1, 1, 1, 2, 2, 3, 3]
    assert recorder.shapes == [(3, 3), (2, 3), (2, 3)]


@pytest.mark.usefixtures("_small_pieces")
def test_a_seeded_sequence_is_not_begun_anew() -> None:
    recorder = RandomRecorder(seed=1)
    loaded(table_of(recorder))
    assert recorder.shapes == [SHAPE]


@pytest.mark.usefixtures("_small_pieces")
def test_an_initializer_that_knows_shards_makes_them() -> None:
    calls = []

    def initializer(shape: Any, dtype: Any, shard_info: Any) -> tf.Tensor:
        calls.append((shape, shard_info.shape, shard_info.offset))
        first = shard_info.offset[0]
        return counting(shape, dtype)[first : first + shard_info.shape[0]]

    np.testing.assert_array_equal(loaded(table_of(initializer))["parameters"], np.arange(21).reshape(SHAPE))
    assert calls == [(SHAPE, (3, 3), (0, 0)), (SHAPE, (2, 3), (3, 0)), (SHAPE, (2, 3), (5, 0))]


@pytest.mark.parametrize("initializer", [None, tf.random_normal_initializer(), tf.random_uniform_initializer(seed=3)])
def test_random_values_are_those_of_tensorflow(initializer: Any) -> None:
    table = table_of(initializer)
    tf.random.set_seed(5)
    ours = loaded(table)["parameters"]
    tf.random.set_seed(5)
    np.testing.assert_array_equal(ours, table.config.initializer(SHAPE, dtype=tf.float32))


def test_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match=r"table 'video': parameters must have shape \(7, 3\), got \(3, 7\)"):
        loaded(table_of(lambda shape, dtype: tf.zeros(shape[::-1], dtype)))


@pytest.mark.usefixtures("_small_pieces")
def test_slots_start_from_the_optimizers_values() -> None:
    variables = loaded(table_of(optimizer=embedding.FTRL(initial_accumulator_value=0.75)))
    assert (variables["accumulators"] == 0.75).all()
    assert (variables["linears"] == 0).all()


def test_slots_start_from_the_values_of_their_own_variables() -> None:
    seen: list[Any] = []

    def make_slots(table: Any, names: list[str], initializers: list[Any]) -> dict[str, tf.Variable]:
        seen.append((table.name, table.shape.as_list(), table.numpy()[1].tolist(), names))
        slots = {
            name: tf.Variable(initializer(table.shape, dtype=tf.float32))
            for name, initializer in zip(names, initializers, strict=True)
        }
        slots["linears"].assign(tf.fill(SHAPE, 2.0))
        return slots

    optimizer = embedding.FTRL(initial_accumulator_value=0.75, slot_variable_creation_fn=make_slots)
    variables = loaded(table_of(counting, optimizer))
    assert seen == [("video:0", list(SHAPE), [3, 4, 5], ["accumulators", "linears"])]
    assert (variables["accumulators"] == 0.75).all()
    assert (variables["linears"] == 2).all()
    assert variables["parameters"][1].tolist() == [3, 4, 5]


def test_a_function_that_makes_other_slots_is_refused() -> None:
    optimizer = embedding.Adagrad(slot_variable_creation_fn=lambda table, names, initializers: {"momenta": table})
    with pytest.raises(ValueError, match=r"must return variables named \['accumulators'\], got \['momenta'\]"):
        loaded(table_of(optimizer=optimizer))
