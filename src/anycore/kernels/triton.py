"""A rule as a Triton kernel: the same function with Triton's words, over rows that lie on a GPU.

Nothing imports this module; who wants it has Triton.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.language.extra import libdevice

from anycore.errors import ConfigError, InputError
from anycore.optimizers import Optimizer, vocabulary
from anycore.optimizers.backends import NUMPY
from anycore.optimizers.compose import FIRST_HYPER_PARAMETER, clip_gradient, compose, rebind, structure_of
from anycore.optimizers.declared import MEAN_SQUARE
from anycore.optimizers.source import define

_TILE = 1024
"""Elements of w that one program updates."""

_WORDS = {
    "absolute(x)": "tl.abs(x)",
    "arccos(x)": "libdevice.acos(x)",
    "arccosh(x)": "libdevice.acosh(x)",
    "arcsin(x)": "libdevice.asin(x)",
    "arcsinh(x)": "libdevice.asinh(x)",
    "arctan2(y, x)": "libdevice.atan2(y, x)",
    "arctanh(x)": "libdevice.atanh(x)",
    "bits(x)": "tl.cast(x, tl.int64 if x.dtype == tl.float64 else tl.int32, bitcast=True)",
    "cbrt(x)": "libdevice.cbrt(x)",
    "ceil(x)": "tl.ceil(x)",
    "cos(x)": "tl.cos(x)",
    "cosh(x)": "libdevice.cosh(x)",
    "erf(x)": "tl.erf(x)",
    "exp(x)": "tl.exp(x)",
    "expm1(x)": "libdevice.expm1(x)",
    "float32(x)": "tl.cast(x, tl.float32)",
    "float64(x)": "tl.cast(x, tl.float64)",
    "floor(x)": "tl.floor(x)",
    "fmod(x, y)": "libdevice.fmod(x, y)",
    "int32(x)": "tl.cast(x, tl.int32)",
    "int64(x)": "tl.cast(x, tl.int64)",
    "log(x)": "tl.log(x)",
    "log1p(x)": "libdevice.log1p(x)",
    "maximum(x, y)": "tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)",
    "minimum(x, y)": "tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)",
    "of_bits(x)": "tl.cast(x, tl.float64 if x.dtype == tl.int64 else tl.float32, bitcast=True)",
    "quotient(x, y)": "x // y",
    "rint(x)": "libdevice.rint(x)",
    "sign(x)": "tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, tl.where(x == 0, 0.0, x)))",
    "sin(x)": "tl.sin(x)",
    "sinh(x)": "libdevice.sinh(x)",
    # Triton rounds the root of a float32 in its own way unless told otherwise, and x may be a number without a type.
    "sqrt(x)": "tl.sqrt(x) if (x + tl.full((), 0, tl.float32)).dtype == tl.float64 else tl.sqrt_rn(x)",
    "tanh(x)": "libdevice.tanh(x)",
    "where(condition, x, y)": "tl.where(condition, x, y)",
}
"""Words as Triton's expressions."""


@triton.jit
def _raised(base, exponent):
    """base ** exponent, in float64 since Triton's logarithm has errors that a large exponent multiplies."""
    result = base + exponent + tl.full((), 0, tl.float32)
    base = tl.cast(base, tl.float64)
    exponent = tl.cast(exponent, tl.float64)
    size = tl.exp2(exponent * tl.log2(tl.abs(base)))
    size = tl.where(exponent == 0, 1.0, tl.where(tl.abs(base) == 1, 1.0, size))
    even = tl.floor(exponent * 0.5) * 2 == exponent
    whole = tl.floor(exponent) == exponent
    root = tl.where(base == 0, size, tl.where(tl.abs(base) == float("inf"), size, float("nan")))
    of_negative = tl.where(even, size, tl.where(whole, -size, root))
    is_negative = tl.where(base == 0, 1 / base, base) < 0
    return tl.cast(tl.where(is_negative, of_negative, size), result.dtype)


