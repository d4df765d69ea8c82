"""Every rule on NumPy, Numba, JAX and torch, and the words that it is written in; Triton has its own tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from golden import GOLDEN, Golden
from hlo_lowered import of_64_bits
from steps import name_of
from tolerance import FUNCTION_OF_A_LIBRARY, STEP, STEPS, TINY, of_steps
from typed_words import CASES, TYPED_WORDS, Case
from updates import (
    EXTREMES,
    FORMS,
    PROGRAM_FORMS,
    Steps,
    Variables,
    assert_close,
    compiled_updated,
    extreme_steps,
    golden_steps,
    in_float64,
    random_steps,
    updated,
)

from anycore import ConfigError, InputError
from anycore.optimizers import (
    Adagrad,
    Adam,
    Assign,
    FrequencyAwareAdagrad,
    OnlineYogi,
    Optimizer,
    Slot,
    StochasticGradientDescent,
    backends,
    vocabulary,
)
from anycore.optimizers.custom import custom_optimizer
from anycore.optimizers.row_wise_adagrad import RowWiseAdagrad
from anycore.optimizers.vocabulary import ZERO

# torch.tensor copies, so that no test depends on memory shared with NumPy.
ARRAYS: dict[str, Callable[[Any], Any]] = {"numpy": np.array, "jax": jnp.array, "torch": torch.tensor}


def take(backend: str, steps: Steps) -> Variables:
    return compiled_updated(steps) if backend == "numba" else updated(steps, ARRAYS[backend])


def array(backend: str, values: Any) -> Any:
    return ARRAYS[backend](np.array(values, np.float32))


# Every optimizer


@pytest.mark.parametrize("backend", [*ARRAYS, "numba"])
@pytest.mark.parametrize("optimizer", FORMS, ids=name_of)
def test_ten_steps_are_those_of_float64(optimizer: Optimizer, backend: str) -> None:
    steps = random_steps(optimizer)
    assert_close(take(backend, steps), in_float64(steps), of_steps(optimizer))


@pytest.mark.parametrize("backend", [*ARRAYS, "numba"])
@pytest.mark.parametrize("case", GOLDEN, ids=str)
def test_a_step_is_the_golden_one(case: Golden, backend: str) -> None:
    assert_close(take(backend, golden_steps(case)), case.out, STEP)


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("name", PROGRAM_FORMS)
def test_a_program_does_what_it_does_in_numpy(name: str, backend: str) -> None:
    steps = random_steps(PROGRAM_FORMS[name], 3)
    assert_close(take(backend, steps), take("numpy", steps), STEPS)


@pytest.fixture(params=["jax", "numba", "torch"])
def unfused(request: pytest.FixtureRequest) -> Iterator[str]:
    """A library that rounds every operation; inside `jax.jit` XLA adds products unrounded, where inf - inf differs."""
    with jax.disable_jit():
        yield request.param


@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize("optimizer", FORMS, ids=name_of)
def test_extreme_gradients_do_what_they_do_in_numpy(optimizer: Optimizer, kind: str, unfused: str) -> None:
    steps = extreme_steps(optimizer, kind)
    assert_close(take(unfused, steps), take("numpy", steps), TINY)


@pytest.mark.parametrize("dimension", [1, 3, 15, 16, 17, 32, 100])
@pytest.mark.parametrize("limits", [(None, None), (-0.5, 0.4), (0.25, None)])
def test_mean_squares_of_numpy_have_the_bits_of_the_kernels(dimension: int, limits: Any) -> None:
    steps = random_steps(RowWiseAdagrad(gradient_clipping_limits=limits), dimension=dimension)
    for ours, theirs in zip(take("numpy", steps), take("numba", steps), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# What is composed around a rule


@pytest.mark.parametrize("backend", ARRAYS)
@pytest.mark.parametrize(
    ("around", "w", "g", "expected"),
    [
        ({}, 8, 100, -42),
        ({"gradient_clipping_limits": (-4, 2)}, 8, 100, 7),
        ({"gradient_clipping_limits": (-4, None)}, 8, -100, 10),
        ({"clipping_limits": (-1, None)}, 8, 100, -1),
        ({"weight_decay_factor": 0.25}, 8, 0, 6),
        ({"weight_decay_factor": 0.25, "multiply_weight_decay_factor_by_learning_rate": True}, 8, 0, 7),
        ({"gradient_clipping_limits": (-4, 2), "weight_decay_factor": 0.25, "clipping_limits": (-1, 4.5)}, 8, 100, 4.5),
        ({"gradient_clipping_limits": (-1, 1), "clipping_limits": (-1, 1)}, 8, np.nan, np.nan),
    ],
)
def test_gradient_clip_then_decay_then_rule_then_weight_clip(
    backend: str, around: dict[str, Any], w: float, g: float, expected: float
) -> None:
    optimizer = StochasticGradientDescent(learning_rate=7.0, **around)
    new, slots = optimizer.update(array(backend, [[w]]), array(backend, [[g]]), 0.5)
    np.testing.assert_array_equal(np.asarray(new), [[expected]])
    assert slots == ()


# Arrays in and out


@pytest.mark.parametrize("backend", ARRAYS)
@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_slots_come_back_as_they_came(backend: str, kind: Any) -> None:
    w, g, m, v = (array(backend, [[value, 1.0]]) for value in (1.0, 2.0, 3.0, 4.0))
    # A dict goes by name, whatever its order.
    slots = {"velocities": v, "momenta": m} if kind is dict else kind([m, v])
    new, new_slots = Adam(beta1=0.5, beta2=0.5).update(w, g, 0.0, slots)
    assert type(new) is type(w)
    assert type(new_slots) is kind
    momenta, velocities = (new_slots["momenta"], new_slots["velocities"]) if kind is dict else new_slots
    assert np.asarray(momenta).tolist() == [[2.5, 1.0]]
    assert np.asarray(velocities).tolist() == [[4.0, 1.0]]


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("optimizer", [Assign(), Adagrad(), RowWiseAdagrad()], ids=name_of)
def test_arguments_stay_and_results_are_new(backend: str, optimizer: Optimizer) -> None:
    steps = random_steps(optimizer)
    w, g, *slots = (
        ARRAYS[backend](values) for values in (steps.variables[0], steps.gradients[0], *steps.variables[1:])
    )
    before = [np.asarray(values).copy() for values in (w, g, *slots)]
    new, new_slots = optimizer.update(w, g, 0.1, slots)
    for values in (new, *new_slots):
        assert not any(np.shares_memory(np.asarray(values), np.asarray(given)) for given in (w, g, *slots))
        values[:] = -9
    np.testing.assert_equal([np.asarray(values) for values in (w, g, *slots)], before)


def stale(w: Any, g: Any, lr: Any, ages: Any, peaks: Any, copies: Any, zeros: Any) -> Any:
    """Returns a number for all, a row's slot, what it was given twice, and a constant."""
    return w, lr, peaks, peaks, ZERO


