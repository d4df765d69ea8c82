"""What nodes say: names, and the arguments that follow from a definition."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import tensorflow as tf

from anycore import ops
from anycore.tensorflow.nodes import Node, Operation, attributes_of, known_operations, snake_case

OPERATIONS = known_operations()


def node_of(name: str, **attributes: Any) -> Node:
    message = tf.compat.v1.NodeDef(op=name)
    for key, value in attributes.items():
        message.attr[key].CopyFrom(value)
    return Node(OPERATIONS[name], attributes_of(OPERATIONS[name], message))


def integer(value: int) -> Any:
    return tf.compat.v1.AttrValue(i=value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SendTPUEmbeddingGradients", "send_tpu_embedding_gradients"),
        ("FinalizeTPUEmbeddingV2", "finalize_tpu_embedding_v2"),
        ("XlaSplitND", "xla_split_nd"),
        ("LoadTPUEmbeddingCenteredRMSPropParameters", "load_tpu_embedding_centered_rms_prop_parameters"),
        ("NumTables", "num_tables"),
    ],
)
def test_names_are_spelled_as_in_python(name: str, expected: str) -> None:
    assert snake_case(name) == expected


def test_every_function_has_its_operation() -> None:
    assert sorted(snake_case(name) for name in OPERATIONS) == sorted(ops.__all__)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_a_definition_gives_the_arguments_of_the_function(operation: Operation) -> None:
    inputs = [port.name for port in operation.definition.input_arg]
    arguments = operation.arguments({attribute.name: None for attribute in operation.definition.attr})
    settings = {*operation.settings, "core", "out"}
    required = {
        parameter.name
        for parameter in operation.parameters.values()
        if parameter.kind != parameter.VAR_KEYWORD and parameter.name not in settings
    }
    assert {*inputs, *arguments} == required
    inspect.signature(operation.function).bind(**dict.fromkeys(inputs), **arguments)


def test_attributes_become_plain_values_and_have_defaults() -> None:
    name = "EnqueueTPUEmbeddingSparseTensorBatch"
    values = tf.compat.v1.AttrValue()
    values.list.i.extend([0, 0, 1])
    node = node_of(name, N=integer(3), table_ids=values, T1=tf.compat.v1.AttrValue(type=tf.int64.as_datatype_enum))
    assert node.arguments == {
        "device_ordinal": -1,
        "combiners": (),
        "table_ids": (0, 0, 1),
        "max_sequence_lengths": (),
        "num_features": (),
    }
    assert [(port.name, port.length) for port in node.inputs] == [
        ("sample_indices", 3),
        ("embedding_indices", 3),
        ("aggregation_weights", 3),
        ("mode_override", None),
    ]
    assert [port.type.number for port in node.inputs] == [9, 3, 1, 7]


@pytest.mark.parametrize(
    ("name", "attributes", "argument"),
    [
        ("EnqueueTPUEmbeddingIntegerBatch", {"N": integer(1)}, "device_ordinal"),
        ("EnqueueTPUEmbeddingIntegerBatch", {"N": integer(1), "device_ordinal": integer(1)}, None),
        ("RecvTPUEmbeddingActivations", {"num_outputs": integer(1), "config": tf.compat.v1.AttrValue(s=b"")}, "core"),
        ("ShutdownDistributedTPU", {}, None),
    ],
)
def test_the_device_is_the_core_unless_an_ordinal_is_given(
    name: str, attributes: dict[str, Any], argument: str | None
) -> None:
    assert node_of(name, **attributes).core_argument == argument


def test_a_variable_has_the_type_of_its_value() -> None:
    half = tf.compat.v1.AttrValue(type=tf.float16.as_datatype_enum)
    splits = tf.compat.v1.AttrValue()
    splits.list.i.append(2)
    node = node_of("ReadVariableXlaSplitND", T=half, N=integer(2), num_splits=splits)
    assert [(port.is_variable, port.type.number) for port in node.inputs] == [(True, 19)]
    assert node.arguments == {"T": 19, "N": 2, "num_splits": (2,), "paddings": ()}
