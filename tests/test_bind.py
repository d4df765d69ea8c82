from __future__ import annotations

import ctypes
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from anycore.arrays import address
from anycore.kernels.bind import NUMPY, compiled_step, compose, rebind, settings_of
from anycore.optimizers import (
    FTRL,
    OPTIMIZERS,
    Adagrad,
    AdagradMomentum,
    Adam,
    DynamicInput,
    Optimizer,
    SimulatedQuantization,
    Slot,
    StochasticGradientDescent,
)
from anycore.optimizers.optimizer import compiled
from anycore.optimizers.vocabulary import ONE, ZERO, absolute, maximum, power, sign, where

BACKENDS = ["numpy", "numba"]


def step(backend: str, optimizer: Optimizer, rate: float, g: Any, w: Any, *slots: Any) -> list[np.ndarray]:
    """Returns the new parameters and slots of one row; the arguments stay as they are."""
    settings = settings_of(optimizer, rate)
    g, w, *slots = (np.array(value, np.float32) for value in (g, w, *slots))  # type: ignore[assignment]
    if backend == "numpy":
        with np.errstate(all="ignore"):
            return list(compose(optimizer, NUMPY)(w, g, settings, *slots))
    # Guards on both sides tell whether the step leaves its record.
    record = np.concatenate([[-7], w, *slots, [-7]], dtype=np.float32)
    inputs = g.copy(), settings.copy()
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(compiled_step(optimizer))
    function(address(record[1:]), address(g), len(w), address(settings))
    assert record[0] == record[-1] == -7
    for given, after in zip(inputs, (g, settings), strict=True):
        np.testing.assert_array_equal(after, given)
    return np.split(record[1:-1], 1 + len(slots))


def name_of(optimizer: Optimizer) -> str:
    """Returns the optimizer's name and the hyper-parameters that are not at their defaults."""
    changed = {f.name: getattr(optimizer, f.name) for f in fields(optimizer) if getattr(optimizer, f.name) != f.default}
    return "-".join([optimizer.wire_name, *(f"{name}={value}" for name, value in changed.items())])


def assert_same_bits(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    """Equal, NaN where NaN, and with the same sign of zero."""
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype == np.float32
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a)[~np.isnan(a)], np.signbit(b)[~np.isnan(b)])


# NumPy and Numba


# Every form that needs no general power, where the two round differently.
VARIANTS = [
    StochasticGradientDescent(),
    Adagrad(),
    Adam(),
    Adam(use_sum_inside_sqrt=True, beta1=0.5, epsilon=0.0),
    AdagradMomentum(),
    AdagradMomentum(use_nesterov=True, beta2=0.9, epsilon=0.1),
    FTRL(l1=0.1, l2=0.2, beta=0.5),
    FTRL(l1=0.1, l2=0.2, beta=0.5, multiply_linear_by_lr=True),
    FTRL(lr_power=-1.0, l2=0.1),
]


def gradients(kind: str, size: int) -> np.ndarray:
    rng = np.random.default_rng(size)
    signs = rng.choice(np.array([-1, 1], np.float32), size)
    scale = {"random": 1.0, "zero": 0.0, "huge": 1e30, "largest": 3.4e38, "tiny": 1e-25, "denormal": 1e-41}[kind]
    return signs * (rng.uniform(0.1, 1, size) * scale).astype(np.float32)


@pytest.mark.parametrize("rate", [0.05, 0.0, -0.3])
@pytest.mark.parametrize("kind", ["random", "zero", "huge", "largest", "tiny", "denormal"])
@pytest.mark.parametrize("optimizer", VARIANTS, ids=name_of)
def test_numba_gives_the_bits_of_numpy(optimizer: Optimizer, kind: str, rate: float) -> None:
    size = 130
    rng = np.random.default_rng(7)
    slots = [rng.uniform(0, 1, size).astype(np.float32) * (rng.random(size) < 0.9) for _ in optimizer.slots]
    arguments = rate, gradients(kind, size), rng.normal(0, 1, size), *slots
    ours, theirs = (step(backend, optimizer, *arguments) for backend in ("numba", "numpy"))
    assert_same_bits(ours, theirs)


@pytest.mark.parametrize("size", [1, 3, 16, 63, 64, 65])
@pytest.mark.parametrize("optimizer", [StochasticGradientDescent(), Adagrad(), Adam()], ids=name_of)
def test_every_dimension(optimizer: Optimizer, size: int) -> None:
    rng = np.random.default_rng(size)
    values = [rng.uniform(0.1, 1, size) for _ in range(2 + len(optimizer.slots))]
    assert_same_bits(step("numba", optimizer, 0.5, *values), step("numpy", optimizer, 0.5, *values))


