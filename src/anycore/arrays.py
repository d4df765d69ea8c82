"""Arguments of calls as NumPy arrays: anything with `__array__`, DLPack or a plain sequence."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore.errors import InputError


def as_array(value: Any, what: str) -> NDArray[Any]:
    """Returns `value` as an array, without a copy where it allows that. Raises: InputError named by `what`."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{what}: a masked array cannot be used, fill it or leave the masked elements out")
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise InputError(f"{what}: cannot be read as an array: {error}") from error


def as_integers(value: Any, what: str) -> NDArray[np.int64]:
    """Returns `value` as aligned, C-contiguous int64.

    Raises: InputError named by `what` when it holds anything but integers that fit.
    """
    if is_plain(value, np.int64):
        return value
    array = as_array(value, what)
    if array.dtype.kind not in "iu" and array.size:
        raise InputError(f"{what} must be integers, got {array.dtype}")
    if array.dtype == np.uint64 and array.size and array.max() > _LARGEST:
        raise InputError(f"{what} must be at most {_LARGEST}, got {array.max()}")
    return np.require(array, np.int64, ["C", "A"])


def as_floats(value: Any, what: str) -> NDArray[np.float32]:
    """Returns `value` as aligned, C-contiguous float32; what float32 cannot hold becomes infinite.

    Raises: InputError named by `what` unless it holds real numbers.
    """
    if is_plain(value, np.float32):
        return value
    array = as_array(value, what)
    if not (np.can_cast(array.dtype, np.float64) or array.dtype.name in _NARROW_FLOATS):
        raise InputError(f"{what} must be real numbers, got {array.dtype}")
    with np.errstate(over="ignore"):
        return np.require(array, np.float32, ["C", "A"])


def is_plain(value: Any, dtype: type[np.generic]) -> bool:
    """Returns whether `value` is an aligned, C-contiguous array of `dtype`."""
    if type(value) is not np.ndarray or value.dtype != dtype:
        return False
    flags = value.flags
    return flags.c_contiguous and flags.aligned


_LARGEST = np.iinfo(np.int64).max
_NARROW_FLOATS = ("bfloat16",)


def check_sequence(value: Any, name: str, kinds: str = "a sequence") -> None:
    """Raises InputError unless `value` can be counted and iterated, as a list, a tuple or an array can."""
    if isinstance(value, str | bytes) or not (hasattr(value, "__len__") and hasattr(value, "__iter__")):
        raise InputError(f"{name} must be {kinds}, got {type(value).__name__}")


def address(array: NDArray[Any]) -> int:
    """Returns where the array's first element lies; the caller keeps the array alive."""
    return _word_at(id(array) + _DATA_FIELD).value


# NumPy's ways to ask for an address cost a microsecond each, of which a step of many small tables has few to spend. The
# field that they read comes first in every array object, right after the header that the interpreter gives all objects.
# Source: `PyArrayObject_fields`, NumPy's C interface.
_word_at = ctypes.c_size_t.from_address
_DATA_FIELD = object.__basicsize__
if address(_probe := np.zeros(1)) != _probe.__array_interface__["data"][0]:
    raise ImportError("anycore needs CPython: in this interpreter an array's address is not where NumPy's headers say")
