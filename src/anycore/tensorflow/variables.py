"""Values of the resource variables that a kernel has as inputs.

The C API for kernels does not reach a variable. The one for eager operations does, given a handle that refers to it,
as in eager mode and in a tf.function. The handles in a session are names, which mean nothing outside of it.

Source: tensorflow/c/eager/c_api.h, TensorFlow 2.21.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.eager.context import context as eager_context

from anycore.tensorflow.c_api import C, Status, bound, libraries, resource_handle
from anycore.tensorflow.tensors import TensorType, get_input

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]

_UNNAMED = "Anonymous"
"""The container in handles that refer to their resource. Source: tensorflow/core/framework/resource_handle.cc."""

# CDLL gives up the interpreter's lock: what these functions start may need it.
_E = bound(
    {
        "TFE_DeleteOp": (None, [c_void_p]),
        "TFE_DeleteTensorHandle": (None, [c_void_p]),
        "TFE_Execute": (None, [c_void_p, POINTER(c_void_p), POINTER(c_int), c_void_p]),
        "TFE_NewOp": (c_void_p, [c_void_p, c_char_p, c_void_p]),
        "TFE_NewTensorHandle": (c_void_p, [c_void_p, c_void_p]),
        "TFE_OpAddInput": (None, [c_void_p, c_void_p, c_void_p]),
        "TFE_OpSetAttrType": (None, [c_void_p, c_char_p, c_int]),
        "TFE_TensorHandleResolve": (c_void_p, [c_void_p, c_void_p]),
        "TF_AllocateTensor": (c_void_p, [c_int, POINTER(c_int64), c_int, c_size_t]),
    },
    libraries(ctypes.CDLL),
    tf.__version__,
)


def read_variable(context: int, index: int, kind: TensorType, tensors: list[int], status: Status) -> NDArray[Any]:
    """Returns a view of a variable's value, which holds until what is added to `tensors` is deleted.

    Raises: tf.errors.OpError, as `tf.raw_ops.ReadVariableOp` does; NotImplementedError in a session.
    """
    _check_handle(context, index, status)
    with _handle(get_input(context, index, status), status) as variable:
        result = c_void_p()
        _execute(b"ReadVariableOp", kind, [variable], result, status)
    try:
        tensors.append(_E.TFE_TensorHandleResolve(result, status.pointer))
        status.check()
    finally:
        _E.TFE_DeleteTensorHandle(result)
    return kind.array(tensors[-1])


def assign_variable(context: int, index: int, kind: TensorType, value: NDArray[Any], status: Status) -> None:
    """Gives a variable a copy of a value.

    Raises: tf.errors.OpError, as `tf.raw_ops.AssignVariableOp` does; NotImplementedError in a session.
    """
    _check_handle(context, index, status)
    sizes = (c_int64 * value.ndim)(*value.shape)
    tensor = _E.TF_AllocateTensor(kind.number, sizes, value.ndim, value.nbytes)
    kind.array(tensor, writeable=True)[...] = value
    with _handle(tensor, status) as copy, _handle(get_input(context, index, status), status) as variable:
        _execute(b"AssignVariableOp", kind, [variable, copy], None, status)


def _check_handle(context: int, index: int, status: Status) -> None:
    handle = resource_handle(context, index, status)
    if handle.container != _UNNAMED:
        raise NotImplementedError(
            f"variable {handle.name!r}: a session keeps its variables for itself; use ReadVariableOp and XlaSplitND, "
            "or XlaConcatND and AssignVariableOp, in its graph"
        )


@contextmanager
def _handle(tensor: int, status: Status) -> Iterator[int]:
    """Yields an eager tensor with the memory of a tensor, and deletes both."""
    try:
        handle = _E.TFE_NewTensorHandle(tensor, status.pointer)
        status.check()
    finally:
        C.TF_DeleteTensor(tensor)
    try:
        yield handle
    finally:
        _E.TFE_DeleteTensorHandle(handle)


def _execute(name: bytes, kind: TensorType, inputs: list[int], result: c_void_p | None, status: Status) -> None:
    eager_context().ensure_initialized()
    operation = _E.TFE_NewOp(_capsule_pointer(eager_context()._handle, None), name, status.pointer)
    status.check()
    try:
        _E.TFE_OpSetAttrType(operation, b"dtype", kind.number)
        for handle in inputs:
            _E.TFE_OpAddInput(operation, handle, status.pointer)
            status.check()
        _E.TFE_Execute(operation, result, c_int(0 if result is None else 1), status.pointer)
        status.check()
    finally:
        _E.TFE_DeleteOp(operation)
