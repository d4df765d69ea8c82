"""What all optimizers share; the ranges of each one's parameters are tested with it in test_optimizers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from steps import STEPS, Step

from anycore import ConfigError
from anycore.optimizers import (
    FTRL,
    Adagrad,
    AdagradMomentum,
    Adam,
    DynamicInput,
    SimulatedQuantization,
    Slot,
    StochasticGradientDescent,
)
from anycore.optimizers.compose import structure_of
from anycore.optimizers.declarations import Interval, compiled
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import sign, where

INF = float("inf")


@pytest.mark.parametrize(
    ("interval", "text", "inside", "outside"),
    [
        (Interval(0), "[0, inf)", [0.0, 1e30], [-1e-30, INF, -INF, float("nan")]),
        (Interval(0, open_low=True), "(0, inf)", [1e-30], [0.0, -0.0, INF]),
        (Interval(0, 1, open_high=True), "[0, 1)", [0.0, 0.5], [1.0, -0.5]),
        (Interval(-1, 1), "[-1, 1]", [-1, 0, 1], [-2, 2]),
        (Interval(2, 3, True, True), "(2, 3)", [2.5], [2, 3]),
        (Interval(-INF, -1, open_high=True), "(-inf, -1)", [-2], [-1]),
        (Interval(-INF, 0), "(-inf, 0]", [0.0, -1e30], [0.5, -INF]),
    ],
)
def test_intervals(interval: Interval, text: str, inside: list[float], outside: list[float]) -> None:
    assert str(interval) == text
    assert all(value in interval for value in inside)
    assert interval.example in interval
    assert not any(value in interval for value in outside)


def quantized(limits: Any = (-1.0, 1.0), num_buckets: Any = 4) -> dict[str, Any]:
    return {"simulated_quantization": SimulatedQuantization(limits, num_buckets)}


@pytest.mark.parametrize(
    ("optimizer", "changes", "text"),
    [
        (Adagrad(), {"learning_rate": None}, "learning_rate.* got None"),
        (Adagrad(), {"learning_rate": "fast"}, "learning_rate.* got 'fast'"),
        (Adagrad(), {"learning_rate": [0.1]}, r"learning_rate.* got \[0\.1\]"),
        (Adagrad(), {"learning_rate": DynamicInput(0.5)}, r"learning_rate\.dynamic\.tag .* got 0\.5"),  # type: ignore[arg-type]
        (Adagrad(), {"learning_rate": DynamicInput("a")}, r"learning_rate\.dynamic\.tag .* got 'a'"),  # type: ignore[arg-type]
        (Adagrad(), {"weight_decay_factor": None}, "weight_decay_factor .* got None"),
        (Adagrad(), {"clipping_limits": None}, "clipping_limits .* got None"),
        (Adagrad(), {"clipping_limits": (1.0,)}, r"clipping_limits .* got \(1\.0,\)"),
        (Adagrad(), {"gradient_clipping_limits": ("a", 1.0)}, r"gradient_clipping_limits .* got \('a', 1\.0\)"),
        (Adagrad(), {"simulated_quantization": 8}, "simulated_quantization .* got 8"),
        (Adagrad(), quantized(limits=(None, 1.0)), r"simulated_quantization\.clipping_limits .* got \(None, 1\.0\)"),
        (Adagrad(), quantized(num_buckets=2.5), r"simulated_quantization\.num_buckets .* got 2\.5"),
        (Adam(), {"beta1": "high"}, "beta1 .* got 'high'"),
        (Adam(), {"epsilon": None}, "epsilon .* got None"),
        # A flag is compiled in and a number is passed: neither may stand for the other.
        (Adam(), {"beta1": True}, "beta1 .* got True"),
        (AdagradMomentum(), {"use_nesterov": 1}, "use_nesterov .* got 1"),
        (AdagradMomentum(), {"use_nesterov": np.True_}, "use_nesterov .* got "),
        # Only some numbers may come with the gradients.
        (Adagrad(), {"weight_decay_factor": DynamicInput(0)}, r"weight_decay_factor .* got DynamicInput\(tag=0\)"),
        (Adam(), {"beta1": DynamicInput(0)}, r"beta1 .* got DynamicInput\(tag=0\)"),
        # Float32 has no number that close to 1.
        (Adam(), {"beta2": 1 - 1e-12}, r"beta2 must be in \[0, 1\).* got 0\.999999"),
    ],
)
def test_what_is_no_such_number_is_named(optimizer: Optimizer, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=f"^optimizer {optimizer.wire_name}: {text}"):
        replace(optimizer, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"learning_rate": 0.0},
        {"learning_rate": np.float32(0.5)},
        {"learning_rate": 1},
        {"learning_rate": DynamicInput(3)},
        {"clipping_limits": (None, 1.0), "gradient_clipping_limits": (-1, None)},
        {"weight_decay_factor": 0.5, "multiply_weight_decay_factor_by_learning_rate": True},
        quantized(),
    ],
)
def test_accepts(changes: dict[str, Any]) -> None:
    optimizer = Adagrad(**changes)
    assert {name: getattr(optimizer, name) for name in changes} == changes


COUNTER = DynamicInput(1)


@dataclass(frozen=True, kw_only=True)
class Example(Optimizer):
    a: float = 1.0
    flag: bool = True
    b: float = compiled(0.1)
    c: float = 3.0
    d: DynamicInput = COUNTER

    rule = staticmethod(lambda w, g, lr, first, second, d, c, mean_square, b, flag, a: None)
    slots = (Slot("first", 0.1), Slot("second"))
    wire_name = "example"


def test_hyper_parameters_are_split_into_constants_and_variables() -> None:
    assert Example().hyper_parameters() == {"a": 1.0, "flag": True, "b": 0.1, "c": 3.0, "d": COUNTER}
    assert Example().constants() == {"flag": True, "b": np.float32(0.1)}
    assert Example().variables() == {"a": 1, "c": 3, "d": 0}
    assert all(isinstance(value, np.float32) for value in [*Example().variables().values(), Example().constants()["b"]])
    # The split is the class's, whatever the values are.
    assert Example(flag=False, a=0).constants().keys() == {"flag", "b"}


def test_dynamic_inputs_are_what_the_step_delivers() -> None:
    example = Example(learning_rate=DynamicInput(2))
    assert example.tags == {1, 2}
    assert example.variables([5, 6, 7]) == {"a": 1, "c": 3, "d": 6}
    assert example.resolve(example.learning_rate, [5, 6, 7]) == 7
    assert (Example().tags, Adagrad().tags) == ({1}, set())
    assert Example().resolve(0.5, [5]) == 0.5


def test_rule_arguments_follow_the_slots() -> None:
    assert Example().rule_arguments == ("d", "c", "mean_square", "b", "flag", "a")
    assert StochasticGradientDescent().rule_arguments == ()


def test_state_variables_begin_with_the_parameters() -> None:
    assert Example().state_variables == ("parameters", "first", "second")
    assert not Example().updates_every_row


def test_equal_settings_are_equal() -> None:
    assert FTRL(l1=0.5) == FTRL(l1=0.5) != FTRL(l1=0.25)
    assert hash(FTRL(l1=0.5)) == hash(FTRL(l1=0.5))


def scaled(w: Any, g: Any, lr: Any, scale: Any, signed: Any, shift: Any) -> Any:
    return (w - lr * scale * where(signed, sign(g), g) + shift,)


@dataclass(frozen=True, kw_only=True)
class Required(Optimizer):
    """Has hyper-parameters without a default."""

    scale: float
    signed: bool
    shift: Any

    rule = staticmethod(scaled)
    intervals = {"scale": Interval(2, 3, open_low=True)}
    wire_name = "required"


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_hyper_parameters_may_be_required(step: Step) -> None:
    optimizer = Required(learning_rate=0.5, scale=3.0, signed=True, shift=DynamicInput(0))
    assert step(optimizer, [7], [1], dynamic_inputs=[4.0])[0].tolist() == [1 - 1.5 + 4]
    assert step(replace(optimizer, scale=2.5, signed=False, shift=1.0), [2], [1])[0].tolist() == [1 - 2.5 + 1]
    assert structure_of(optimizer) == structure_of(replace(optimizer, scale=2.25, shift=DynamicInput(3)))
    assert structure_of(optimizer) != structure_of(replace(optimizer, signed=False))
    with pytest.raises(ConfigError, match=r"^optimizer required: scale must be in \(2, 3\], got 2\.0"):
        replace(optimizer, scale=2.0)
    with pytest.raises(TypeError, match="signed"):
        Required(scale=3.0, shift=0.0)  # type: ignore[call-arg]
