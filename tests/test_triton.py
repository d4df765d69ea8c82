"""Every rule as a Triton kernel: run by Triton's interpreter, and compiled for a GPU that need not be there."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden import GOLDEN, Golden
from hlo_lowered import LOWERED
from steps import name_of
from tolerance import FUNCTION, STEP, STEPS, TINY, of_steps
from triton_outcomes import outcomes
from updates import (
    EXTREMES,
    FORMS,
    PROGRAM_FORMS,
    Steps,
    assert_close,
    extreme_steps,
    golden_steps,
    in_float64,
    random_steps,
    updated,
)
from word_rules import Exact, Nameless, OfLibraries, Rounded, Typed

from anycore import ConfigError, InputError
from anycore.optimizers import Adam, Optimizer, vocabulary
from anycore.optimizers.row_wise_adagrad import RowWiseAdagrad

AROUND: dict[str, Any] = {
    "gradient_clipping_limits": (0.1, 0.5),
    "weight_decay_factor": 0.25,
    "multiply_weight_decay_factor_by_learning_rate": True,
    "clipping_limits": (-0.5, None),
}
# 19 columns fill no tile, and 130 rows take several.
COMPOSED = {
    "adam": Adam(**AROUND),
    "adam, one limit": Adam(gradient_clipping_limits=(None, 0.5)),
    "row_wise_adagrad": RowWiseAdagrad(**AROUND),
}
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.3, -2.5, 3.0, 7.0, 1e-45, 1e-38, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan], np.float32
)
EXPONENTS = [0.5, -0.5, 1.0, 2.0, -1.0, 3.0, 0.0, 0.3, -1 / 3]


def word_steps(optimizer: Optimizer) -> Steps:
    """Returns one step, whose w and g are all pairs of special numbers and some random ones."""
    random = np.random.default_rng(0).normal(0, 3, (10, len(SPECIAL))).astype(np.float32)
    w, g = (np.concatenate([axis, random]) for axis in np.meshgrid(SPECIAL, SPECIAL))
    return Steps(optimizer, [w] + [np.zeros_like(w)] * len(optimizer.slots), [np.flip(g, 0)], [1.0])


TEN_STEPS = {name_of(optimizer): random_steps(optimizer) for optimizer in FORMS}
COMPOSED_STEPS = {f"{name} composed": random_steps(optimizer, 2, rows=130) for name, optimizer in COMPOSED.items()}
PROGRAM_STEPS = {name: random_steps(optimizer, 2) for name, optimizer in PROGRAM_FORMS.items()}
GOLDEN_STEPS = {f"{case} golden": golden_steps(case) for case in GOLDEN}
EXTREME_STEPS = {
    f"{name_of(optimizer)} {kind}": extreme_steps(optimizer, kind) for optimizer in FORMS for kind in EXTREMES
}
EXACT_WORDS = {f"exact {flag}": word_steps(Exact(flag=flag)) for flag in (True, False)}
EXACT_WORDS |= {"typed": word_steps(Typed()), "of libraries": word_steps(OfLibraries())}
ROUNDED_WORDS = {f"power {exponent:.2g}": word_steps(Rounded(exponent=exponent)) for exponent in EXPONENTS}
OPERATION_STEPS = {
    name: Steps(
        lowered.optimizer,
        [lowered.inputs[1]] + [lowered.inputs[0]] * len(lowered.optimizer.slots),
        [lowered.inputs[0]],
        [0.5],
    )
    for name, lowered in LOWERED.items()
}
BY_COLUMN = [np.asfortranarray(values) for values in random_steps(Adam()).variables]
REFUSED = {
    "no source": (random_steps(Nameless()), ConfigError, "rule '<lambda>' has no source for Triton to compile"),
    "by column": (replace(random_steps(Adam()), variables=BY_COLUMN), InputError, "adam: .* must be contiguous"),
}


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The variables after all the steps, and the errors."""
    refused = {name: steps for name, (steps, *_) in REFUSED.items()}
    jobs = {**TEN_STEPS, **COMPOSED_STEPS, **PROGRAM_STEPS, **GOLDEN_STEPS, **EXTREME_STEPS}
    words = {**EXACT_WORDS, **ROUNDED_WORDS, **OPERATION_STEPS}
    return outcomes({**jobs, **words, **refused}, True, tmp_path_factory.mktemp("triton"))


