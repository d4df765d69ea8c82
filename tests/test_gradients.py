"""Gradients and learning rates as the update kernels see them, and which ones are refused."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from engines import assert_same_bits, state
from foreign_arrays import OnlyArray, OnlyDLPack, unaligned

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, InputError, TableConfig
from anycore.gradients import Gradient, read_gradients, read_learning_rates
from anycore.optimizers import Adagrad, DynamicInput
from anycore.plan import Plan

TABLES = [
    TableConfig("a", 4, 3, Adagrad(learning_rate=DynamicInput(1))),
    TableConfig("b", 4, 1, Adagrad(learning_rate=DynamicInput(0))),
]
PLAN = Plan(EmbeddingConfig(TABLES, [FeatureConfig("f", "a", [4]), FeatureConfig("g", "b", [2, 2])]))
NAN, INF = float("nan"), float("inf")

F = np.arange(12, dtype=np.float32).reshape(4, 3)
G = np.arange(4, dtype=np.float32).reshape(2, 2, 1)


def seen(gradient: Gradient | None, rows: int, dimension: int) -> list[list[float]]:
    """The rows that a kernel finds."""
    assert gradient is not None
    kind = ctypes.c_float * dimension
    return [list(kind.from_address(gradient.address + row * gradient.row_bytes)) for row in range(rows)]


# Gradients


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize(
    "f",
    [
        F,
        F.astype(np.float64),
        F.astype(np.float16),
        F.astype(ml_dtypes.bfloat16),
        F.astype(">f4"),
        F.astype(np.int32),
        F.tolist(),
        np.asfortranarray(F),
        np.repeat(F, 2, axis=1)[:, ::2],
        np.pad(F, ((0, 0), (2, 4)))[:, 2:5],
        np.repeat(F, 2, axis=0)[::2],
        np.ascontiguousarray(F[::-1])[::-1],
        unaligned(F),
        OnlyDLPack(F),
        OnlyArray(F),
    ],
)
def test_rows(f: Any, copy: bool) -> None:
    first, second = read_gradients(PLAN, [f, G], copy=copy)
    assert seen(first, 4, 3) == F.tolist()
    assert seen(second, 4, 1) == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    "f",
    [F, np.zeros((4, 9), np.float32)[:, 2:5], np.zeros((8, 3), np.float32)[::2], np.broadcast_to(F[0], (4, 3))],
    ids=["whole", "columns of a wider array", "every other row", "one row for all"],
)
def test_memory_is_the_callers_unless_copied(f: np.ndarray) -> None:
    used, _ = read_gradients(PLAN, [f, None], copy=False)
    assert used is not None
    assert np.shares_memory(used.array, f)
    assert (used.address, used.row_bytes) == (f.__array_interface__["data"][0], f.strides[0])
    copied, _ = read_gradients(PLAN, [f, None], copy=True)
    assert copied is not None
    assert not np.shares_memory(copied.array, f)
    assert copied.row_bytes == 12


def test_the_memory_lives_as_long_as_the_gradient() -> None:
    gradient, _ = read_gradients(PLAN, [F.astype(np.float64), None], copy=False)
    assert gradient is not None
    assert gradient.array.__array_interface__["data"][0] == gradient.address


def test_read_only_gradients_are_read() -> None:
    frozen = F.copy()
    frozen.flags.writeable = False
    assert seen(read_gradients(PLAN, [frozen, None], copy=False)[0], 4, 3) == F.tolist()


def test_none_stays_none() -> None:
    assert read_gradients(PLAN, [None, None], copy=True) == [None, None]


def test_gradients_may_be_named() -> None:
    first, second = read_gradients(PLAN, {"g": None, "f": F}, copy=False)
    assert seen(first, 4, 3) == F.tolist()
    assert second is None


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize(
    ("gradients", "text"),
    [
        ([F], r"expected 2 gradients, as many as activations, got 1 \(inputs\)"),
        ([F, G, G], r"expected 2 gradients, .* got 3"),
        ({"f": F}, r"gradients must be named \['f', 'g'\], got \['f'\]"),
        ({"f": F, "h": G}, r"gradients must be named \['f', 'g'\], got \['f', 'h'\]"),
        (None, r"gradients must be a sequence or a mapping.*, got NoneType"),
        ([F[:3], G], r"gradient of 'f' must have the shape of its activations, \[4, 3\], got \[3, 3\] \(inputs\)"),
        ([F.T, G], r"gradient of 'f' must have the shape of its activations, \[4, 3\], got \[3, 4\]"),
        ([F, G[0]], r"gradient of 'g' must have the shape of its activations, \[2, 2, 1\], got \[2, 1\]"),
        ([F, G.reshape(4, 1)], r"gradient of 'g' must have the shape .* got \[4, 1\]"),
        ([F, 0.0], r"gradient of 'g' must have the shape .* got \[\]"),
        ([[[1.0], [2.0, 3.0]], G], r"gradient of 'f': cannot be read as an array"),
        ([F.astype(complex), G], r"gradient of 'f' must be real numbers, got complex128"),
        ([F.astype(str), G], r"gradient of 'f' must be real numbers, got <U"),
        ([F, G.astype(object)], r"gradient of 'g' must be real numbers, got object"),
    ],
)
def test_refuses_gradients(gradients: Any, text: str, copy: bool) -> None:
    with pytest.raises(InputError, match=text):
        read_gradients(PLAN, gradients, copy=copy)


@pytest.mark.parametrize("options", [{}, {"pipeline_execution_with_tensor_core": True}])
def test_columns_of_a_wider_array_train_as_a_copy_does(options: dict[str, Any]) -> None:
    """As one array of all features side by side, which a dense model returns, cut into gradients."""
    wide = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    features = [FeatureConfig("f", "a", [4]), FeatureConfig("g", "b", [4]), FeatureConfig("h", "a", [4])]
    engines = [EmbeddingEngine(EmbeddingConfig(TABLES, features, **options), num_threads=1) for _ in range(2)]
    wraps: list[Callable[[np.ndarray], np.ndarray]] = [np.asarray, np.ascontiguousarray]
    for engine, wrap in zip(engines, wraps, strict=True):
        engine.enqueue([[0, 1, 1, 3], [0, 1, 2, 3], [2, 2, 0, 1]])
        engine.receive_activations()
        engine.send_gradients([wrap(wide[:, 1:4]), wrap(wide[:, 4:5]), wrap(wide[:, 5:])], [0.5, 0.25])
    assert_same_bits(state(engines[0]), state(engines[1]))
    assert not np.array_equal(state(engines[0])["b"]["accumulators"], np.full((4, 1), np.float32(0.1)))


# Learning rates


@pytest.mark.parametrize(
    "rates",
    [
        [0.5, 2.0],
        (0.5, 2),
        np.array([0.5, 2.0]),
        [np.float32(0.5), np.float64(2)],
        [np.array(0.5, np.float16), np.array(2)],
        [OnlyDLPack(np.array(0.5)), OnlyArray(np.array(2.0, np.float32))],
    ],
)
def test_rates_are_in_the_order_of_tags(rates: Any) -> None:
    found = read_learning_rates(PLAN, rates)
    assert found == (0.5, 2.0)
    assert [type(rate) for rate in found] == [float, float]


def test_rates_are_rounded_to_float32() -> None:
    assert read_learning_rates(PLAN, [0.1, -1e-50]) == (float(np.float32(0.1)), 0.0)


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ([], r"expected 2 learning_rates, one for each .* tag of the config, got 0 \(OptimizerDynamicInput\.tag\)"),
        ([0.5] * 3, r"expected 2 learning_rates, .* got 3"),
        (0.5, r"learning_rates must be a sequence.*, got float"),
        ([0.5, [0.5]], r"learning_rates\[1\] must be a scalar, got shape \[1\]"),
        ([np.ones((1, 1)), 0.5], r"learning_rates\[0\] must be a scalar, got shape \[1, 1\]"),
        ([0.5, NAN], r"learning_rates\[1\] must be finite, got nan"),
        ([-INF, 0.5], r"learning_rates\[0\] must be finite, got -inf"),
        ([0.5, 1e300], r"learning_rates\[1\] must be finite, got inf"),
        ([0.5, "fast"], r"learning_rates\[1\] must be real numbers, got <U4"),
        ([0.5, None], r"learning_rates\[1\] must be real numbers, got object"),
        ([0.5, 1j], r"learning_rates\[1\] must be real numbers, got complex128"),
    ],
)
def test_refuses_rates(rates: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        read_learning_rates(PLAN, rates)


def test_a_config_with_constant_rates_takes_none() -> None:
    plan = Plan(EmbeddingConfig([TableConfig("t", 1, 1, Adagrad())], [FeatureConfig("f", "t", [1])]))
    assert read_learning_rates(plan, ()) == ()
    with pytest.raises(InputError, match=r"expected 0 learning_rates, .* got 1"):
        read_learning_rates(plan, [0.5])
