"""Every operation of every element type computes what XLA does, on every backend; Triton's are in test_triton."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest
import torch
from hlo_lowered import LOWERED, of_64_bits
from jax import lax
from numba import njit
from steps import numba_step

from anycore import ConfigError
from anycore.kernels.bind import NUMBA
from anycore.optimizers import UserDefinedProgram
from anycore.optimizers.compose import compose, settings_of

# A compiler takes a second for each. The others share all their lines with these, but for sizes.
COMPILED = [name for name, lowered in LOWERED.items() if lowered.element_type in ("int8", "uint32", "float32")]
COMPILED += ["arithmetic int64 0", "arithmetic float64 0", "arithmetic bfloat16 0", "converted float16 0"]


def after_a_step(name: str, array: Any) -> list[np.ndarray]:
    """Returns the results of a program in a library."""
    g, w = map(array, LOWERED[name].inputs)
    slots = [g] * len(LOWERED[name].optimizer.slots)
    w, slots = LOWERED[name].optimizer.update(w, g, 0.5, slots)
    return [*map(np.asarray, (w, *slots))]


@pytest.mark.parametrize("name", LOWERED)
def test_numpy_computes_what_xla_does(name: str) -> None:
    LOWERED[name].assert_close(after_a_step(name, np.array))


@pytest.mark.parametrize("name", LOWERED)
def test_torch_computes_what_xla_does(name: str) -> None:
    LOWERED[name].assert_close(after_a_step(name, torch.tensor))


@pytest.mark.parametrize("name", COMPILED)
def test_jax_computes_what_xla_does(name: str) -> None:
    with of_64_bits():
        LOWERED[name].assert_close(after_a_step(name, jax.numpy.array))


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_steps_compute_what_xla_does(name: str) -> None:
    (g,), (w,) = LOWERED[name].inputs
    optimizer = LOWERED[name].optimizer
    LOWERED[name].assert_close([row[None] for row in numba_step(optimizer, g, w, *[g] * len(optimizer.slots))])


@pytest.mark.parametrize(("name", "word"), [("arithmetic uint64 0", "int64"), ("arithmetic float64 0", "float64")])
def test_jax_must_be_told_of_64_bits(name: str, word: str) -> None:
    with pytest.raises(ConfigError, match=f"^optimizer user_defined_program: its rule uses {word}, which JAX has only"):
        after_a_step(name, jax.numpy.array)


def stochastically_rounded(g: Any, w: Any, lr: Any) -> tuple[Any]:
    """SGD in bf16, rounded up or down by bits that are mixed from those of the gradient."""
    bits = lax.bitcast_convert_type(g, np.uint32)
    for shift, factor in [(16, 0x7FEB352D), (15, 0x846CA68B)]:
        bits = (bits ^ (bits >> np.uint32(shift))) * np.uint32(factor)
    raised = lax.bitcast_convert_type(w - lr * g, np.uint32) + (bits >> np.uint32(16))
    return (lax.bitcast_convert_type(raised & np.uint32(0xFFFF0000), np.float32),)


def test_stochastic_rounding_is_exact_and_takes_many_columns_at_once() -> None:
    one = jax.ShapeDtypeStruct((1, 1), "float32")
    module = jax.jit(stochastically_rounded).lower(one, one, one).compiler_ir("hlo")
    optimizer = UserDefinedProgram(program=module.as_serialized_hlo_module_proto(), learning_rate=0.5)
    # Halves are exact, in whatever order they are subtracted.
    g, w = np.random.default_rng(0).integers(-(2**12), 2**12, (2, 1000)).astype(np.float32)
    (found,) = numba_step(optimizer, g, w)
    (expected,) = jax.jit(stochastically_rounded)(g, w, np.float32(0.5))
    np.testing.assert_array_equal(found.view(np.int32), np.asarray(expected).view(np.int32))
    np.testing.assert_array_equal(found.view(np.uint32) & 0xFFFF, 0)
    assert 0.2 < np.mean(found > w - g / 2) < 0.8

    step = compose(optimizer, NUMBA, njit(error_model="numpy", forceinline=True))

    def row(w: Any, g: Any, settings: Any) -> None:
        for d in range(len(w)):
            (w[d],) = step(w[d], g[d], settings)

    compiled = njit(error_model="numpy")(row)
    compiled(w, g, tuple(settings_of(optimizer)))
    (code,) = compiled.inspect_llvm().values()
    assert re.search(r"<\d+ x i32>", code) and not re.search(r"<\d+ x (i64|double)>", code)