@pytest.mark.parametrize("name", TEN_STEPS)
def test_ten_steps_are_those_of_float64(name: str, interpreted: dict[str, Any]) -> None:
    assert_close(interpreted[name], in_float64(TEN_STEPS[name]), of_steps(TEN_STEPS[name].optimizer))


@pytest.mark.parametrize("case", GOLDEN, ids=str)
def test_a_step_is_the_golden_one(case: Golden, interpreted: dict[str, Any]) -> None:
    assert_close(interpreted[f"{case} golden"], case.out, STEP)


@pytest.mark.parametrize("name", EXTREME_STEPS)
def test_extreme_gradients_do_what_they_do_in_numpy(name: str, interpreted: dict[str, Any]) -> None:
    assert_close(interpreted[name], updated(EXTREME_STEPS[name], np.array), TINY)


@pytest.mark.parametrize("name", COMPOSED_STEPS)
def test_clipping_decay_and_many_rows(name: str, interpreted: dict[str, Any]) -> None:
    assert_close(interpreted[name], updated(COMPOSED_STEPS[name], np.array), STEPS)


@pytest.mark.parametrize("name", PROGRAM_STEPS)
def test_a_program_does_what_it_does_in_numpy(name: str, interpreted: dict[str, Any]) -> None:
    assert_close(interpreted[name], updated(PROGRAM_STEPS[name], np.array), STEPS)


@pytest.mark.parametrize("name", EXACT_WORDS)
def test_words_are_those_of_numpy(name: str, interpreted: dict[str, Any]) -> None:
    for found, expected in zip(interpreted[name], updated(EXACT_WORDS[name], np.array), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ROUNDED_WORDS)
def test_rounded_words_are_close_to_those_of_numpy(name: str, interpreted: dict[str, Any]) -> None:
    for found, expected in zip(interpreted[name], updated(ROUNDED_WORDS[name], np.array), strict=True):
        FUNCTION.assert_close(found, expected)


@pytest.mark.parametrize("name", OPERATION_STEPS)
def test_operations_of_programs_compute_what_xla_does(name: str, interpreted: dict[str, Any]) -> None:
    LOWERED[name].assert_close(interpreted[name])


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_kernel_is_refused(name: str, interpreted: dict[str, Any]) -> None:
    _, kind, text = REFUSED[name]
    assert type(interpreted[name]) is kind
    assert re.search(text, str(interpreted[name]))


def test_every_word_is_tested() -> None:
    rules: Any = [optimizer.rule for optimizer in (Exact, Rounded, Typed, OfLibraries)]
    assert {name for rule in rules for name in rule.__code__.co_names} - {"LARGE"} == set(vocabulary.__all__)


def test_all_compile_for_a_gpu(tmp_path: Path) -> None:
    words = {
        type(optimizer).__name__: word_steps(optimizer) for optimizer in (Exact(), Rounded(), Typed(), OfLibraries())
    }
    # Of each optimizer the last form, in which all is switched on.
    forms = {optimizer.wire_name: random_steps(optimizer) for optimizer in FORMS}
    operations = {f"{kind} 0": OPERATION_STEPS[f"{kind} 0"] for kind in ("arithmetic int64", "converted float16")}
    jobs = {**forms, **COMPOSED_STEPS, **PROGRAM_STEPS, **operations, **words}
    for name, text in outcomes(jobs, False, tmp_path).items():
        assert text.count("st.global") >= len(jobs[name].variables), name
        # A product and a sum are rounded apart, as they are elsewhere.
        assert "fma.rn.f32" not in text or name in words or "mixture" in name, name
