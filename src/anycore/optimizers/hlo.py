"""An element-wise XLA program as a rule: its instructions become lines of Python in the words of `vocabulary`.

Computations that are called are written out in place. No number stands in the source: numbers are arguments of the
rule, which the optimizer compiles in as it does an exponent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from anycore.errors import ConfigError
from anycore.optimizers.hlo_opcodes import REFUSED
from anycore.optimizers.hlo_operations import IDENTITIES, INLINED, OPCODES, OPERATIONS
from anycore.optimizers.hlo_source import Source, Value
from anycore.optimizers.hlo_types import BF16, ELEMENT_TYPES, F16, F32, S8, S16, U8, U16, ElementType, Number
from anycore.proto import HloModuleProto

_MOST_SLOTS = 7
_SHAPES = ((), (1,), (1, 1))
_PACKED = {S8: "i1", U8: "u1", S16: "<i2", U16: "<u2", F16: "<f2", BF16: "<u2"}
"""Types whose literals are bytes, and how; a bf16 is the first half of an f32."""
_NAMES = HloModuleProto.DESCRIPTOR.file.enum_types_by_name["PrimitiveType"].values_by_number


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
    results, or does what is not element-wise on one element.
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
    inputs = [Value(F32, name) for name in ("g", "w", *slots, "lr")]
    source = Source()
    result = _Translation(computations, source).run(entry, inputs[:num_inputs])
    outputs = result if isinstance(result, tuple) else (result,)
    if len(outputs) != 1 + num_slots:
        raise _refusal(f"its result has {1 + num_slots} outputs by its shape, and {len(outputs)} in fact")
    for k, output in enumerate(outputs):
        if not isinstance(output, Value) or output.element_type != F32:
            raise _refusal(f"output {k} of the program must be f32")
    rule = source.function("user_defined_program", ["w", "g", "lr", *slots], outputs)
    return Program(rule, num_slots, source.constants)


_Result = Value | tuple[Any, ...]


class _Translation:
    """Writes computations to a source."""

    def __init__(self, computations: Mapping[int, Any], source: Source) -> None:
        self._computations = computations
        self._source = source
        self._running: set[int] = set()

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
            reason = REFUSED.get(opcode, "it is none of XLA's")
            raise _refusal(f"{where}: opcode {opcode!r} is not supported, {reason}; use element-wise operations alone")
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
            return Value(element_type, number=_number(instruction.literal, element_type, where))
        return self._compute(instruction, operands, element_type, where)

    def _compute(self, instruction: Any, operands: list[Any], element_type: ElementType, where: str) -> Value:
        name = _operation_name(instruction)
        operand_types = [operand.element_type if isinstance(operand, Value) else "tuple" for operand in operands]
        operation = OPERATIONS.get((name, *operand_types, element_type))
        if operation is None:
            types = ", ".join(map(str, operand_types))
            raise _refusal(f"{where}: {name} of ({types}) to {element_type} is not supported")
        if name != "reduce-precision":
            return operation(self._source, element_type, *operands)
        sizes = {"exponent_bits": instruction.exponent_bits, "mantissa_bits": instruction.mantissa_bits}
        if sizes["exponent_bits"] < 1 or sizes["mantissa_bits"] < 0:
            raise _refusal(
                f"{where}: a float has at least one exponent bit and no fewer than 0 of mantissa, got {sizes}"
            )
        return operation(self._source, element_type, *operands, **sizes)


def _operation_name(instruction: Any) -> str:
    """Returns the name that an instruction has in OPERATIONS."""
    if instruction.opcode == "compare":
        order = " in total order" if instruction.comparison_type == "TOTALORDER" else ""
        return f"compare {instruction.comparison_direction}{order}"
    return str(instruction.opcode)


def _number(literal: Any, element_type: ElementType, where: str) -> Number:
    """Returns the one number of a constant."""
    elements = getattr(literal, f"{element_type}s")
    if element_type in _PACKED:
        dtype = np.dtype(_PACKED[element_type])
        elements = np.frombuffer(elements[: len(elements) // dtype.itemsize * dtype.itemsize], dtype)
        if element_type == BF16:
            elements = (elements.astype(np.uint32) << 16).view(np.float32)
    if len(elements) != 1:
        raise _refusal(f"{where}: its literal must hold one {element_type}, got {len(elements)}")
    return element_type.number(elements[0])


def _num_outputs(entry: Any) -> int:
    instructions = {instruction.id: instruction for instruction in entry.instructions}
    shape = _found(instructions, entry.root_id, f"computation {entry.name!r} has no root").shape
    return len(shape.tuple_shapes) if _type_name(shape) == "TUPLE" else 1


def _type_name(shape: Any) -> str:
    known = _NAMES.get(shape.element_type)
    return known.name if known else str(shape.element_type)


def _element_type(shape: Any, where: str) -> ElementType:
    """Returns an element type. Raises: ConfigError for another type, or when there may be more than one element."""
    name = _type_name(shape)
    dimensions = tuple(shape.dimensions)
    if name not in ELEMENT_TYPES or dimensions not in _SHAPES or any(shape.is_dynamic_dimension):
        raise _refusal(
            f"{where}: shape {name.lower()}{list(dimensions)} is not supported, use f32 (inside also "
            f"{', '.join(str(other) for other in ELEMENT_TYPES.values() if other != F32)}) of one element: [1, 1], [1] "
            "or []"
        )
    return ELEMENT_TYPES[name]


def _found(mapping: Mapping[Any, Any], key: Any, problem: str) -> Any:
    if key not in mapping:
        raise _refusal(f"{problem} {key}")
    return mapping[key]


def _refusal(problem: str) -> ConfigError:
    return ConfigError(f"optimizer user_defined_program: {problem} (OptimizationParameters.user_defined_program)")
