from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numba import njit

from anycore.arrays import address
from anycore.kernels.pointers import call_step, fetch_add, floats, integers, prefetch, prefetch_record


def compiled(function: Callable[..., Any]) -> Any:
    return njit(nogil=True)(function)


@compiled
def add_floats(at: Any, size: Any, value: Any) -> Any:
    array = floats(at, size)
    for i in range(len(array)):
        array[i] += value
    return array.itemsize


@compiled
def add_integers(at: Any, size: Any, value: Any) -> Any:
    array = integers(at, size)
    for i in range(len(array)):
        array[i] += value
    return array.itemsize


@compiled
def draw(counter: Any, index: Any, drawn: Any) -> Any:
    number = 0
    while True:
        ticket = fetch_add(counter, index)
        if ticket >= len(drawn):
            return number
        drawn[ticket] += 1
        number += 1


@compiled
def call_twice(function: Any, record: Any, gradient: Any, dimension: Any, settings: Any) -> None:
    call_step(function, record, gradient, dimension, settings)
    call_step(function, record + 4, gradient + 4, dimension - 1, settings)


@compiled
def ask_for(at: Any, size: Any) -> Any:
    prefetch(at, size)
    prefetch_record(at, size)
    return at


@pytest.mark.parametrize("size", [0, 1, 17])
def test_floats_are_the_memory_itself(size: int) -> None:
    array = np.arange(20, dtype=np.float32)
    assert add_floats(address(array[2:]), size, np.float32(0.5)) == array.itemsize
    inside = (np.arange(20) >= 2) & (np.arange(20) < 2 + size)
    np.testing.assert_array_equal(array, np.arange(20) + 0.5 * inside)


@pytest.mark.parametrize("size", [0, 1, 17])
def test_integers_are_the_memory_itself(size: int) -> None:
    array = np.arange(20) + 2**40
    assert add_integers(address(array[2:]), size, 2**33) == array.itemsize
    inside = (np.arange(20) >= 2) & (np.arange(20) < 2 + size)
    np.testing.assert_array_equal(array, np.arange(20) + 2**40 + 2**33 * inside)


def test_fetch_add_hands_out_every_number_once() -> None:
    counter, drawn = np.array([-7, 0, 7]), np.zeros(300_000, np.int8)
    draw(np.zeros(1, np.int64), 0, drawn[:0])  # compiles
    with ThreadPoolExecutor(4) as threads:
        counts = list(threads.map(lambda _: draw(counter, 1, drawn), range(4)))
    assert (drawn == 1).all()
    assert sum(counts) == len(drawn)
    assert counter.tolist() == [-7, len(drawn) + 4, 7]


def test_call_step_passes_every_argument() -> None:
    calls = []
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(lambda *arguments: calls.append(arguments))
    location = ctypes.cast(function, ctypes.c_void_p).value
    call_twice(location, 2**40, -(2**50), 3, 2**62)
    assert calls == [(2**40, -(2**50), 3, 2**62), (2**40 + 4, -(2**50) + 4, 2, 2**62)]


@pytest.mark.parametrize("size", [0, 1, 64, 256, 300, 512, 1000])
def test_prefetch_touches_nothing(size: int) -> None:
    """It is a hint, so that an address next to the last page of a table does no harm."""
    array = np.zeros(16, np.float32)
    assert ask_for(address(array), size) == address(array)
    assert ask_for(0, size) == 0
    assert not array.any()