# What is composed around a rule


def around(**common: Any) -> StochasticGradientDescent:
    return StochasticGradientDescent(learning_rate=0.5, **common)


COMPOSED = [
    (around(), 8, 100, -42),
    (around(gradient_clipping_limits=(-4, 2)), 8, 100, 7),
    (around(gradient_clipping_limits=(-4, 2)), 8, -100, 10),
    (around(gradient_clipping_limits=(-4, None)), 8, 100, -42),
    (around(gradient_clipping_limits=(None, 2)), 8, -100, 58),
    (around(clipping_limits=(-1, 4.5)), 8, 0, 4.5),
    (around(clipping_limits=(-1, None)), 8, 100, -1),
    (around(clipping_limits=(None, 3)), 8, 100, -42),
    (around(weight_decay_factor=0.25), 8, 0, 6),
    (around(weight_decay_factor=0.25, multiply_weight_decay_factor_by_learning_rate=True), 8, 0, 7),
    # Clipping the weight before decay or before the rule, or the gradient after, would give another number.
    (around(gradient_clipping_limits=(-4, 2), weight_decay_factor=0.25, clipping_limits=(-1, 4.5)), 8, 100, 4.5),
    (around(gradient_clipping_limits=(-4, 2), weight_decay_factor=0.25, clipping_limits=(-1, 5.5)), 8, 100, 5),
    (around(gradient_clipping_limits=(-4, 2), weight_decay_factor=2.0, clipping_limits=(-1, 9)), 8, -100, -1),
    (around(gradient_clipping_limits=(-np.inf, np.inf), clipping_limits=(0, 0)), 8, 100, 0),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("optimizer", "w", "g", "expected"), COMPOSED)
