"""An element-wise XLA program as a rule: its instructions become lines of Python in the words of `vocabulary`.

Computations that are called are written out in place. No number stands in the source: numbers are arguments of the
rule, which the optimizer compiles in as it does an exponent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from anycore.errors import ConfigError
from anycore.optimizers.backends import NUMPY
from anycore.optimizers.hlo_operations import (
    F32,
    IDENTITIES,
    INLINED,
    OPCODES,
    OPERATIONS,
    POWER_OF_A_NUMBER,
    PRED,
    S32,
    SAME,
    TUPLE,
)
from anycore.optimizers.source import define
from anycore.proto import HloModuleProto

Number = np.float32 | bool

_MOST_SLOTS = 7
_SHAPES = ((), (1,), (1, 1))
_LITERALS = {F32: "f32s", S32: "s32s", PRED: "preds"}
_ELEMENT_TYPES = HloModuleProto.DESCRIPTOR.file.enum_types_by_name["PrimitiveType"].values_by_number


@dataclass(frozen=True, eq=False)
class Program:
    """A translated program: its rule `(w, g, lr, *slots, *constants)`, and the constants by argument name."""

    rule: Callable[..., Any]
    num_slots: int
    constants: dict[str, Number]


def parse(program: bytes) -> Any:
    """Returns the `HloModuleProto` message. Raises: ConfigError when `program` is not the bytes of one."""
    try:
        return HloModuleProto.FromString(program)
    except (DecodeError, TypeError) as error:
        raise _refusal(f"program must be a serialized xla.HloModuleProto: {error}") from error


@cache
def translate(program: bytes) -> Program:
    """Returns the rule that computes a serialized `HloModuleProto`; equal bytes give the same object.

    The program's arguments are gradient, weight, slots and, if it takes one, the learning rate; its results are weight
    and slots.

    Raises: ConfigError that names the instruction when the program is malformed, has wrong numbers of arguments or
    results, or does what is not element-wise on f32 of one element.
    Source: `UserDefinedProgramParameters`, optimization_parameters.proto; hlo.proto, TensorFlow 2.21.
    """
    module = parse(program)
    computations = {computation.id: computation for computation in module.computations}
    entry = _found(computations, module.entry_computation_id, "the program has no entry computation")
    num_inputs = sum(instruction.opcode == "parameter" for instruction in entry.instructions)
    num_slots = _num_outputs(entry) - 1
    if num_inputs < 2 or num_slots < 0 or num_inputs - num_slots not in (2, 3):
        raise _refusal(
            "User-defined TPU embedding optimizer program must have at least two inputs, gradients and weights, and "
            "one output fewer than inputs, or two fewer if the last input is the learning rate, "
            f"got {num_inputs} inputs and {num_slots + 1} outputs"
        )
    if num_slots > _MOST_SLOTS:
        raise _refusal(f"program must have at most {_MOST_SLOTS} slots, got {num_slots}")
    slots = [f"slot_{k}" for k in range(num_slots)]
    inputs = [_Value(F32, name) for name in ("g", "w", *slots, "lr")]
    source = _Source(computations)
    result = source.run(entry, inputs[:num_inputs])
    outputs = result if isinstance(result, tuple) else (result,)
    if len(outputs) != 1 + num_slots:
        raise _refusal(f"its result has {1 + num_slots} outputs by its shape, and {len(outputs)} in fact")
    return Program(source.function(["w", "g", "lr", *slots], outputs), num_slots, source.constants)


@dataclass(frozen=True)
class _Value:
    """What an instruction computes: a name in the source, or a number that is known already."""

    element_type: str
    name: str = ""
    number: Number | None = None


_Result = _Value | tuple[Any, ...]
_S32_LIMITS = [_Value(F32, number=np.float32(limit)) for limit in (-(2**31), 2**31)]


class _Source:
    """Lines of a function, and the numbers that it takes as arguments."""

    def __init__(self, computations: Mapping[int, Any]) -> None:
        self.constants: dict[str, Number] = {}
        self._names: dict[bytes, str] = {}
        self._lines: list[str] = []
        self._computations = computations
        self._running: set[int] = set()

    def function(self, arguments: Sequence[str], results: Sequence[_Result]) -> Callable[..., Any]:
        """Returns the function of all that was written, `(*arguments, *constants) -> results`."""
        texts = []
        for k, result in enumerate(results):
            if not isinstance(result, _Value) or result.element_type != F32:
                raise _refusal(f"output {k} of the program must be f32")
            texts.append(self._text(result))
        lines = [*self._lines, f"return {', '.join(texts)},"]
        return define("user_defined_program", [*arguments, *self.constants], lines, dict(NUMPY))

    def run(self, computation: Any, arguments: Sequence[_Result]) -> _Result:
        """Writes the instructions of a computation and returns its result."""
        if computation.id in self._running:
            raise _refusal(f"computation {computation.name!r} calls itself")
        self._running.add(computation.id)
        results: dict[int, _Result] = {}
        for instruction in computation.instructions:
            where = f"instruction {instruction.name!r}"
            operands = [_found(results, i, f"{where} has no operand") for i in instruction.operand_ids]
            results[instruction.id] = self._run_one(instruction, operands, arguments, where)
        self._running.remove(computation.id)
        return _found(results, computation.root_id, f"computation {computation.name!r} has no root")

    def _run_one(self, instruction: Any, operands: list[Any], arguments: Sequence[_Result], where: str) -> _Result:
        opcode = instruction.opcode
        if opcode not in OPCODES:
            raise _refusal(f"{where}: opcode {opcode!r} is not supported, use element-wise operations of float32 alone")
        if opcode == "tuple":
            return tuple(operands)
        if opcode == "get-tuple-element":
            parts = dict(enumerate(operands[0])) if len(operands) == 1 and isinstance(operands[0], tuple) else {}
            return _found(parts, instruction.tuple_index, f"{where}: its operand has no element")
        if opcode in INLINED:
            called = next(iter(instruction.called_computation_ids), None)
            return self.run(_found(self._computations, called, f"{where} calls no computation"), operands)
        if opcode == "parameter":
            given = dict(enumerate(arguments))
            operands = [_found(given, instruction.parameter_number, f"{where}: there is no argument")]
        if opcode in IDENTITIES and len(operands) == 1 and isinstance(operands[0], tuple):
            return operands[0]
        element_type = _element_type(instruction.shape, where)
        if opcode == "constant":
            return _Value(element_type, number=_number(instruction.literal, element_type, where))
        return self._compute(_operation(instruction, where), operands, element_type, where)

    def _compute(self, operation: str, operands: list[Any], element_type: str, where: str) -> _Value:
        operand_types = [operand.element_type if isinstance(operand, _Value) else TUPLE for operand in operands]
        expression = OPERATIONS.get((operation, *operand_types, element_type))
        if expression is None:
            types = ", ".join(operand_types).lower()
            raise _refusal(f"{where}: {operation} of ({types}) to {element_type.lower()} is not supported")
        if expression == SAME:
            return replace(operands[0], element_type=element_type)
        if operation == "power" and operands[1].number is not None:
            expression = POWER_OF_A_NUMBER
        if operation == "convert" and (operand_types, element_type) == ([F32], S32):
            operands = [*operands, *_S32_LIMITS]
        if all(operand.number is not None for operand in operands):
            return _Value(element_type, number=_evaluated(expression, operands, element_type))
        name = f"v_{len(self._lines)}"
        self._lines.append(f"{name} = {expression.format(*map(self._text, operands))}")
        return _Value(element_type, name)

    def _text(self, value: _Value) -> str:
        if value.number is None:
            return value.name
        bits = np.asarray(value.number).tobytes()
        name = self._names.setdefault(bits, f"c_{len(self._names)}")
        self.constants[name] = value.number
        return name


def _operation(instruction: Any, where: str) -> str:
    """Returns the name that an instruction has in OPERATIONS."""
    if instruction.opcode == "compare":
        if instruction.comparison_type == "TOTALORDER":
            raise _refusal(f"{where}: a compare in total order is not supported, compare as FLOAT")
        return f"compare {instruction.comparison_direction}"
    return str(instruction.opcode)


def _evaluated(expression: str, operands: Sequence[_Value], element_type: str) -> Number:
    names = [f"operand_{k}" for k in range(len(operands))]
    numbers = {name: operand.number for name, operand in zip(names, operands, strict=True)}
    with np.errstate(all="ignore"):
        result = eval(expression.format(*names), {**NUMPY, **numbers})
    return bool(result) if element_type == PRED else np.float32(result)


def _number(literal: Any, element_type: str, where: str) -> Number:
    """Returns the one number of a constant, an s32 as the float32 of the same value."""
    numbers = getattr(literal, _LITERALS[element_type])
    if len(numbers) != 1:
        raise _refusal(f"{where}: its literal must hold one {element_type.lower()}, got {len(numbers)}")
    if element_type == PRED:
        return bool(numbers[0])
    if element_type == S32 and int(np.float32(numbers[0])) != numbers[0]:
        raise _refusal(f"{where}: {numbers[0]} is no float32, an s32 must be one")
    return np.float32(numbers[0])


def _num_outputs(entry: Any) -> int:
    instructions = {instruction.id: instruction for instruction in entry.instructions}
    shape = _found(instructions, entry.root_id, f"computation {entry.name!r} has no root").shape
    return len(shape.tuple_shapes) if _type_name(shape) == TUPLE else 1


def _type_name(shape: Any) -> str:
    known = _ELEMENT_TYPES.get(shape.element_type)
    return known.name if known else str(shape.element_type)


def _element_type(shape: Any, where: str) -> str:
    """Returns F32, S32 or PRED. Raises: ConfigError for another type, or when there may be more than one element."""
    name = _type_name(shape)
    dimensions = tuple(shape.dimensions)
    if name not in _LITERALS or dimensions not in _SHAPES or any(shape.is_dynamic_dimension):
        raise _refusal(
            f"{where}: shape {name.lower()}{list(dimensions)} is not supported, use f32 (inside also pred and s32) of "
            "one element: [1, 1], [1] or []"
        )
    return name


def _found(mapping: Mapping[Any, Any], key: Any, problem: str) -> Any:
    if key not in mapping:
        raise _refusal(f"{problem} {key}")
    return mapping[key]


def _refusal(problem: str) -> ConfigError:
    return ConfigError(f"optimizer user_defined_program: {problem} (OptimizationParameters.user_defined_program)")
