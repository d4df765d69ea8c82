from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anycore
from anycore.optimizers import Adagrad

SHAPES = [(2, 3), (2, 2, 3), (4, 2)]


def build_engine() -> anycore.EmbeddingEngine:
    tables = [anycore.TableConfig("a", 9, 3, Adagrad()), anycore.TableConfig("b", 7, 2, Adagrad())]
    features = [
        anycore.FeatureConfig("x", "a", [2]),
        anycore.FeatureConfig("y", "a", [2, 2]),
        anycore.FeatureConfig("z", "b", [4]),
    ]
    return anycore.EmbeddingEngine(anycore.EmbeddingConfig(tables, features))


def enqueue(engine: anycore.EmbeddingEngine) -> None:
    engine.enqueue([np.array([1, 2]), np.array([3, 4, 5, 6]), np.array([0, 1, 2, 3])], mode="inference")


def new_out() -> list[np.ndarray]:
    return [np.full(shape, np.nan, np.float32) for shape in SHAPES]


def test_activations_lie_in_arrays_of_their_own_shapes() -> None:
    engine = build_engine()
    enqueue(engine)
    activations = engine.receive_activations()
    assert [activation.shape for activation in activations] == SHAPES
    assert all(activation.flags.carray and activation.dtype == np.float32 for activation in activations)


def test_activations_are_written_to_the_arrays_of_the_caller() -> None:
    engine, out = build_engine(), new_out()
    enqueue(engine)
    expected = engine.receive_activations()
    enqueue(engine)
    received = engine.receive_activations(out=out)
    assert all(array is given for array, given in zip(received, out, strict=True))
    for array, values in zip(out, expected, strict=True):
        np.testing.assert_array_equal(array, values)


def without(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (None, "out must be a sequence, got int"),
        (new_out()[:2], "out must hold 3 arrays, one per activation, got 2"),
        ([*new_out()[:2], np.zeros((2, 4), np.float32)], r"out of 'z' .* shape \[4, 2\], got float32 \[2, 4\]"),
        ([*new_out()[:2], np.zeros((4, 2))], "out of 'z' .*, got float64"),
        ([*new_out()[:2], np.zeros((2, 4), np.float32).T], "out of 'z' must be a writeable C-contiguous float32 array"),
        ([*new_out()[:2], without(np.zeros((4, 2), np.float32))], "out of 'z' must be a writeable"),
        ([*new_out()[:2], [[0.0, 0.0]] * 4], "out of 'z' .* got list"),
    ],
)
def test_refuses_arrays_that_do_not_fit_and_loses_nothing(out: Any, message: str) -> None:
    engine = build_engine()
    enqueue(engine)
    given: Any = 5 if out is None else out
    with pytest.raises(anycore.InputError, match=message):
        engine.receive_activations(out=given)
    assert np.isfinite(engine.receive_activations()[0]).all()