def test_gradient_clip_then_decay_then_rule_then_weight_clip(
    backend: str, optimizer: Optimizer, w: float, g: float, expected: float
) -> None:
    np.testing.assert_array_equal(step(backend, optimizer, 0.5, [g], [w]), [[expected]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_slots_see_the_clipped_gradient_and_no_decay(backend: str) -> None:
    optimizer = Adagrad(gradient_clipping_limits=(-2, 2), weight_decay_factor=0.5, clipping_limits=(0, 1))
    w, accumulators = step(backend, optimizer, 0.5, [100, 1], [8, 8], [12, 3])
    assert accumulators.tolist() == [16, 4]
    assert w.tolist() == [1, 1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_clipping_keeps_nan(backend: str) -> None:
    """A diverged gradient must show, not pass for one at a limit."""
    optimizer = around(gradient_clipping_limits=(-1, 1), clipping_limits=(-1, 1))
    ((w, infinite),) = step(backend, optimizer, 0.5, [np.nan, np.inf], [1, 1])
    assert np.isnan(w) and infinite == 0.5


@pytest.mark.parametrize(
    ("factor", "by_rate", "expected"), [(0.25, False, 0.25), (0.25, True, 0.125), (0.1, True, np.float32(0.1) / 2)]
)
def test_settings_of(factor: float, by_rate: bool, expected: float) -> None:
    optimizer = Adam(
        weight_decay_factor=factor,
        multiply_weight_decay_factor_by_learning_rate=by_rate,
        gradient_clipping_limits=(-3, None),
        clipping_limits=(None, 4),
        beta1=0.9,
        beta2=0.8,
        epsilon=0.1,
    )
    settings = settings_of(optimizer, 0.5)
    assert settings.dtype == np.float32
    # Rate, decay, limits of the gradient, limits of the weight, hyper-parameters.
    np.testing.assert_array_equal(
        settings, np.array([0.5, expected, -3, np.inf, -np.inf, 4, 0.9, 0.8, 0.1], np.float32)
    )


def test_settings_hold_no_number_that_is_compiled_in() -> None:
    optimizer = FTRL(l1=1, l2=2, lr_power=-0.25, beta=3, multiply_linear_by_lr=True)
    assert settings_of(optimizer, 0.5).tolist() == [0.5, 0, -np.inf, np.inf, -np.inf, np.inf, 1, 2, 3]


# Compiled steps


@pytest.mark.parametrize(
    ("optimizer", "changes"),
    [
        (Adam(), {"beta1": 0.1, "beta2": 0.2, "epsilon": 0.3}),
        (Adam(), {"learning_rate": 7.0}),
        (Adam(), {"learning_rate": DynamicInput(3)}),
        (Adam(), {"gradient_accumulation": False, "hot_id_replication": True, "low_dimensional_packing": True}),
        (Adam(), {"simulated_quantization": SimulatedQuantization((-1, 1), 16)}),
        (Adam(), {"multiply_weight_decay_factor_by_learning_rate": True}),
        (Adam(weight_decay_factor=0.1), {"weight_decay_factor": 0.2}),
        (Adam(clipping_limits=(-1, None)), {"clipping_limits": (None, 2)}),
        (Adam(gradient_clipping_limits=(-1, 1)), {"gradient_clipping_limits": (None, 2)}),
        (FTRL(), {"l1": 1.0, "l2": 2.0, "beta": 3.0}),
        (AdagradMomentum(), {"momentum": 0.5, "beta2": 0.9, "epsilon": 1.0}),
    ],
)
def test_settings_do_not_compile_anew(optimizer: Optimizer, changes: dict[str, Any]) -> None:
    assert compiled_step(replace(optimizer, **changes)) == compiled_step(optimizer)


def different_structures() -> Iterator[Optimizer]:
    yield from (optimizer() for optimizer in OPTIMIZERS.values())
    yield Adam(clipping_limits=(None, 1))
    yield Adam(gradient_clipping_limits=(None, 1))
    yield Adam(clipping_limits=(None, 1), gradient_clipping_limits=(None, 1))
    yield Adam(weight_decay_factor=0.1)
    yield Adam(use_sum_inside_sqrt=True)
    yield AdagradMomentum(use_nesterov=True)
    yield AdagradMomentum(exponent=3.0)
    yield FTRL(lr_power=-0.25)
    yield FTRL(multiply_linear_by_lr=True)


def test_what_is_compiled_in_has_code_of_its_own() -> None:
    addresses = [compiled_step(optimizer) for optimizer in different_structures()]
    assert len(set(addresses)) == len(addresses)


def test_optimizers_that_share_code_keep_their_numbers() -> None:
    tight, loose = Adam(clipping_limits=(None, 0.25), beta1=0.0), Adam(clipping_limits=(-9, None), beta1=0.5)
    assert compiled_step(tight) == compiled_step(loose)
    values = [1.0], [2.0], [0.5], [0.25]
    for optimizer in (tight, loose, tight):
        assert_same_bits(step("numba", optimizer, 0.1, *values), step("numpy", optimizer, 0.1, *values))


def test_threads_that_ask_at_once_get_the_same_step() -> None:
    barrier = Barrier(3)

    def ask(l1: float) -> int:
        barrier.wait()
        return compiled_step(FTRL(lr_power=-0.4375, l1=l1))

    with ThreadPoolExecutor(3) as threads:
        assert len(set(threads.map(ask, [0.0, 0.1, 0.2]))) == 1


# Rules of a user


def tuned(w: Any, g: Any, lr: Any, counts: Any, norms: Any, scale: Any, signed: Any, exponent: Any) -> Any:
    """Uses the words that no optimizer of ours does."""
    counts = counts + ONE
    norms = maximum(norms, absolute(g))
    direction = where(signed, sign(g), power(norms, exponent) * g)
    return w - lr * scale * direction / maximum(counts, ZERO), counts, norms


@dataclass(frozen=True, kw_only=True)
class Tuned(Optimizer):
    scale: float = 2.0
    signed: bool = True
    unused: float = 9.0
    exponent: float = compiled(1.0)

    rule = staticmethod(tuned)
    slots = (Slot("counts"), Slot("norms"))
    wire_name = "user_defined_program"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, [6, 10]), ({"signed": False}, [-10, 16]), ({"signed": False, "exponent": 0.0}, [2, 10])],
)
def test_a_rule_of_a_user(backend: str, changes: dict[str, Any], expected: list[float]) -> None:
    """Hyper-parameters reach the rule by name, whatever stands between them."""
    w, counts, norms = step(backend, Tuned(**changes), 2.0, [3, -1], [8, 8], [1, 1], [2, 4])
    assert w.tolist() == expected
    assert (counts.tolist(), norms.tolist()) == ([2, 2], [3, 4])


def test_rebind_leaves_the_rule_as_it_was() -> None:
    def shrink(w: Any, by: Any = 2) -> Any:
        return minimum(w, by)  # type: ignore[name-defined]  # noqa: F821

    first, second = (rebind(shrink, {"minimum": word}) for word in (min, max))
    assert (first(1), second(1), first(3), first(3, 4)) == (1, 2, 2, 3)
    assert first.__name__ == "shrink"
    assert "minimum" not in shrink.__globals__
