"""CPU kernels for TensorFlow's TPU embedding operations.

They are all the same: inputs and attributes become arguments of the function of anycore.ops that bears the operation's
name, and what it returns becomes the outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from ctypes import c_int64
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from anycore.ops.system import engine_of
from anycore.optimizers import Optimizer
from anycore.tensorflow.answers import Answer
from anycore.tensorflow.c_api import C, Status, node_of, register_kernel
from anycore.tensorflow.failures import status_of
from anycore.tensorflow.guard import guarded_compute, guarded_create
from anycore.tensorflow.nodes import SETTINGS, Node, Operation, attributes_of, known_operations, snake_case
from anycore.tensorflow.ordering import keep_order
from anycore.tensorflow.variables import assign_variable, read_variable

_lock = threading.Lock()
_operations: dict[str, Operation] = {}
_registered: set[str] = set()
_settings: dict[str, Any] = {}

# Kernels of nodes that say the same are the same. TensorFlow holds their numbers, so that none is ever forgotten.
_nodes: dict[int, Node] = {}
_numbers: dict[tuple[Any, ...], int] = {}


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def register_kernels(
    *,
    seed: int | None = None,
    num_threads: int | None = None,
    timeout: float | None = None,
    optimizers: Mapping[str, type[Optimizer]] | None = None,
) -> None:
    """Registers a CPU kernel for every operation of anycore.ops, once in a process.

    From then on they run in eager mode, in a tf.function, in sessions and in imported graphs. In a tf.function that is
    traced from then on they run in the order in which they stand, enqueue operations too. The arguments are those
    of `anycore.ops.configure_tpu_embedding` for which its operation has no attributes. They hold for every system that
    an operation configures from now on; one that is None stays as it is.

    Raises: ImportError when TensorFlow lacks something of its C API.
    """
    given = dict(zip(SETTINGS, (seed, num_threads, timeout, optimizers), strict=True))
    with _lock:
        _settings.update({name: value for name, value in given.items() if value is not None})
        if not _operations:
            _operations.update(known_operations())
        missing = _operations.keys() - _registered
        if missing:
            create, compute = guarded_create(_create), guarded_compute(_compute)
        for name in missing:
            register_kernel(name, create, compute)
            _registered.add(name)
        keep_order(_registered)


def _create(construction: int, kernel: int, state: int) -> None:
    answer = Answer(state)
    try:
        with answer:
            c_int64.from_address(kernel).value = _number_of(node_of(construction))
        answer.succeed()
    except BaseException as error:
        _fail(C.TF_OpKernelConstruction_Failure, construction, error)
        answer.fail(error)


def _number_of(message: Any) -> int:
    operation = _operations[message.op]
    attributes = attributes_of(operation, message)
    key = (message.op, *attributes.values())
    with _lock:
        if key not in _numbers:
            node = Node(operation, attributes)
            _numbers[key] = number = len(_nodes) + 1  # 0 is of a kernel that could not be made
            _nodes[number] = node
        return _numbers[key]


def _compute(number: int, context: int, state: int) -> None:
    answer = Answer(state)
    try:
        with answer:
            _run(number, context)
        answer.succeed()
    except BaseException as error:
        _fail(C.TF_OpKernelContext_Failure, context, error)
        answer.fail(error)


def _fail(function: Callable[[int, int], None], context: int, error: BaseException) -> None:
    with Status() as status:
        status.set(*status_of(error))
        function(context, status.pointer)


def _run(number: int, context: int) -> None:
    tensors: list[int] = []
    with Status() as status:
        try:
            _call(_nodes[number], context, tensors, status)
        finally:
            for tensor in tensors:
                C.TF_DeleteTensor(tensor)


def _call(node: Node, context: int, tensors: list[int], status: Status) -> None:
    """Reads the inputs, calls the function and writes what it returns. `tensors` gets what is to be deleted."""
    operation = node.operation
    arguments = node.arguments | _inputs(node, context, tensors, status)
    if node.core_argument is not None:
        arguments[node.core_argument] = C.TF_GetDeviceId(context)
    for name in operation.settings:
        if name in _settings:
            arguments[name] = _settings[name]
    out = None
    if operation.receives:
        out = arguments["out"] = _activations(node, context, status)
    returned = operation.function(**arguments)
    if out is None or returned is not out:
        _set_outputs(node, context, returned, status)


def _inputs(node: Node, context: int, tensors: list[int], status: Status) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    first = 0
    for name, length, kind, is_variable in node.inputs:
        end = first + (1 if length is None else length)
        if is_variable:
            values = [read_variable(context, first, kind, tensors, status) if node.outputs else None]
        else:
            values = [kind.input(context, index, tensors, status) for index in range(first, end)]
        arguments[name] = values[0] if length is None else values
        first = end
    return arguments


def _activations(node: Node, context: int, status: Status) -> list[NDArray[np.float32]] | None:
    """Returns TensorFlow's memory for the activations, or None for a count that the function will refuse."""
    (port,) = node.outputs
    activations = engine_of(node.arguments["config"], snake_case(node.operation.name)).activations
    if port.length != len(activations):
        return None
    return [port.type.new_output(context, index, a.shape, status) for index, a in enumerate(activations)]


def _set_outputs(node: Node, context: int, returned: Any, status: Status) -> None:
    if not node.outputs:
        if node.inputs and node.inputs[0].is_variable:
            assign_variable(context, 0, node.inputs[0].type, returned, status)
        return
    first = 0
    for port, values in zip(node.outputs, (returned,) if len(node.outputs) == 1 else returned, strict=True):
        indices = range(first, first + (1 if port.length is None else port.length))
        for index, value in zip(indices, (values,) if port.length is None else values, strict=True):
            port.type.set_output(context, index, value, status)
        first = indices.stop
