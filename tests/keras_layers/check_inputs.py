"""Ids and weights in the forms that every backend has."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras_models import tables
from row_numbers import looked_up, new_layer, row_number, train

from anycore import EmbeddingEngine, InputError


def test_an_id_a_sample() -> None:
    assert looked_up(new_layer(), np.array([3, 1, 4])) == [3, 1, 4]


def test_the_last_of_more_axes_is_combined() -> None:
    ids = np.array([[3, 1], [4, 4], [8, 0]])
    assert looked_up(new_layer(), ids) == [4, 8, 8]
    assert looked_up(new_layer(combiner="mean"), ids) == [2, 4, 4]
    assert looked_up(new_layer(shape=(1, 3)), ids[None]) == [[4, 8, 8]]


def test_minus_one_is_no_id() -> None:
    ids = np.array([[3, -1, 1], [-1, -1, -1], [8, 0, 7]])
    assert looked_up(new_layer(), ids) == [4, 0, 15]
    assert looked_up(new_layer(combiner="mean"), ids) == [2, 0, 5]
    assert looked_up(new_layer(), np.array([2, -1])) == [2, 0]
    assert looked_up(new_layer((1, 3)), ids) == [[3, 0, 1], [0, 0, 0], [8, 0, 7]]
    with pytest.raises(Exception, match=r"feature 'f': .*got -2"):
        looked_up(new_layer(), np.array([2, -2]))


def test_weights() -> None:
    ids, weights = np.array([[3, 1, -1], [4, 4, 0]]), np.array([[2, 6, 9], [1, 0.5, 0]], np.float32)
    assert looked_up(new_layer(), ids, weights) == [12, 6]
    assert looked_up(new_layer(combiner="mean"), ids, weights) == [1.5, 4]
    assert looked_up(new_layer(), ids[:, 0], weights[:, 0]) == [6, 4]
    with pytest.raises(Exception, match=r"weights must have the shape of the ids, \[2, 3\], got \[2, 2\]"):
        looked_up(new_layer(), ids, weights[:, :2])


@pytest.mark.parametrize("shape", [(), (5,), (4, 3), (3, 4, 5)])
def test_another_rank_is_refused_when_the_model_is_made(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"feature 'f': ids must have shape \[batch, 3\], or \[batch, 3, ids\]"):
        new_layer((1, 3))({"f": keras.Input(shape, dtype="int32")})


def test_whole_floats_are_ids_where_they_are_exact() -> None:
    # Keras makes float32 inputs where nobody says otherwise.
    assert looked_up(new_layer(), np.array([3.0, 1.0], np.float32)) == [3, 1]
    with pytest.raises(Exception, match=r"ids must be whole numbers, got 1\.5"):
        looked_up(new_layer(), np.array([3.0, 1.5], np.float32))
    with pytest.raises(Exception, match="does not hold every id below 16777217"):
        looked_up(new_layer(vocabulary_size=(1 << 24) + 1), np.array([3.0], np.float32))


def test_batches_of_any_size() -> None:
    layer = new_layer()
    for size in (3, 1, 7):
        assert looked_up(layer, np.arange(size)) == list(range(size))


def test_weights_and_padding_train() -> None:
    layer = new_layer()
    symbols = {"f": keras.Input((3,), dtype="int32", name="f"), "w": keras.Input((3,), name="w")}
    model = keras.Model(symbols, layer({"f": symbols["f"]}, {"f": symbols["w"]})["f"])
    ids, weights = np.array([[3, 1, -1], [4, 4, 0]], np.int32), np.array([[2, 4, 9], [1, 0.5, 0]], np.float32)
    gradient = np.array([[1, 2], [4, 8]], np.float32)
    train(model, ids, gradient, weights)
    moved = row_number(np.arange(9), 2) - tables(layer)["t"]["parameters"]
    np.testing.assert_array_equal(moved[[0, 1, 3, 4]], [[0, 0], [4, 8], [2, 4], [6, 12]])
    assert not moved[[2, 5, 6, 7, 8]].any()


def test_one_engine_holds_what_the_layer_trains() -> None:
    layer = new_layer()
    engine = layer.engine
    assert isinstance(engine, EmbeddingEngine)
    engine.load("t", {"parameters": np.ones((9, 2))})
    assert looked_up(layer, np.array([3, 1])) == [1, 1]
