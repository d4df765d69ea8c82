"""What a node of a graph says: which function of anycore.ops it calls, and with what."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from anycore import ops
from anycore.tensorflow.c_api import operations
from anycore.tensorflow.tensors import TensorType

SETTINGS = ("seed", "num_threads", "timeout", "optimizers")
"""Arguments of `configure_tpu_embedding`, and of what calls it, for which operations have no attributes."""


class Operation:
    """An operation: its definition, and the function that does its work."""

    def __init__(self, definition: Any) -> None:
        self.definition = definition
        self.name: str = definition.name
        self.function: Callable[..., Any] = getattr(ops, snake_case(definition.name))
        self.parameters = inspect.signature(self.function).parameters
        takes_all = any(parameter.kind == parameter.VAR_KEYWORD for parameter in self.parameters.values())
        self.settings = [name for name in SETTINGS if takes_all or name in self.parameters]
        self.receives = "out" in self.parameters
        """Whether its outputs are the activations, and can be written where they shall be."""
        inferred = {
            name for port in definition.input_arg for name in (port.number_attr, port.type_attr, port.type_list_attr)
        }
        self._passed = [attribute.name for attribute in definition.attr if attribute.name not in inferred]

    def arguments(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the function's arguments that come from attributes: those that do not follow from the inputs."""
        return {
            name if name in self.parameters else snake_case(name): value
            for name, value in attributes.items()
            if name in self._passed
        }


class Port(NamedTuple):
    """An input or output of a node: one tensor, or (length is not None) a list of tensors."""

    name: str
    length: int | None
    type: TensorType
    """Of a variable, the type of its value."""
    is_variable: bool


class Node:
    """What all nodes of one operation and with equal attributes have in common.

    A variable is the first input of its operation: read if there are outputs, assigned if there are none.
    """

    def __init__(self, operation: Operation, attributes: Mapping[str, Any]) -> None:
        self.operation = operation
        self.arguments = operation.arguments(attributes)
        self.inputs = [_port(port, attributes) for port in operation.definition.input_arg]
        self.outputs = [_port(port, attributes) for port in operation.definition.output_arg]
        self.core_argument = None
        if "core" in operation.parameters:
            self.core_argument = "core"
        elif self.arguments.get("device_ordinal") == -1:
            self.core_argument = "device_ordinal"


def snake_case(name: str) -> str:
    """Returns an operation's or attribute's name as TensorFlow spells it in Python."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)).lower()


def known_operations() -> dict[str, Operation]:
    """Returns the operations that anycore.ops has functions for, by TensorFlow's names."""
    return {
        definition.name: Operation(definition)
        for definition in operations()
        if snake_case(definition.name) in ops.__all__
    }


def attributes_of(operation: Operation, node: Any) -> dict[str, Any]:
    """Returns the values of a node's attributes, with the defaults of those that it lacks."""
    return {
        attribute.name: _value(node.attr.get(attribute.name, attribute.default_value))
        for attribute in operation.definition.attr
    }


def _value(attribute: Any) -> Any:
    kind = attribute.WhichOneof("value")
    if kind != "list":
        return getattr(attribute, kind)
    return next((tuple(values) for _, values in attribute.list.ListFields()), ())


def _port(definition: Any, attributes: Mapping[str, Any]) -> Port:
    length = attributes[definition.number_attr] if definition.number_attr else None
    number = attributes[definition.type_attr] if definition.type_attr else definition.type
    is_variable = number == tf.resource.as_datatype_enum
    value = attributes["T"] if is_variable else number
    if value == tf.variant.as_datatype_enum != definition.type:
        raise NotImplementedError(
            f"{definition.name} cannot be of type variant here, use tensors of numbers or strings"
        )
    return Port(definition.name, length, TensorType(value), is_variable)
