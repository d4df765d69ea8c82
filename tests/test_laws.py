"""Every law of a rule: ours keep them, and one that breaks them is told which."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from anycore import ConfigError
from anycore.optimizers import OPTIMIZERS, Optimizer, Slot
from anycore.optimizers.laws import check_rule
from anycore.optimizers.row_wise_adagrad import RowWiseAdagrad
from anycore.optimizers.vocabulary import ONE, ZERO, sign, sqrt, where

HALF = np.float32(0.5)
WIDE = 0.5

TRAINABLE = [*(o for name, o in OPTIMIZERS.items() if o.rule is not None and name != "user_defined_program")]


@pytest.mark.parametrize("optimizer", [*TRAINABLE, RowWiseAdagrad], ids=lambda o: o.wire_name)
def test_our_rules_keep_the_laws(optimizer: type[Optimizer]) -> None:
    optimizer().check_rule()


def literal(w: Any, g: Any, lr: Any) -> Any:
    return (w - 0.5 * lr * g,)


def integer(w: Any, g: Any, lr: Any) -> Any:
    return (w - lr * g**2,)


def attribute(w: Any, g: Any, lr: Any) -> Any:
    return (w - lr * np.tanh(g),)


def wide_constant(w: Any, g: Any, lr: Any) -> Any:
    return (w - lr * WIDE * g,)


def inner(w: Any, g: Any, lr: Any) -> Any:
    return ((lambda x: w - x)(lr * g),)


def bare(w: Any, g: Any, lr: Any) -> Any:
    return w - lr * g


def too_many(w: Any, g: Any, lr: Any) -> Any:
    return w - lr * g, g


def default(w: Any, g: Any, lr: Any = ONE) -> Any:
    return (w - lr * g,)


def folded(w: Any, g: Any, lr: Any) -> Any:
    a, b = 0.9, 0.1
    return (w - lr * (a * g + b * w),)


def truths(w: Any, g: Any, lr: Any) -> Any:
    x = True
    return (w - lr * (x + x) * g,)


def looping(w: Any, g: Any, lr: Any) -> Any:
    for x in (g, w):
        w = w - lr * x
    return (w,)


def branching(w: Any, g: Any, lr: Any) -> Any:
    return (w - g,) if lr > ZERO else (w,)


def in_place(w: Any, g: Any, lr: Any) -> Any:
    w -= lr * g
    return (w,)


def starred(*everything: Any) -> Any:
    return (everything,)


def stranger(w: Any, g: Any, lr: Any, gamma: Any) -> Any:
    return (w - lr * gamma * g,)


def boolean(w: Any, g: Any, lr: Any) -> Any:
    return (w > g,)


def summed(w: Any, g: Any, lr: Any) -> Any:
    return (sum(w),)


def failing(w: Any, g: Any, lr: Any) -> Any:
    return (sqrt(w, g, lr, ONE, ONE),)


def missing_slot(w: Any, g: Any, lr: Any) -> Any:
    return w, g


of_my_own = FunctionType((lambda w, g, lr: (w - lr * sign(g),)).__code__, {"sign": lambda x: x}, "of_my_own")


def closure() -> Callable[..., Any]:
    rate = np.float32(0.5)
    return lambda w, g, lr: (w - rate * g,)


@pytest.mark.parametrize(
    ("rule", "slots", "message"),
    [
        (literal, [], r"rule 'literal' holds the number 0\.5, which would make it compute in float64"),
        (integer, [], r"rule 'integer' holds the number 2"),
        (attribute, [], r"rule 'attribute' uses '\w+', which is neither a float32 constant nor a word of"),
        (wide_constant, [], r"uses 'WIDE'"),
        (summed, [], r"uses 'sum'"),
        (closure(), [], r"uses 'rate' of the function around it"),
        (inner, [], r"must not hold another function"),
        (bare, [], r"must return a tuple of w and 0 slots, got ndarray"),
        (too_many, [], r"must return a tuple of w and 0 slots, got 2 results"),
        (default, [], r"must name all of its arguments, without \* and without defaults"),
        (starred, [], r"must name all of its arguments"),
        (folded, [], r"holds the number 0\.9"),
        (truths, [], r"holds the number True"),
        (looping, [], r"must not branch or loop"),
        (branching, [], r"must not branch or loop"),
        (in_place, [], r"must not change an argument in place, as \+= does"),
        (
            of_my_own,
            [],
            r"uses 'sign', which here is not that of anycore\.optimizers\.vocabulary; import it from there",
        ),
        (stranger, [], r"has the argument 'gamma', which is no hyper-parameter; there are beta, flag"),
        (boolean, [], r"must return w as float32, got bool"),
        (failing, [], r"fails on float32 arrays"),
        (missing_slot, ["a", "b"], r"must take w, g, lr and 2 slots, got the arguments w, g, lr"),
        (np.add, [], r"rule 'add' must be a plain function"),
    ],
)
def test_a_broken_law_is_named(rule: Callable[..., Any], slots: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_rule(rule, [Slot(name) for name in slots], {"beta": np.float32(0.9), "flag": True})


def per_row(w: Any, g: Any, lr: Any, norms: Any) -> Any:
    return w - lr * g, norms + g


def test_a_slot_per_row_must_not_depend_on_a_column() -> None:
    with pytest.raises(ConfigError, match=r"must return norms of shape \[2, 1\] for 2 rows, got \[2, 3\]"):
        check_rule(per_row, [Slot("norms", per_row=True)], {})


def lawful(w: Any, g: Any, lr: Any, beta: Any, flag: Any) -> Any:
    """Its text may hold numbers: 0.5."""
    return (where(flag, w - HALF * beta * lr * g, w),)


def test_float32_constants_and_booleans_are_welcome() -> None:
    check_rule(lawful, [], {"beta": np.float32(0.9), "flag": True})
