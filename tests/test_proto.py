"""Our wire messages against TensorFlow's own."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2, topology_pb2, tpu_embedding_configuration_pb2

from anycore import proto
from anycore.proto.descriptors import FILES

ROOT = Path(__file__).resolve().parents[1]

SCALARS: dict[int, Any] = {
    FieldDescriptor.CPPTYPE_INT32: -(2**31),
    FieldDescriptor.CPPTYPE_INT64: -(2**63),
    FieldDescriptor.CPPTYPE_UINT32: 2**32 - 1,
    FieldDescriptor.CPPTYPE_UINT64: 2**64 - 1,
    FieldDescriptor.CPPTYPE_FLOAT: 1.5,
    FieldDescriptor.CPPTYPE_DOUBLE: 0.1,
    FieldDescriptor.CPPTYPE_BOOL: True,
}


def descend(descriptors: Iterable[Descriptor]) -> Iterator[Descriptor]:
    """Yields messages and the messages declared inside them, without the entries of maps."""
    for descriptor in descriptors:
        if not descriptor.GetOptions().map_entry:
            yield descriptor
            yield from descend(descriptor.nested_types)


def messages_of(*modules: Any) -> dict[str, Descriptor]:
    """Returns all messages of TensorFlow's modules by full name."""
    tops = itertools.chain.from_iterable(module.DESCRIPTOR.message_types_by_name.values() for module in modules)
    return {descriptor.full_name: descriptor for descriptor in descend(tops)}


TPU = messages_of(tpu_embedding_configuration_pb2, optimization_parameters_pb2, topology_pb2)
OTHER = messages_of(hlo_pb2, xla_data_pb2, tensor_pb2, tensor_shape_pb2)


def names(messages: Iterable[descriptor_pb2.DescriptorProto], scope: str) -> Iterator[str]:
    """Yields the full names of declared messages and of those inside them."""
    for message in messages:
        yield f"{scope}.{message.name}"
        yield from names(message.nested_type, f"{scope}.{message.name}")


OURS = {
    name
    for file in map(descriptor_pb2.FileDescriptorProto.FromString, FILES)
    for name in names(file.message_type, file.package)
}
SUBSETS = {name: descriptor for name, descriptor in OTHER.items() if name in OURS}


def is_repeated(field: FieldDescriptor) -> bool:
    return isinstance(field.default_value, list)


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def values_of(field: FieldDescriptor, depth: int) -> list[Any]:
    """Returns values to try in a field: every member of an enum, else one that no default equals."""
    if field.message_type:
        return [filled(field.message_type, depth)]
    if field.enum_type:
        return [value.number for value in field.enum_type.values if value.number]
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return [b"\x00\xff" if field.type == FieldDescriptor.TYPE_BYTES else "\0é"]
    return [SCALARS[field.cpp_type]]


def assign(message: Any, field: FieldDescriptor, value: Any) -> None:
    """Gives a field the value, twice if it is repeated."""
    if is_repeated(field):
        getattr(message, field.name).extend([value, value])
    elif field.message_type:
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