@pytest.mark.parametrize("backend", ARRAYS)
def test_a_rule_may_return_numbers_and_what_it_was_given(backend: str) -> None:
    optimizer = custom_optimizer(stale, slots=["ages", Slot("peaks", per_row=True), "copies", "zeros"])()
    arrays = [array(backend, [[row, row]] * 2) for row in (1.0, 2.0, 3.0)]
    peaks = array(backend, [[4.0], [5.0]])
    w, (ages, new_peaks, copies, zeros) = optimizer.update(
        arrays[0], arrays[0], 0.5, (arrays[1], peaks, arrays[2], arrays[2])
    )
    assert np.asarray(w).tolist() == [[1, 1], [1, 1]]
    assert np.asarray(ages).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert np.asarray(new_peaks).tolist() == [[4], [5]]
    assert np.asarray(copies).tolist() == [[4, 4], [5, 5]]
    assert np.asarray(zeros).tolist() == [[0, 0], [0, 0]]
    assert {str(values.dtype).removeprefix("torch.") for values in (w, ages, new_peaks, copies, zeros)} == {"float32"}
    if backend != "jax":
        results = [np.asarray(values) for values in (w, ages, new_peaks, copies, zeros)]
        assert not any(np.shares_memory(a, b) for a in results for b in results if a is not b)


@pytest.mark.parametrize("backend", ARRAYS)
@pytest.mark.parametrize("kind", ["Python's", "NumPy's", "an array"])
def test_numbers_may_be_arrays_of_one(backend: str, kind: str) -> None:
    numbers = {"Python's": float, "NumPy's": np.float64, "an array": lambda value: array(backend, value)}
    lr, step_counter = map(numbers[kind], (0.5, 18))
    ones = array(backend, [[1.0]])
    optimizer = FrequencyAwareAdagrad(weight_decay_factor=0.5, multiply_weight_decay_factor_by_learning_rate=True)
    w, slots = optimizer.update(ones, ones, lr, [ones * 8, ones], step_counter=step_counter)
    assert np.asarray(w).tolist() == [[0.75 - 0.5 * 3 / 3]]
    assert [np.asarray(slot).tolist() for slot in slots] == [[[9.0]], [[2.0]]]


