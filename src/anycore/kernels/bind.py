"""A rule becomes compiled code: the same function with Numba's words in place of NumPy's, in a loop over a row."""

from __future__ import annotations

import math
import os
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numba.core.errors import NumbaError

from anycore.errors import ConfigError
from anycore.kernels.bits import bits, of_bits
from anycore.kernels.pointers import FLOAT_BYTES, floats
from anycore.kernels.power import raised
from anycore.kernels.stored import Compiled, compiled
from anycore.optimizers import vocabulary
from anycore.optimizers.backends import LANES, NUMPY
from anycore.optimizers.compose import FIRST_HYPER_PARAMETER, clip_gradient, compose, rebind, structure_of
from anycore.optimizers.declared import MEAN_SQUARE
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.source import define

# Strict IEEE arithmetic: exact against NumPy, and on the processors measured faster than fast-math's approximations.
# Inlined whatever its size, or the loop over columns would not vectorise.
_compile = njit(nogil=True, error_model="numpy", forceinline=True)


@_compile
def _where(condition, a, b):
    return a if condition else b


@_compile
def _maximum(a, b):
    return a if a >= b or a != a else b


@_compile
def _minimum(a, b):
    return a if a <= b or a != a else b


@_compile
def _sign(x):
    if x > vocabulary.ZERO:
        return vocabulary.ONE
    if x < vocabulary.ZERO:
        return -vocabulary.ONE
    return x if x != x else vocabulary.ZERO


@_compile
def _sqrt(x):
    return np.sqrt(x)


@_compile
def _absolute(x):
    return np.abs(x)


@_compile
def _erf(x):
    return math.erf(x)


@_compile
def _quotient(a, b):
    floor = a // b
    return floor + 1 if floor * b != a and (a < 0) != (b < 0) else floor


# Numba compiles NumPy's other functions by itself.
NUMBA: dict[str, Any] = NUMPY | {
    "where": _where,
    "maximum": _maximum,
    "minimum": _minimum,
    "sign": _sign,
    "sqrt": _sqrt,
    "absolute": _absolute,
    "erf": _erf,
    "bits": bits,
    "of_bits": of_bits,
    "quotient": _quotient,
}


NUMBA["power"] = _compile(rebind(vocabulary.power, {**NUMBA, "raised": raised}))


_compiling = threading.Lock()
_STORES = (
    Path(__file__).parent / "__pycache__",
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anycore",
)
"""Folders for compiled steps: beside the compiled kernels where that can be written, else the user's."""
_ZERO = np.float32(0)


def compiled_step(optimizer: Optimizer) -> int:
    """Returns the address of a compiled `void(record, gradient, dimension, settings)`, which updates one row.

    All arguments are int64: the addresses of the row's record [w | slot | …], its gradient and its table's settings,
    and the dimension. Optimizers that differ only in settings share it, and it is never freed.
    """
    # Two threads must not compile the same step: the one that the cache forgets would be freed.
    with _compiling:
        try:
            return _compiled_step(structure_of(optimizer)).address
        except NumbaError as error:
            raise ConfigError(f"optimizer {optimizer.wire_name}: its rule cannot be compiled: {error}") from error


@cache
def _compiled_step(structure: Optimizer) -> Compiled:
    """The composed step in a loop over a row; called by address, so that the kernel around it is compiled once."""
    num_settings = FIRST_HYPER_PARAMETER + len(structure.variables())
    read, write, loop_in, loop_out, size = [], [], ["w[d]"], ["w[d]"], "dimension"
    for k, slot in enumerate(structure.slots):
        width = "1" if slot.per_row else "dimension"
        read.append(f"slot_{k} = floats(record + {FLOAT_BYTES} * ({size}), {width})")
        size += f" + {width}"
        if slot.per_row:
            read.append(f"old_{k} = new_{k} = slot_{k}[0]")
            write.append(f"slot_{k}[0] = new_{k}")
        loop_in.append(f"old_{k}" if slot.per_row else f"slot_{k}[d]")
        loop_out.append(f"new_{k}" if slot.per_row else f"slot_{k}[d]")
    needs_mean = MEAN_SQUARE in structure.rule_arguments
    arguments = ["w[d]", "gradient[d]", "settings", *loop_in[1:], *(["mean_square"] if needs_mean else [])]
    lines = [
        f"stored = floats(settings_address, {num_settings})",
        # A tuple stays in registers; reading memory in the loop would have to be repeated after every store.
        f"settings = ({', '.join(f'stored[{k}]' for k in range(num_settings))})",
        "gradient = floats(gradient_address, dimension)",
        "w = floats(record, dimension)",
        *read,
        *(["mean_square = mean_square_of(gradient, dimension, settings)"] if needs_mean else []),
        "for d in range(dimension):",
        f"    {', '.join(loop_out)}, = step({', '.join(arguments)})",
        *write,
    ]
    namespace = {**NUMBA, "floats": floats, "step": compose(structure, NUMBA, _compile)}
    if needs_mean:
        namespace["mean_square_of"] = _mean_square_of(structure)
    apply = define("apply", ["record", "gradient_address", "dimension", "settings_address"], lines, namespace)
    return compiled(apply, "void(int64, int64, int64, int64)", _STORES)


def _mean_square_of(structure: Optimizer) -> Any:
    """Returns compiled `(gradient, dimension, settings) -> mean of g² over the row`, g clipped.

    Column d is added to lane d % 16, then the lanes in order: this order is canonical, and lets a processor add sixteen
    columns at once.
    """
    clip = "".join(f"; {line}" for line in clip_gradient(structure))
    lanes = [f"lane_{k}" for k in range(LANES)]
    lines = [f"{' = '.join(lanes)} = zero"]
    lines += [f"whole = dimension - dimension % {LANES}", f"for first in range(0, whole, {LANES}):"]
    lines += [f"    g = gradient[first + {k}]{clip}; {lane} += g * g" for k, lane in enumerate(lanes)]
    for k, lane in enumerate(lanes[:-1]):
        lines += [f"if whole + {k} < dimension:", f"    g = gradient[whole + {k}]{clip}; {lane} += g * g"]
    lines += [f"return ({' + '.join(lanes)}) / float32(dimension)"]
    namespace = {**NUMBA, "zero": _ZERO, "float32": np.float32}
    return _compile(define("mean_square_of", ["gradient", "dimension", "settings"], lines, namespace))
