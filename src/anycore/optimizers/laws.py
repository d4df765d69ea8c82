"""The laws of a rule. One that keeps them runs on every backend, fused and in float32; each has a test of its own here.

- A plain function `(w, g, lr, *slots, *hyper_parameters) -> (w, *slots)`, its hyper-parameters by name.
- No numeric literal: one makes Numba compute all of the rule in float64.
- No name but the words of `vocabulary` and constants that are float32; no attribute, no function inside.
- As many results as parameters and slots, float32, element by element.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from anycore.errors import ConfigError
from anycore.optimizers import vocabulary
from anycore.optimizers.declarations import Slot

_ROWS, _COLUMNS = 2, 3


def check_rule(rule: Callable[..., Any], slots: Sequence[Slot], hyper_parameters: Mapping[str, Any]) -> None:
    """Raises ConfigError, which names the rule and what to do, unless the rule keeps the laws.

    `hyper_parameters` holds a value of each that the rule may ask for.
    """
    name = getattr(rule, "__name__", repr(rule))

    def refuse(problem: str) -> ConfigError:
        return ConfigError(f"rule {name!r} {problem}")

    if not isinstance(rule, FunctionType):
        raise refuse("must be a plain function")
    arguments = _arguments(rule, slots, hyper_parameters, refuse)
    _check_code(rule, refuse)
    _check_results(rule, slots, [hyper_parameters[argument] for argument in arguments], refuse)


def _arguments(
    rule: FunctionType, slots: Sequence[Slot], known: Mapping[str, Any], refuse: Callable[[str], ConfigError]
) -> list[str]:
    parameters = inspect.signature(rule).parameters.values()
    if any(p.kind is not p.POSITIONAL_OR_KEYWORD or p.default is not p.empty for p in parameters):
        raise refuse("must name all of its arguments, without * and without defaults")
    arguments = [p.name for p in parameters]
    if len(arguments) < 3 + len(slots):
        raise refuse(f"must take w, g, lr and {len(slots)} slots, got the arguments {', '.join(arguments)}")
    extra = arguments[3 + len(slots) :]
    for argument in extra:
        if argument not in known:
            raise refuse(f"has the argument {argument!r}, which is no hyper-parameter; there are {', '.join(known)}")
    return extra


def _check_code(rule: FunctionType, refuse: Callable[[str], ConfigError]) -> None:
    code = rule.__code__
    if code.co_freevars:
        raise refuse(f"uses {code.co_freevars[0]!r} of the function around it; make it a hyper-parameter")
    if any(isinstance(constant, CodeType) for constant in code.co_consts):
        raise refuse("must not hold another function")
    for used in code.co_names:
        value = rule.__globals__.get(used)
        if used in vocabulary.__all__ and value is not getattr(vocabulary, used):
            raise refuse(
                f"uses {used!r}, which here is not that of anycore.optimizers.vocabulary; import it from there"
            )
        if used not in vocabulary.__all__ and not isinstance(value, np.float32 | bool):
            raise refuse(
                f"uses {used!r}, which is neither a float32 constant nor a word of anycore.optimizers.vocabulary: "
                f"{', '.join(vocabulary.__all__)}"
            )
    for instruction in dis.get_instructions(code):
        if "JUMP" in instruction.opname or instruction.opname.startswith("FOR_"):
            raise refuse("must not branch or loop: every element takes the same way, choose with `where`")
        if instruction.opname.startswith("INPLACE_") or (
            instruction.opname == "BINARY_OP" and instruction.argrepr.endswith("=")
        ):
            raise refuse("must not change an argument in place, as += does: write a = a + b")
        if instruction.opname.startswith("LOAD_") and (numbers := _numbers(instruction.argval)):
            raise refuse(
                f"holds the number {numbers[0]!r}, which would make it compute in float64; make it a hyper-parameter, "
                "or use ZERO, ONE or TWO of anycore.optimizers.vocabulary"
            )


def _numbers(constant: Any) -> list[Any]:
    """Returns the numbers in a constant, also those in its tuples and sets."""
    if isinstance(constant, tuple | frozenset):
        return [number for item in constant for number in _numbers(item)]
    return [constant] if isinstance(constant, int | float | complex) else []


def _check_results(
    rule: FunctionType, slots: Sequence[Slot], values: Sequence[Any], refuse: Callable[[str], ConfigError]
) -> None:
    shapes = [(_ROWS, _COLUMNS), *((_ROWS, 1) if slot.per_row else (_ROWS, _COLUMNS) for slot in slots)]
    arrays = [np.full(shape, 0.5, np.float32) for shape in (shapes[0], *shapes)]
    with np.errstate(all="ignore"):
        try:
            results = rule(*arrays[:2], np.float32(0.5), *arrays[2:], *values)
        except Exception as error:
            raise refuse(f"fails on float32 arrays: {error}") from error
    if any((array != np.float32(0.5)).any() for array in arrays):
        raise refuse("must not change its arguments")
    if not isinstance(results, tuple) or len(results) != 1 + len(slots):
        got = f"{len(results)} results" if isinstance(results, tuple) else type(results).__name__
        raise refuse(f"must return a tuple of w and {len(slots)} slots, got {got}")
    for what, shape, result in zip(["w", *(slot.name for slot in slots)], shapes, results, strict=True):
        if np.asarray(result).dtype != np.float32:
            raise refuse(f"must return {what} as float32, got {np.asarray(result).dtype}")
        if np.broadcast_shapes(np.shape(result), shape) != shape:
            raise refuse(f"must return {what} of shape {list(shape)} for {_ROWS} rows, got {list(np.shape(result))}")