def test_inside_jit() -> None:
    optimizer = Adam(gradient_clipping_limits=(-1, 1), use_sum_inside_sqrt=True)
    steps = random_steps(optimizer)
    update = jax.jit(optimizer.update)
    w, slots = jnp.array(steps.variables[0]), dict(zip(["momenta", "velocities"], steps.variables[1:], strict=True))
    slots = jax.tree.map(jnp.array, slots)
    for gradient, rate in zip(steps.gradients, steps.rates, strict=True):
        w, slots = update(w, gradient, rate, slots)
    assert_close([np.asarray(values) for values in (w, *slots.values())], take("numpy", steps), STEPS)


def test_float32_in_jax_of_64_bits() -> None:
    with of_64_bits():
        ones = jnp.ones((2, 3), jnp.float32)
        w, slots = jax.jit(Adam().update)(ones, ones, jnp.float64(0.1), [ones, ones])
        assert {values.dtype for values in (w, *slots)} == {np.dtype(np.float32)}


def test_torch_records_no_gradients() -> None:
    w = torch.nn.Parameter(torch.ones(2, 3))
    (w * w).sum().backward()
    new, (accumulators,) = Adagrad().update(w, w.grad, torch.tensor(0.1, requires_grad=True), [torch.ones(2, 3)])
    assert type(new) is torch.Tensor
    assert not new.requires_grad and not accumulators.requires_grad


def test_updating_numpy_arrays_imports_no_other_library() -> None:
    program = """if True:
        import sys, numpy, anycore.optimizers
        ones = numpy.ones((2, 3), numpy.float32)
        anycore.optimizers.Adagrad().update(ones, ones, 0.1, [ones])
        print(*{"jax", "tensorflow", "torch", "triton"} & set(sys.modules), "done")
    """
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout.split() == [b"done"]


# What is refused

ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"w": [[1.0]]}, "w must be an array of numpy, jax or torch, got <class 'list'>"),
        ({"w": ONES[0]}, r"w must be \[rows, dimension\], got shape \(3,\)"),
        ({"w": ONES[:, :0]}, r"w must be \[rows, dimension\], got shape \(2, 0\)"),
        ({"w": ONES.astype(np.float64)}, r"w must be float32 \(2, 3\), got float64 \(2, 3\)"),
        ({"g": ONES.tolist()}, "g must be an array of the library of w, got <class 'list'>"),
        ({"g": torch.ones(2, 3)}, "g must be an array of the library of w, got <class 'torch.Tensor'>"),
        ({"w": torch.ones(2, 3)}, "g must be an array of the library of w, got <class 'numpy.ndarray'>"),
        ({"w": jnp.ones((2, 3))}, "g must be an array of the library of w, got <class 'numpy.ndarray'>"),
        ({"w": torch.ones(2, 3).half()}, r"w must be float32 \(2, 3\), got float16 \(2, 3\)"),
        ({"g": ONES[:1]}, r"g must be float32 \(2, 3\), got float32 \(1, 3\)"),
        ({"slots": [ONES[:, :1]]}, r"accumulators must be float32 \(2, 3\), got float32 \(2, 1\)"),
        ({"slots": ()}, r"slots must be a list, tuple or dict of \['accumulators'\], got 0"),
        ({"slots": ONES}, r"slots must be a list, tuple or dict of \['accumulators'\], got <class 'numpy.ndarray'>"),
        ({"slots": {"momenta": ONES}}, r"slots must be .* of \['accumulators'\], got \['momenta'\]"),
        ({"lr": "fast"}, "lr must be a finite number, or an array of one in the library of w, got 'fast'"),
        ({"lr": float("nan")}, "lr must be a finite number.* got nan"),
        ({"lr": True}, "lr must be a finite number.* got True"),
        ({"lr": np.ones(1)}, r"lr must be a finite number.* got array\(\[1.\]\)"),
        ({"lr": torch.tensor(1.0)}, r"lr must be a finite number.* got tensor\(1.\)"),
        ({"step_counter": 3}, r"dynamic inputs must be none, got \['step_counter'\]"),
    ],
)
def test_what_is_no_step_is_refused(changes: dict[str, Any], text: str) -> None:
    arguments: dict[str, Any] = {"w": ONES, "g": ONES, "lr": 0.1, "slots": [ONES], **changes}
    with pytest.raises(InputError, match=f"^optimizer adagrad: {text}$"):
        Adagrad().update(**arguments)


def test_slots_of_a_row_are_one_column() -> None:
    with pytest.raises(InputError, match=r"accumulators must be float32 \(2, 1\), got float32 \(2, 3\)"):
        RowWiseAdagrad().update(ONES, ONES, 0.1, [ONES])


