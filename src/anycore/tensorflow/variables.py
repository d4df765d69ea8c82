"""Values of the resource variables that a kernel has as inputs.

The C API for kernels does not reach a variable. The one for eager operations does, given a handle that refers to it,
as in eager mode and in a tf.function. The handles in a session are names, which mean nothing outside of it.

Source: tensorflow/c/eager/c_api.h, TensorFlow 2.21.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.eager.context import context as eager_context

from anycore.errors import InputError
from anycore.tensorflow.c_api import C, Status, bound, libraries, resource_handle
from anycore.tensorflow.tensors import TensorType, get_input

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]

_UNNAMED = "Anonymous"
"""The container in handles that refer to their resource. Source: tensorflow/core/framework/resource_handle.cc."""

_VARIABLE = ("N10tensorflow3VarE", "tensorflow::Var")
"""What compilers call the type of a variable."""

_INT32 = TensorType(tf.int32.as_datatype_enum)

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


def read_variable(context: int, index: int, kind: TensorType, tensors: list[int], status: Status) -> Any:
    """Returns a variable's value as `kind.read` does, until what is added to `tensors` is deleted.

    Raises: tf.errors.OpError, as `tf.raw_ops.ReadVariableOp` does; InputError for a resource that is no variable;
    NotImplementedError in a session.
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
    return kind.read(tensors[-1])


def assign_variable(context: int, index: int, kind: TensorType, value: NDArray[Any], status: Status) -> None:
    """Gives a variable a copy of a value.

    Raises: tf.errors.OpError, as `tf.raw_ops.AssignVariableOp` does; else as `read_variable` does.
    """
    _check_handle(context, index, status)
    copied = _copy_of_strings if kind.is_string else _copy
    with copied(value, kind, status) as copy, _handle(get_input(context, index, status), status) as variable:
        _execute(b"AssignVariableOp", kind, [variable, copy], None, status)


def _check_handle(context: int, index: int, status: Status) -> None:
    handle = resource_handle(context, index, status)
    if handle.maybe_type_name not in _VARIABLE:
        kind = _readable(handle.maybe_type_name)
        raise InputError(f"resource must be the handle of a variable, got {handle.name!r} of type {kind}")
    if handle.container != _UNNAMED:
        raise NotImplementedError(
            f"variable {handle.name!r}: a session keeps its variables for itself; use ReadVariableOp and XlaSplitND, "
            "or XlaConcatND and AssignVariableOp, in its graph"
        )


def _readable(type_name: str) -> str:
    """Returns the name of a C++ type, N10tensorflow3VarE or tensorflow::Var, in the second form."""
    parts, rest = [], type_name.removeprefix("N")
    while match := re.match(r"\d+", rest):
        start = match.end()
        end = start + int(match[0])
        parts.append(rest[start:end])
        rest = rest[end:]
    return "::".join(parts) or type_name


def _copy(value: NDArray[Any], kind: TensorType, status: Status) -> AbstractContextManager[int]:
    """Returns an eager tensor with a copy of the value, for the time of a with block."""
    sizes = (c_int64 * value.ndim)(*value.shape)
    tensor = _E.TF_AllocateTensor(kind.number, sizes, value.ndim, value.nbytes)
    kind.write(tensor, value)
    return _handle(tensor, status)


@contextmanager
def _copy_of_strings(value: NDArray[Any], kind: TensorType, status: Status) -> Iterator[Any]:
    # Memory for strings has to be made, and destroyed, by TensorFlow itself.
    result = c_void_p()
    with _copy(np.array(value.shape, np.int32), _INT32, status) as shape:
        _execute(b"Empty", kind, [shape], result, status)
    try:
        tensor = _E.TFE_TensorHandleResolve(result, status.pointer)
        status.check()
        try:
            kind.write(tensor, value)
        finally:
            C.TF_DeleteTensor(tensor)
        yield result
    finally:
        _E.TFE_DeleteTensorHandle(result)


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
