"""The plain rules against numbers made by TensorFlow or worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from golden import GOLDEN, Golden
from reference_optimizers import OPTIMIZERS
from tolerance import FLOAT64


@pytest.mark.parametrize("case", GOLDEN, ids=str)
def test_rule_gives_golden_numbers(case: Golden) -> None:
    optimizer = OPTIMIZERS[case.optimizer]
    assert tuple(case.slots) == optimizer.slots
    hyper_parameters = SimpleNamespace(**case.hyper_parameters)
    found = optimizer.rule(hyper_parameters, case.parameters, case.gradient, case.learning_rate, *case.slots.values())
    for ours, theirs in zip(found, case.out, strict=True):
        case.tolerance.assert_close(ours, theirs)


def bounded(max_var_update: float, max_accumulator: float, first: bool) -> dict:
    limits = {"max_var_update": max_var_update, "max_accumulator": max_accumulator}
    return {**limits, "update_accumulator_first": first}


def frequency_aware(l1: float, l2: float, max_lr_multiplier: float, least: float, step_counter: Any) -> dict:
    return {
        "l1_regularization_strength": l1,
        "l2_regularization_strength": l2,
        "max_lr_multiplier": max_lr_multiplier,
        "probability_exponent": 0.5,
        "accumulator_decay": 0.5,
        "initial_accumulator_value": least,
        "step_counter": step_counter,
    }


# Worked out by hand: (optimizer, hyper-parameters, slots, new weight, new slots) for w = 1, g = 2, lr = 0.5.
BY_HAND = [
    ("bounded_adagrad", bounded(0, 0, True), [5], 2 / 3, [9]),
    ("bounded_adagrad", bounded(0, 4, True), [5], 0.5, [4]),
    ("bounded_adagrad", bounded(0, 0, False), [16], 0.75, [20]),
    ("bounded_adagrad", bounded(0.2, 0, True), [5], 0.8, [9]),
    ("frequency_aware_adagrad", frequency_aware(0, 0, 10, 0.1, 18), [10, 1], 0, [9, 2]),
    ("frequency_aware_adagrad", frequency_aware(0, 0, 2, 16, 18), [10, 1], 0.5, [16, 2]),
    ("frequency_aware_adagrad", frequency_aware(0.1, 0.2, 10, 0.1, 18), [10, 1], -0.15, [9, 2]),
    ("proximal_yogi", {"l1": 0, "l2": 0, "beta1": 0.5, "beta2": 0.75, "epsilon": 0.5}, [3, 1], 0.7, [4, 1.5]),
    ("proximal_yogi", {"l1": 0.5, "l2": 1, "beta1": 0.5, "beta2": 0.75, "epsilon": 0.5}, [3, 1], 0.5, [4, 1.5]),
    ("proximal_yogi", {"l1": 0, "l2": 0, "beta1": 0.5, "beta2": 0.75, "epsilon": 0}, [5, 1], 0.625, [4, 1.5]),
    ("frequency_estimator", {"tau": 0.5, "max_delta": 9, "outlier_threshold": 4}, [-2.5], 2, [0.5]),
    ("frequency_estimator", {"tau": 0.5, "max_delta": 9, "outlier_threshold": 3}, [-2.5], 3, [0.5]),
    ("frequency_estimator", {"tau": 0.5, "max_delta": 2, "outlier_threshold": 4}, [-2.5], 1.5, [0.5]),
    ("assign", {}, [], 2, []),
]


@pytest.mark.parametrize(("name", "hyper", "slots", "weight", "new_slots"), BY_HAND)
def test_rule_by_hand(name: str, hyper: dict, slots: list, weight: float, new_slots: list) -> None:
    rows = [np.array([slot], float) for slot in slots]
    found = OPTIMIZERS[name].rule(SimpleNamespace(**hyper), np.array([1.0]), np.array([2.0]), 0.5, *rows)
    FLOAT64.assert_close(found, [[value] for value in (weight, *new_slots)])