def test_dynamic_inputs_must_all_be_given() -> None:
    with pytest.raises(InputError, match=r"dynamic inputs must be \['step_counter'\], got \[\]"):
        FrequencyAwareAdagrad().update(ONES, ONES, 0.1, [ONES, ONES])
    with pytest.raises(InputError, match="optimizer frequency_aware_adagrad: step_counter must be a finite number"):
        FrequencyAwareAdagrad().update(ONES, ONES, 0.1, [ONES, ONES], step_counter=None)


def test_no_arithmetic_no_update() -> None:
    with pytest.raises(ConfigError, match="optimizer online_yogi: its arithmetic is not published"):
        OnlineYogi().update(ONES, ONES, 0.1, [ONES, ONES])


# Words

LIBRARIES = {"jax": backends._jax, "torch": backends._torch}
CONSTANTS = {word: value for word, value in backends.NUMPY.items() if isinstance(value, np.float32)}
EXACT = {"absolute", "ceil", "floor", "fmod", "maximum", "minimum", "rint", "sign", "where"}

# No word may turn -0.0 into 0.0, drop a NaN or overflow early. Below 1.2e-38, XLA has zeros alone.
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.3, -2.5, 3.5, 1e-30, 2e-38, -2e-38, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan],
    np.float32,
)
OPERANDS = {"arctan2": 2, "fmod": 2, "maximum": 2, "minimum": 2, "where": 2}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_has_every_word_and_no_other(library: str) -> None:
    words = LIBRARIES[library]().words
    assert sorted(words) == sorted(vocabulary.__all__)
    assert {word: words[word] for word in CONSTANTS} == CONSTANTS
    assert all(
        callable(words[word]) and words[word] is not backends.NUMPY[word] for word in set(words) - set(CONSTANTS)
    )


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("word", sorted(set(vocabulary.__all__) - set(CONSTANTS) - TYPED_WORDS - {"power"}))
def test_a_word_means_what_it_means_in_numpy(library: str, word: str) -> None:
    rng = np.random.default_rng(0)
    random = [rng.normal(0, 3, 500).astype(np.float32) for _ in range(2)]
    operands = [
        np.concatenate([axis.ravel(), values])
        for axis, values in zip(np.meshgrid(SPECIAL, SPECIAL), random, strict=True)
    ][: OPERANDS.get(word, 1)]
    if word in ("minimum", "maximum"):  # which of 0.0 and -0.0 is the greater is open
        operands = [values[(operands[0] != 0) | (operands[1] != 0)] for values in operands]
    if word == "where":
        operands = [operands[0] < operands[1], *operands]
    with np.errstate(all="ignore"):
        expected = backends.NUMPY[word](*operands)
    found = np.asarray(LIBRARIES[library]().words[word](*map(ARRAYS[library], operands)))
    assert found.dtype == np.float32
    FUNCTION_OF_A_LIBRARY.assert_close(found, expected)
    if word in EXACT:
        np.testing.assert_array_equal(found, expected)
    zero = (found == 0) & (expected == 0)
    np.testing.assert_array_equal(np.signbit(found)[zero], np.signbit(expected)[zero])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_typed_words(library: str, case: Case) -> None:
    with of_64_bits():
        found = LIBRARIES[library]().words[case.word](*map(ARRAYS[library], case.operands))
        assert np.asarray(found).dtype == case.expected.dtype
        np.testing.assert_array_equal(np.asarray(found), case.expected)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("exponent", [0.5, -0.5, 1.0, 2.0, -1.0, 0.0, 0.3, -1 / 3])
def test_power(library: str, exponent: float) -> None:
    base = np.concatenate([SPECIAL, np.random.default_rng(1).lognormal(0, 3, 500).astype(np.float32)])
    with np.errstate(all="ignore"):
        expected = vocabulary.power(base, np.float32(exponent))
    found = np.asarray(LIBRARIES[library]().words["power"](ARRAYS[library](base), np.float32(exponent)))
    assert found.dtype == np.float32
    TINY.assert_close(found, expected)


@pytest.mark.parametrize("library", LIBRARIES)
def test_words_take_constants(library: str) -> None:
    """Flags and numbers of an optimizer are Python's and NumPy's, not arrays of a library."""
    words = LIBRARIES[library]().words
    two, values = np.float32(2), ARRAYS[library](np.array([1.0, 3.0], np.float32))
    for condition, chosen in ((True, values), (False, two), (two == two, values), (two != two, two)):
        assert words["where"](condition, values, two) is chosen
    assert np.asarray(words["minimum"](values, two)).tolist() == [1, 2]
    assert np.asarray(words["maximum"](two, values)).tolist() == [2, 3]
    assert np.asarray(words["where"](values > two, two, words["ZERO"])).tolist() == [0, 2]
    assert float(words["sqrt"](two)) == np.sqrt(two)