class _Powers(ast.NodeTransformer):
    """Calls `raised` where the source has `**`, which Triton does not know."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Pow):
            return ast.Call(ast.Name("raised", ast.Load()), [node.left, node.right], [])
        return node


def _compile(function: FunctionType) -> Any:
    """Returns the function that Triton compiles from the source of `function`, without annotations."""
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, ValueError):
        definition = None
    if not isinstance(definition, ast.FunctionDef):
        raise ConfigError(f"rule {function.__name__!r} has no source for Triton to compile; define it in a file")
    lines = [line for statement in definition.body for line in ast.unparse(_Powers().visit(statement)).splitlines()]
    used = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    constants = {name: _constant(value) for name, value in used.items() if isinstance(value, np.generic | bool)}
    namespace = {**function.__globals__, **constants, "tl": tl, "raised": _raised}
    return triton.jit(define(function.__name__, [a.arg for a in definition.args.args], lines, namespace))


def _constant(value: np.generic | bool) -> Any:
    number = value if isinstance(value, bool) else value.item()
    # The interpreter computes with numbers as they are.
    return number if triton.knobs.runtime.interpret else tl.constexpr(number)


def _word(call: str, expression: str) -> Any:
    name, arguments = call.removesuffix(")").split("(")
    namespace = {"tl": tl, "libdevice": libdevice}
    return triton.jit(define(name, arguments.split(", "), [f"return {expression}"], namespace))


def _interpreted(word: str) -> Any:
    """Returns NumPy's word for Triton's interpreter, which has no libdevice, and whose tensors hold NumPy's arrays."""
    from triton.runtime.interpreter import TensorHandle

    def call(*operands: Any) -> Any:
        tensors = [operand for operand in operands if isinstance(operand, tl.tensor)]
        dtype = tensors[0].dtype.scalar if tensors else tl.float32
        arrays = [o.handle.data if isinstance(o, tl.tensor) else np.float32(o) for o in operands]
        found = np.asarray(NUMPY[word](*arrays))
        is_block = any(tensor.type.is_block() for tensor in tensors)
        return tl.tensor(TensorHandle(found, dtype), tl.block_type(dtype, list(found.shape)) if is_block else dtype)

    return call


TRITON: dict[str, Any] = {word: value for word, value in NUMPY.items() if isinstance(value, np.float32)}
TRITON |= {call.split("(")[0]: _word(call, expression) for call, expression in _WORDS.items()}
if triton.knobs.runtime.interpret:
    of_libdevice = [call.split("(")[0] for call, expression in _WORDS.items() if "libdevice" in expression]
    TRITON |= {word: _interpreted(word) for word in of_libdevice}
TRITON["power"] = _compile(rebind(vocabulary.power, TRITON))


def triton_update(optimizer: Optimizer) -> Callable[..., None]:
    """Returns `update(w, g, settings, *slots)`, which updates `w` and the slots in place, on their GPU.

    w, g and slots are contiguous float32 torch tensors, [rows, D], or [rows, 1] for slots of one number a row;
    `settings` are those of `compose.settings_of`. Optimizers that differ only in settings share the compiled kernel.

    Raises: ConfigError when the rule's source is not to be had.
    """
    kernel = triton_kernel(optimizer)

    def update(w: Any, g: Any, settings: Any, *slots: Any) -> None:
        if not all(tensor.is_contiguous() for tensor in (w, g, *slots)):
            raise InputError(f"optimizer {optimizer.wire_name}: w, g and slots must be contiguous")
        rows, dimension = w.shape
        columns = triton.next_power_of_2(dimension)
        tile_rows = max(1, _TILE // columns)
        grid = (triton.cdiv(rows, tile_rows),)
        # No multiplication and addition with one rounding: the result is the other backends'.
        kernel[grid](w, g, *slots, *map(float, settings), rows, dimension, tile_rows, columns, enable_fp_fusion=False)

    return update


def triton_kernel(optimizer: Optimizer) -> Any:
    """Returns the kernel of `triton_update`, `(addresses of w, g and slots, settings, sizes)`; see its `arg_names`."""
    return _kernel(structure_of(optimizer))


@cache
def _kernel(structure: Optimizer) -> Any:
    slots = [f"slot_{k}" for k in range(len(structure.slots))]
    state = ["w", *slots]
    settings = [f"setting_{k}" for k in range(FIRST_HYPER_PARAMETER + len(structure.variables()))]
    per_row = {f"slot_{k}" for k, slot in enumerate(structure.slots) if slot.per_row}
    place = {name: "row" if name in per_row else "element" for name in (*state, "g")}
    lines = [
        "row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)",
        "column = tl.arange(0, COLUMNS)[None, :]",
        "element = row * dimension + column",
        "is_row = row < rows",
        "is_element = is_row & (column < dimension)",
        *(f"{name} = tl.load({name}_address + {place[name]}, is_{place[name]})" for name in (*state, "g")),
        # The interpreter passes numbers as Python's.
        f"settings = ({', '.join(f'tl.cast({setting}, tl.float32)' for setting in settings)})",
    ]
    arguments = ["w", "g", "settings", *slots]
    if MEAN_SQUARE in structure.rule_arguments:
        lines += clip_gradient(structure)
        lines += [f"{MEAN_SQUARE} = tl.sum(tl.where(is_element, g * g, 0.0), 1, keep_dims=True) / dimension"]
        arguments += [MEAN_SQUARE]
    lines += [f"{', '.join(state)}, = step({', '.join(arguments)})"]
    lines += [f"tl.store({name}_address + {place[name]}, {name}, is_{place[name]})" for name in state]
    addresses = [f"{name}_address" for name in ("w", "g", *slots)]
    sizes = ["rows", "dimension", "ROWS: tl.constexpr", "COLUMNS: tl.constexpr"]
    namespace = {**TRITON, "tl": tl, "step": compose(structure, TRITON, _compile)}
    return triton.jit(define("kernel", [*addresses, *settings, *sizes], lines, namespace))