def filled(descriptor: Descriptor, depth: int) -> Any:
    """Returns a message with every field set (of a oneof, the last), messages in messages down to `depth`."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if not is_map(field) and (depth or not field.message_type):
            assign(message, field, values_of(field, depth - 1)[0])
    return message


def plain(message: Any, declared: Descriptor) -> Any:
    """Returns a message as nested lists and tuples of what is set in it, without fields that are not `declared`."""
    if not hasattr(message, "ListFields"):
        return message
    content = []
    for field, value in message.ListFields():
        if known := declared.fields_by_number.get(field.number):
            values = list(value) if is_repeated(field) else [value]
            content.append((field.name, [plain(item, known.message_type or declared) for item in values]))
    return content


def each_field(messages: dict[str, Descriptor]) -> list[Any]:
    """Returns a test parameter for every field of every message."""
    return [
        pytest.param(descriptor, field, id=f"{name}.{field.name}")
        for name, descriptor in messages.items()
        for field in descriptor.fields
        if not is_map(field)
    ]


def declaration(descriptor: Descriptor) -> tuple[Any, list[Any]]:
    """Returns what a message declares, fields by number and without JSON names, and the enums inside it."""
    message = descriptor_pb2.DescriptorProto()
    descriptor.CopyToProto(message)
    message.field.sort(key=lambda field: field.number)
    message.reserved_range.sort(key=lambda reserved: reserved.start)
    message.ClearField("nested_type")
    message.ClearField("enum_type")
    for field in message.field:
        field.ClearField("json_name")
    return message, [members(enum) for enum in descriptor.enum_types]


def members(descriptor: EnumDescriptor) -> tuple[str, dict[str, int]]:
    return descriptor.full_name, {value.name: value.number for value in descriptor.values}


def test_declarations_of_tensorflow_tpu_are_those_of_tensorflow() -> None:
    assert {name for name in OURS if name.startswith("tensorflow.tpu.")} == set(TPU)
    for name, theirs in TPU.items():
        assert declaration(proto.message_class(name).DESCRIPTOR) == declaration(theirs)


def test_other_declarations_are_a_part_of_tensorflows() -> None:
    assert {name for name in OURS if not name.startswith("tensorflow.tpu.")} == set(SUBSETS)
    for name, descriptor in SUBSETS.items():
        theirs = {field.number: field for field in declaration(descriptor)[0].field}
        for field in declaration(proto.message_class(name).DESCRIPTOR)[0].field:
            assert field == theirs[field.number]
    element_type = proto.message_class("xla.ShapeProto").DESCRIPTOR.fields_by_name["element_type"]
    assert members(element_type.enum_type) == members(xla_data_pb2.PrimitiveType.DESCRIPTOR)


@pytest.mark.parametrize(("descriptor", "field"), each_field(TPU))
def test_every_field_reads_the_same_and_comes_back(descriptor: Descriptor, field: FieldDescriptor) -> None:
    for value in values_of(field, depth=2):
        theirs = GetMessageClass(descriptor)()
        assign(theirs, field, value)
        ours = proto.message_class(descriptor.full_name).FromString(theirs.SerializeToString())
        assert [set_field.name for set_field, _ in ours.ListFields()] == [field.name]
        assert plain(ours, ours.DESCRIPTOR) == plain(theirs, ours.DESCRIPTOR)
        assert type(theirs).FromString(ours.SerializeToString()) == theirs


@pytest.mark.parametrize(("descriptor", "field"), each_field(SUBSETS))
def test_every_field_of_a_subset_comes_back_known_or_not(descriptor: Descriptor, field: FieldDescriptor) -> None:
    for value in values_of(field, depth=2):
        theirs = GetMessageClass(descriptor)()
        assign(theirs, field, value)
        ours = proto.message_class(descriptor.full_name).FromString(theirs.SerializeToString())
        assert len(ours.ListFields()) == (field.number in ours.DESCRIPTOR.fields_by_number)
        assert plain(ours, ours.DESCRIPTOR) == plain(theirs, ours.DESCRIPTOR)
        assert type(theirs).FromString(ours.SerializeToString()) == theirs


def test_a_full_configuration_comes_back() -> None:
    theirs = filled(TPU["tensorflow.tpu.TPUEmbeddingConfiguration"], depth=8)
    ours = proto.TPUEmbeddingConfiguration.FromString(theirs.SerializeToString())
    again = type(theirs).FromString(ours.SerializeToString())
    assert again == theirs
    assert again.SerializeToString(deterministic=True) == theirs.SerializeToString(deterministic=True)


@pytest.mark.parametrize("number", [8, 1000])
def test_unknown_fields_survive(number: int) -> None:
    """Number 8 is the layout of outputs that old TensorFlow versions wrote."""
    tag = number << 3 | 2
    unknown = bytes([tag & 0x7F | 0x80, tag >> 7] if tag > 0x7F else [tag]) + b"\x03abc"
    configuration = proto.TPUEmbeddingConfiguration.FromString(b"\x10\x02" + unknown)
    assert configuration.mode == configuration.TRAINING
    assert configuration.SerializeToString() == b"\x10\x02" + unknown


@pytest.mark.parametrize("packages", [("tensorflow", "anycore.proto"), ("anycore.proto", "tensorflow")])
def test_import_beside_tensorflow_in_either_order(packages: tuple[str, str]) -> None:
    program = "; ".join(
        [
            *(f"import {package}" for package in packages),
            "from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2 as theirs",
            "ours = anycore.proto.TPUEmbeddingConfiguration(num_hosts=3)",
            "assert theirs.TPUEmbeddingConfiguration.FromString(ours.SerializeToString()).num_hosts == 3",
        ]
    )
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": path})


def test_descriptors_are_the_texts_compiled_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import generate_protos

    assert (ROOT / "src/anycore/proto/descriptors.py").read_text(encoding="ascii") == generate_protos.render()
