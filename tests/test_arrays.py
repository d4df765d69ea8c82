"""Arguments of any kind as arrays, and what is no array."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from foreign_arrays import OnAnotherDevice, OnlyArray, OnlyDLPack, unaligned

from anycore import InputError
from anycore.arrays import address, as_array, as_floats, as_integers

VALUES = np.array([3, 0, 7])


@pytest.mark.parametrize("wrap", [lambda a: a, OnlyDLPack, OnlyArray])
def test_an_array_is_not_copied(wrap: Any) -> None:
    assert np.shares_memory(as_array(wrap(VALUES), "x"), VALUES)
    assert np.shares_memory(as_integers(wrap(VALUES), "x"), VALUES)
    floats = VALUES.astype(np.float32)
    assert np.shares_memory(as_floats(wrap(floats), "x"), floats)


INTEGERS = [
    *(VALUES.astype(kind) for kind in ("i1", "u1", "i2", "i4", "u4", "i8", "u8", ">i8")),
    [3, 0, 7],
    (3, 0, 7),
    OnlyDLPack(VALUES.astype(np.int32)),
    OnlyArray(VALUES.astype(np.int32)),
    np.array([3, 9, 0, 9, 7])[::2],
    np.array([7, 0, 3])[::-1],
    unaligned(VALUES),
]


@pytest.mark.parametrize("value", INTEGERS)
def test_integers(value: Any) -> None:
    found = as_integers(value, "x")
    assert found.dtype == np.int64 and found.dtype.isnative
    assert found.flags.c_contiguous and found.flags.aligned
    assert found.tolist() == [3, 0, 7]


@pytest.mark.parametrize("value", [[], np.zeros(0, np.float32), np.zeros((0, 2)), ()])
def test_nothing_is_as_good_as_integers(value: Any) -> None:
    assert as_integers(value, "x").dtype == np.int64
    assert as_integers(value, "x").shape == np.shape(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1.0], "x must be integers, got float64"),
        ([True], "x must be integers, got bool"),
        (["1"], "x must be integers, got <U1"),
        ([None], "x must be integers, got object"),
        (None, "x must be integers, got object"),
        ([1, 2**64], "x must be integers, got object"),
        (np.array([1], "m8[s]"), "x must be integers, got timedelta64"),
        (np.array([1, 2**63 + 5], np.uint64), "x .*9223372036854775813"),
        ([[1], [2, 3]], "x: cannot be read as an array: .*inhomogeneous"),
        (OnAnotherDevice(VALUES), "x: cannot be read as an array: is on another device"),
    ],
)
def test_refuses_what_is_no_integer(value: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        as_integers(value, "x")


@pytest.mark.parametrize(
    "value",
    [
        *(np.array([0.5, -2, 1], kind) for kind in ("f2", "f4", "f8", ">f4", ml_dtypes.bfloat16)),
        [0.5, -2, 1],
        OnlyDLPack(np.array([0.5, -2, 1])),
        np.array([0.5, 9, -2, 9, 1], np.float32)[::2],
        unaligned(np.array([0.5, -2, 1], np.float32)),
    ],
)
def test_floats(value: Any) -> None:
    found = as_floats(value, "x")
    assert found.dtype == np.float32 and found.dtype.isnative
    assert found.flags.c_contiguous and found.flags.aligned
    assert found.tolist() == [0.5, -2.0, 1.0]


def test_whole_numbers_are_floats_too() -> None:
    assert as_floats(VALUES, "x").tolist() == [3.0, 0.0, 7.0]
    assert as_floats([True, False], "x").tolist() == [1.0, 0.0]


def test_a_number_too_large_for_float32_is_infinite_without_a_warning() -> None:
    assert as_floats([1e300, -1e300], "x").tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1j], "x must be real numbers, got complex128"),
        (["1"], "x must be real numbers, got <U1"),
        ([None], "x must be real numbers, got object"),
        (np.array([1], "m8[s]"), "x must be real numbers, got timedelta64"),
        ([[1.0], [2.0, 3.0]], "x: cannot be read as an array"),
    ],
)
def test_refuses_what_is_no_real_number(value: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        as_floats(value, "x")


def test_address_is_of_the_first_element() -> None:
    array = np.arange(12, dtype=np.int64).reshape(3, 4)
    array.flags.writeable = False
    for view in (array, array[1:, 2:], array[::-1]):
        assert ctypes.c_int64.from_address(address(view)).value == view[0, 0]
    assert isinstance(address(np.zeros(0)), int)
