"""Arguments of calls as NumPy arrays: anything with `__array__`, DLPack or a plain sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore.errors import InputError


def as_array(value: Any, what: str) -> NDArray[Any]:
    """Returns `value` as an array, without a copy where it allows that. Raises: InputError named by `what`."""
    if type(value) is np.ndarray:
        return value
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise InputError(f"{what}: cannot be read as an array: {error}") from error


def as_integers(value: Any, what: str) -> NDArray[np.int64]:
    """Returns `value` as C-contiguous int64. Raises: InputError named by `what` when it holds anything but integers."""
    array = as_array(value, what)
    if array.dtype == np.int64 and array.flags.c_contiguous:
        return array
    if array.dtype.kind not in "iu" and array.size:
        raise InputError(f"{what} must be integers, got {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64)


def as_floats(value: Any, what: str) -> NDArray[np.float32]:
    """Returns `value` as C-contiguous float32. Raises: InputError named by `what` unless it holds real numbers."""
    array = as_array(value, what)
    if array.dtype == np.float32 and array.flags.c_contiguous:
        return array
    if not (np.can_cast(array.dtype, np.float64) or array.dtype.name in _NARROW_FLOATS):
        raise InputError(f"{what} must be real numbers, got {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.float32)


_NARROW_FLOATS = ("bfloat16",)


def address(array: NDArray[Any]) -> int:
    """Returns where the array's first element lies; the caller keeps the array alive."""
    return int(array.__array_interface__["data"][0])
