"""Arrays as other libraries hand them over."""

from __future__ import annotations

from typing import Any

import numpy as np


class OnlyDLPack:
    """A tensor of a framework, as far as anycore may know it."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class OnlyArray:
    """Something that NumPy can ask for an array."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self._array if dtype is None else self._array.astype(dtype)


class OnAnotherDevice(OnlyArray):
    """Something whose numbers NumPy cannot reach."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError("is on another device")


def unaligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins one byte after where it should."""
    memory = np.zeros(array.nbytes + 1, np.uint8)
    moved = memory[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    assert not moved.flags.aligned
    return moved
