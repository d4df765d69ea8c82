"""The memory of TensorFlow's tensors as NumPy arrays."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from anycore.tensorflow.c_api import C, Status

_STRING_BYTES = 24
"""Size of a `TF_TString`, an element of a string tensor. Source: tensorflow/core/platform/ctstring.h."""

_READ, _WRITE = 0x100, 0x200
_memory = ctypes.pythonapi.PyMemoryView_FromMemory
_memory.restype, _memory.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]


def get_input(context: int, index: int, status: Status) -> int:
    """Returns an input of a running kernel, to be deleted with `TF_DeleteTensor`."""
    tensor = ctypes.c_void_p()
    C.TF_GetInput(context, index, tensor, status.pointer)
    if tensor.value is None:
        status.check()
    return tensor.value  # type: ignore[return-value]


class TensorType:
    """A `TF_DataType`: how tensors of it are read and written."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._is_variant = number == tf.variant.as_datatype_enum
        self.is_string = number == tf.string.as_datatype_enum
        is_plain = not (self._is_variant or self.is_string)
        if number == tf.resource.as_datatype_enum:
            raise NotImplementedError("tensors of resources cannot be read here, use tensors of numbers")
        self._dtype = np.dtype(tf.as_dtype(number).as_numpy_dtype if is_plain else object)

    def read(self, tensor: int) -> Any:
        """Returns a tensor as a read-only view, which holds until the tensor is deleted.

        Strings are copied: a scalar to bytes, others to an array of bytes.
        """
        return _strings(tensor) if self.is_string else self._view(tensor, _shape(tensor), _READ)

    def write(self, tensor: int, value: Any) -> None:
        """Copies a value of the same shape to a tensor."""
        if self.is_string:
            _set_strings(tensor, value)
        else:
            self._view(tensor, _shape(tensor), _WRITE)[...] = value

    def input(self, context: int, index: int, tensors: list[int], status: Status) -> Any:
        """Returns an input as `read` does, until what is added to `tensors` is deleted; in place of a variant None."""
        if self._is_variant:
            return None
        tensors.append(get_input(context, index, status))
        return self.read(tensors[-1])

    def new_output(self, context: int, index: int, shape: Sequence[int], status: Status) -> NDArray[Any]:
        """Returns the memory of a new output, not initialised; TensorFlow owns it."""
        tensor = self._allocate(context, index, shape, status)
        try:
            return self._view(tensor, shape, _WRITE)
        finally:
            C.TF_DeleteTensor(tensor)  # the context refers to the memory too

    def set_output(self, context: int, index: int, value: Any, status: Status) -> None:
        """Copies a value to a new output; a variant becomes empty."""
        if self._is_variant:
            C.TF_DeleteTensor(self._allocate(context, index, (), status))
        else:
            array = np.asarray(value, object if self.is_string else None)
            tensor = self._allocate(context, index, array.shape, status)
            try:
                self.write(tensor, array)
            finally:
                C.TF_DeleteTensor(tensor)

    def _allocate(self, context: int, index: int, shape: Sequence[int], status: Status) -> int:
        sizes = (ctypes.c_int64 * len(shape))(*shape)
        size = math.prod(shape) * self._dtype.itemsize
        tensor = C.TF_AllocateOutput(context, index, self.number, sizes, len(shape), size, status.pointer)
        if tensor is None:
            status.check()
        return tensor

    def _view(self, tensor: int, shape: Sequence[int], access: int) -> NDArray[Any]:
        size = math.prod(shape) * self._dtype.itemsize
        if not size:
            return np.empty(shape, self._dtype)
        return np.ndarray(shape, self._dtype, _memory(C.TF_TensorData(tensor), size, access))


def _shape(tensor: int) -> list[int]:
    return [C.TF_Dim(tensor, axis) for axis in range(C.TF_NumDims(tensor))]


def _strings(tensor: int) -> Any:
    shape = _shape(tensor)
    strings, first = np.empty(math.prod(shape), object), C.TF_TensorData(tensor)
    for position in range(len(strings)):
        string = first + position * _STRING_BYTES
        strings[position] = ctypes.string_at(C.TF_StringGetDataPointer(string), C.TF_StringGetSize(string))
    return strings.reshape(shape) if shape else strings[0]


def _set_strings(tensor: int, strings: NDArray[Any]) -> None:
    first = C.TF_TensorData(tensor)
    for position, string in enumerate(strings.flat):
        C.TF_StringCopy(first + position * _STRING_BYTES, string, len(string))
