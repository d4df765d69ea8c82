from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from steps import STEPS, Step, assert_same_bits, name_of, numba_step, numpy_step

from anycore.kernels.bind import compiled_step
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
from anycore.optimizers.compose import rebind, settings_of
from anycore.optimizers.declarations import compiled
from anycore.optimizers.vocabulary import ONE, ZERO, absolute, maximum, power, sign, sqrt, where

each_backend = pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)


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
    row = [gradients(kind, size), rng.normal(0, 1, size), *slots]
    optimizer = replace(optimizer, learning_rate=DynamicInput(0))
    found = [step(optimizer, *row, dynamic_inputs=[rate]) for step in (numba_step, numpy_step)]
    assert_same_bits(*found)


@pytest.mark.parametrize("size", [1, 3, 16, 63, 64, 65])
@pytest.mark.parametrize("optimizer", [StochasticGradientDescent(), Adagrad(), Adam()], ids=name_of)
def test_every_dimension(optimizer: Optimizer, size: int) -> None:
    rng = np.random.default_rng(size)
    values = [rng.uniform(0.1, 1, size) for _ in range(2 + len(optimizer.slots))]
    assert_same_bits(numba_step(optimizer, *values), numpy_step(optimizer, *values))


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


@each_backend
@pytest.mark.parametrize(("optimizer", "w", "g", "expected"), COMPOSED)
def test_gradient_clip_then_decay_then_rule_then_weight_clip(
    step: Step, optimizer: Optimizer, w: float, g: float, expected: float
) -> None:
    np.testing.assert_array_equal(step(optimizer, [g], [w]), [[expected]])


@each_backend
def test_slots_see_the_clipped_gradient_and_no_decay(step: Step) -> None:
    optimizer = Adagrad(
        learning_rate=0.5, gradient_clipping_limits=(-2, 2), weight_decay_factor=0.5, clipping_limits=(0, 1)
    )
    w, accumulators = step(optimizer, [100, 1], [8, 8], [12, 3])
    assert accumulators.tolist() == [16, 4]
    assert w.tolist() == [1, 1]


@each_backend
def test_clipping_keeps_nan(step: Step) -> None:
    """A diverged gradient must show, not pass for one at a limit."""
    optimizer = around(gradient_clipping_limits=(-1, 1), clipping_limits=(-1, 1))
    ((w, infinite),) = step(optimizer, [np.nan, np.inf], [1, 1])
    assert np.isnan(w) and infinite == 0.5


@pytest.mark.parametrize(
    ("factor", "by_rate", "expected"), [(0.25, False, 0.25), (0.25, True, 0.125), (0.1, True, np.float32(0.1) / 2)]
)
def test_settings_of(factor: float, by_rate: bool, expected: float) -> None:
    optimizer = Adam(
        learning_rate=0.5,
        weight_decay_factor=factor,
        multiply_weight_decay_factor_by_learning_rate=by_rate,
        gradient_clipping_limits=(-3, None),
        clipping_limits=(None, 4),
        beta1=0.9,
        beta2=0.8,
        epsilon=0.1,
    )
    settings = settings_of(optimizer)
    assert settings.dtype == np.float32
    # Rate, decay, limits of the gradient, limits of the weight, hyper-parameters.
    np.testing.assert_array_equal(
        settings, np.array([0.5, expected, -3, np.inf, -np.inf, 4, 0.9, 0.8, 0.1], np.float32)
    )


def test_settings_hold_no_number_that_is_compiled_in() -> None:
    optimizer = FTRL(learning_rate=0.5, l1=1, l2=2, lr_power=-0.25, beta=3, multiply_linear_by_lr=True)
    assert settings_of(optimizer).tolist() == [0.5, 0, -np.inf, np.inf, -np.inf, np.inf, 1, 2, 3]


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
    yield from (o() for name, o in OPTIMIZERS.items() if o.rule is not None and name != "user_defined_program")
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
        assert_same_bits(numba_step(optimizer, *values), numpy_step(optimizer, *values))


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


@each_backend
@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, [6, 10]), ({"signed": False}, [-10, 16]), ({"signed": False, "exponent": 0.0}, [2, 10])],
)
def test_a_rule_of_a_user(step: Step, changes: dict[str, Any], expected: list[float]) -> None:
    """Hyper-parameters reach the rule by name, whatever stands between them."""
    w, counts, norms = step(Tuned(learning_rate=2.0, **changes), [3, -1], [8, 8], [1, 1], [2, 4])
    assert w.tolist() == expected
    assert (counts.tolist(), norms.tolist()) == ([2, 2], [3, 4])


FIRST_TAG = DynamicInput(0)


@dataclass(frozen=True, kw_only=True)
class Delivered(Tuned):
    """Gets its scale with every step."""

    scale: Any = FIRST_TAG


@each_backend
def test_dynamic_inputs_arrive_by_tag(step: Step) -> None:
    optimizer = Delivered(learning_rate=DynamicInput(1), weight_decay_factor=0.5)
    w, *_ = step(optimizer, [3], [8], [0], [1], dynamic_inputs=(4.0, 0.25))
    assert w.tolist() == [8 - 4 - 0.25 * 4]
    assert compiled_step(optimizer) == compiled_step(replace(optimizer, scale=DynamicInput(2)))


def by_row(w: Any, g: Any, lr: Any, accumulators: Any, momenta: Any, mean_square: Any) -> Any:
    accumulators = accumulators + mean_square
    momenta = momenta + g
    return w - lr * momenta / sqrt(accumulators), accumulators, momenta


@dataclass(frozen=True, kw_only=True)
class ByRow(Optimizer):
    """Has one accumulator a row."""

    rule = staticmethod(by_row)
    slots = (Slot("accumulators", per_row=True), Slot("momenta"))
    wire_name = "user_defined_program"


@each_backend
def test_a_slot_per_row_and_the_mean_square(step: Step) -> None:
    w, accumulators, momenta = step(ByRow(learning_rate=2.0), [2, 4, 4], [8, 8, 8], [4], [1, 0, 1])
    assert (w.tolist(), accumulators.tolist(), momenta.tolist()) == ([6.5, 6, 5.5], [16], [3, 4, 5])


@each_backend
def test_the_mean_square_is_of_the_clipped_gradient(step: Step) -> None:
    optimizer = ByRow(gradient_clipping_limits=(-1, 2))
    _, accumulators, momenta = step(optimizer, [9, -9, 1], [0, 0, 0], [0], [0, 0, 0])
    assert (accumulators.tolist(), momenta.tolist()) == ([2], [2, -1, 1])


@pytest.mark.parametrize("limits", [(None, None), (-0.5, 0.5)])
@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 31, 32, 63, 130])
def test_the_mean_square_has_a_canonical_order(size: int, limits: tuple[float | None, float | None]) -> None:
    optimizer = ByRow(gradient_clipping_limits=limits)
    rng = np.random.default_rng(size)
    row = [rng.normal(0, 1, size), rng.normal(0, 1, size), rng.uniform(0, 1, 1), rng.normal(0, 1, size)]
    assert_same_bits(numba_step(optimizer, *row), numpy_step(optimizer, *row))


def test_rebind_leaves_the_rule_as_it_was() -> None:
    def shrink(w: Any, by: Any = 2) -> Any:
        return minimum(w, by)  # type: ignore[name-defined]  # noqa: F821

    first, second = (rebind(shrink, {"minimum": word}) for word in (min, max))
    assert (first(1), second(1), first(3), first(3, 4)) == (1, 2, 2, 3)
    assert first.__name__ == "shrink"
    assert "minimum" not in shrink.__globals__
