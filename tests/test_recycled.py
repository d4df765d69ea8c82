from __future__ import annotations

import numpy as np
import pytest

from anycore.arrays import address
from anycore.recycled import empty


@pytest.mark.parametrize("count", [0, 1, 1000, 70_000, 1_000_001])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32])
def test_an_array_is_as_asked(count: int, dtype: type) -> None:
    array = empty(count, dtype)
    assert array.shape == (count,)
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    assert array.flags.aligned
    assert array.flags.writeable
    array[:] = 7
    assert (array == 7).all()


def test_memory_is_used_again_once_nothing_refers_to_it() -> None:
    first = empty(100_003, np.float32)
    place, view = address(first), first[1000:2000].reshape(10, 100)
    view[:] = 5
    del first
    second = empty(100_003, np.float32)
    assert address(second) != place
    second[:] = 6
    assert (view == 5).all()
    del view
    assert address(empty(100_000, np.float32)) == place


def test_little_is_kept() -> None:
    arrays = [empty(200_000, np.float32) for _ in range(20)]
    places = {address(array) for array in arrays}
    del arrays
    assert len({address(array) for array in [empty(200_000, np.float32) for _ in range(20)]} & places) >= 8
