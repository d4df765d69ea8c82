"""Arrays whose memory is used again.

A step needs some tens of megabytes anew each time. Fresh memory costs a page fault every four kilobytes, which took
longer than the sort of the ids that is written there.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from anycore.arrays import address

_SMALLEST = 1 << 16
_LINE_BYTES = 64
_MOST_FREE = 8
"""Free blocks kept of one size."""

_free: defaultdict[int, deque[NDArray[np.uint8]]] = defaultdict(lambda: deque(maxlen=_MOST_FREE))


def empty(count: int, dtype: DTypeLike) -> NDArray[Any]:
    """Returns an uninitialised array [count]; its memory is used again once no array refers to it."""
    size = int(count) * np.dtype(dtype).itemsize
    if size < _SMALLEST:
        return np.empty(count, dtype)
    # Sizes in steps of an eighth of a power of two, so that batches of about one size share their blocks.
    step = 1 << (size.bit_length() - 4)
    rounded = -(-size // step) * step
    try:
        block = _free[rounded].pop()
    except IndexError:
        # At a cache line, where JAX takes arrays as they are.
        block = np.empty(rounded + _LINE_BYTES, np.uint8)
        start = -address(block) % _LINE_BYTES
        block = block[start : start + rounded]
    return np.asarray(_Lease(block, rounded))[:size].view(dtype)


class _Lease:
    """What arrays refer to as long as they use a block."""

    def __init__(self, block: NDArray[np.uint8], rounded: int) -> None:
        self._block, self._rounded = block, rounded
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        _free[self._rounded].append(self._block)
