"""XLA programs written as XLA prints them, as serialized messages; only what element-wise programs need."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from anycore.proto import HloModuleProto

_TYPES = HloModuleProto.DESCRIPTOR.file.enum_types_by_name["PrimitiveType"].values_by_name
_COMPUTATION = re.compile(r"^ *(?:ENTRY )?(\w+) \{\n(.*?)^ *\}", re.MULTILINE | re.DOTALL)
_INSTRUCTION = re.compile(r"^ *(ROOT )?(\w+) = (\(.*?\)|\S+) ([\w-]+)\((.*?)\)(.*)$", re.MULTILINE)
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
_ATTRIBUTE = re.compile(r"(\w+)=(\w+)")
_READ: dict[str, Any] = {"f": float, "b": float, "s": int, "u": int, "p": lambda text: text == "true"}
_PACKED = {"s8": "i1", "u8": "u1", "s16": "<i2", "u16": "<u2", "f16": "<f2"}


def module(text: str) -> bytes:
    """Returns a serialized `HloModuleProto` of computations `name { … }`, called ones first, the entry last.

    An instruction is a line `name = f32[1,1] opcode(operands), attribute=value`, and the last one is the root unless
    another is marked ROOT.
    """
    message = HloModuleProto(name="module")
    computations: dict[str, int] = {}
    for name, body in _COMPUTATION.findall(text):
        computation = message.computations.add(name=name, id=len(computations) + 1)
        ids: dict[str, int] = {}
        roots = []
        for root, *parts in _INSTRUCTION.findall(body):
            _add(computation.instructions.add(id=100 * computation.id + len(ids)), parts, ids, computations)
            ids[parts[0]] = computation.instructions[-1].id
            roots += [parts[0]] * bool(root)
        computation.root_id = ids[next(iter(roots), parts[0])]
        computations[name] = message.entry_computation_id = computation.id
    return message.SerializeToString()


def program(body: str, before: str = "") -> bytes:
    """Returns a program of gradient g and weight w whose other instructions are `body`."""
    inputs = "g = f32[1,1] parameter(0)\n w = f32[1,1] parameter(1)\n"
    return module(f"{before}ENTRY main {{\n{inputs}{body}\n}}")


def _add(instruction: Any, parts: list[str], ids: dict[str, int], computations: dict[str, int]) -> None:
    name, shape, opcode, inside, attributes = parts
    instruction.name, instruction.opcode = name, opcode
    _set_shape(instruction.shape, shape)
    if opcode == "parameter":
        instruction.parameter_number = int(inside)
    elif opcode == "constant":
        _set_literal(instruction.literal, shape.partition("[")[0], inside)
    else:
        instruction.operand_ids.extend(ids[operand] for operand in inside.split(", ") if operand)
    for key, value in _ATTRIBUTE.findall(attributes):
        if key == "index":
            instruction.tuple_index = int(value)
        elif key == "direction":
            instruction.comparison_direction = value
        elif key in ("exponent_bits", "mantissa_bits"):
            setattr(instruction, key, int(value))
        elif key == "type":
            instruction.comparison_type = value
        elif key in ("calls", "to_apply"):
            instruction.called_computation_ids.append(computations[value])


def _set_literal(literal: Any, element_type: str, text: str) -> None:
    number = _READ[element_type[0]](text)
    if element_type in _PACKED:
        setattr(literal, f"{element_type}s", np.array(number, _PACKED[element_type]).tobytes())
    elif element_type == "bf16":
        literal.bf16s = np.array(number, "<f4").tobytes()[2:]
    else:
        getattr(literal, f"{element_type}s").append(number)


def _set_shape(shape: Any, text: str) -> None:
    if text.startswith("("):
        shape.element_type = _TYPES["TUPLE"].number
        for part in _SHAPE.finditer(text):
            _set_shape(shape.tuple_shapes.add(), part.group())
    else:
        element_type, dimensions = _SHAPE.fullmatch(text).groups()  # type: ignore[union-attr]
        shape.element_type = _TYPES[element_type.upper()].number
        shape.dimensions.extend(int(size) for size in dimensions.split(",") if size)
