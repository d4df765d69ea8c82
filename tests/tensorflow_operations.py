"""TensorFlow's operations called by name, in each of the ways in which TensorFlow runs one."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import op_def_library, op_def_registry
from tensorflow_scenarios import Scenario

from anycore import ops
from anycore.tensorflow.nodes import snake_case


def call(name: str, **arguments: Any) -> Any:
    """Calls an operation, also one for which TensorFlow has no function in Python."""
    if hasattr(tf.raw_ops, name):
        return getattr(tf.raw_ops, name)(**arguments)
    if not tf.executing_eagerly():
        return op_def_library.apply_op(name, **arguments)
    return _execute(op_def_registry.get(name), arguments)


def _execute(definition: Any, arguments: dict[str, Any]) -> Any:
    attributes = {each.name: arguments.get(each.name, _default(each)) for each in definition.attr}
    tensors: list[tf.Tensor] = []
    for port in definition.input_arg:
        given = arguments[port.name] if port.number_attr else [arguments[port.name]]
        tensors += [tf.convert_to_tensor(value, tf.as_dtype(port.type) if port.type else None) for value in given]
        if port.number_attr:
            attributes[port.number_attr] = len(given)
        if port.type_attr:
            attributes[port.type_attr] = tensors[-1].dtype.as_datatype_enum
    lengths = [attributes[port.number_attr] if port.number_attr else 1 for port in definition.output_arg]
    flat = tuple(item for pair in attributes.items() for item in pair)
    context.ensure_initialized()
    outputs = execute.execute(definition.name.encode(), sum(lengths), tensors, flat, context.context())
    results = [
        [outputs.pop(0) for _ in range(length)] if port.number_attr else outputs.pop(0)
        for port, length in zip(definition.output_arg, lengths, strict=True)
    ]
    return results[0] if len(results) == 1 else tuple(results)


def _default(attribute: Any) -> Any:
    kind = attribute.default_value.WhichOneof("value")
    return getattr(attribute.default_value, kind) if kind else None


def call_function(name: str, **arguments: Any) -> Any:
    """Calls the function of anycore.ops, with which all ways must agree."""
    return getattr(ops, snake_case(name))(**{_parameter(key): value for key, value in arguments.items()})


def _parameter(name: str) -> str:
    return name if len(name) == 1 else snake_case(name)


def eagerly(scenario: Scenario) -> list[Any]:
    """Runs a scenario operation by operation."""
    return arrays(scenario(call))


def in_function(scenario: Scenario) -> list[Any]:
    """Runs a scenario in one tf.function, which keeps the order of the calls."""
    return arrays(tf.function(lambda: scenario(call))())


def in_session(scenario: Scenario) -> list[Any]:
    """Runs a scenario in one graph of TensorFlow 1, with control dependencies that keep the order of the calls."""
    with tf.Graph().as_default() as graph:
        last: list[tf.Operation] = []

        def call_in_order(name: str, **arguments: Any) -> Any:
            with tf.control_dependencies(last):
                result = call(name, **arguments)
            last[:] = [graph.get_operations()[-1]]
            return result

        outputs = scenario(call_in_order)
        with tf.compat.v1.Session(graph=graph) as session:
            return arrays(session.run([outputs, last])[0])


WAYS = [eagerly, in_function, in_session]


def arrays(values: Any) -> list[Any]:
    """Returns a nest of tensors as flat NumPy values."""
    return [value.numpy() if isinstance(value, tf.Tensor) else value for value in tf.nest.flatten(values)]
