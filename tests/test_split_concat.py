"""Splitting and concatenating in several dimensions, against NumPy's own functions and TensorFlow's XLA kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import anycore.ops
from anycore import InputError
from anycore.tensorflow import register_kernels

# The tests also call them as nobody should.
ops: Any = anycore.ops

NINE = np.arange(9).reshape(3, 3)
FOUR = [[[0, 1], [3, 4]], [[2, 0], [5, 0]], [[6, 7], [0, 0]], [[8, 0], [0, 0]]]

BFLOAT16 = np.dtype("V2")
DTYPES = [np.dtype(t) for t in (np.bool_, np.int8, np.uint64, np.float16, np.float32, np.complex128, BFLOAT16)]


def as_bytes(array: NDArray[Any]) -> tuple[tuple[int, ...], bytes]:
    return array.shape, array.tobytes()


def plain_split(whole: NDArray[Any], counts: Sequence[int], paddings: Sequence[int]) -> list[NDArray[Any]]:
    slices = [np.pad(whole, [(0, padding) for padding in paddings])]
    for axis, count in enumerate(counts):
        slices = [piece for part in slices for piece in np.split(part, count, axis)]
    return slices


def plain_concat(slices: list[NDArray[Any]], counts: Sequence[int], paddings: Sequence[int]) -> NDArray[Any]:
    for axis, count in reversed(list(enumerate(counts))):
        slices = [np.concatenate(slices[i : i + count], axis) for i in range(0, len(slices), count)]
    for axis, padding in enumerate(paddings):
        slices = [np.delete(whole, range(whole.shape[axis] - padding, whole.shape[axis]), axis) for whole in slices]
    return slices[0]


def test_the_documented_example() -> None:
    assert [part.tolist() for part in ops.xla_split_nd(NINE, 4, [2, 2], [1, 1])] == FOUR
    assert ops.xla_concat_nd(FOUR, [2, 2], [1, 1]).tolist() == NINE.tolist()


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """Draws counts, shape of a slice, and paddings."""
    rank = draw(st.integers(1, 8))
    largest = 4 if rank < 4 else 2
    counts = draw(st.lists(st.integers(1, largest), min_size=rank, max_size=rank))
    shape = draw(st.lists(st.integers(0, largest), min_size=rank, max_size=rank))
    return counts, shape, [draw(st.integers(0, count * size)) for count, size in zip(counts, shape, strict=True)]


@given(grids(), st.sampled_from(DTYPES), st.integers(0, 99))
def test_any_grid_is_what_numpy_makes_of_it(grid: Any, dtype: np.dtype[Any], seed: int) -> None:
    counts, shape, paddings = grid
    whole_shape = [count * size - padding for count, size, padding in zip(counts, shape, paddings, strict=True)]
    number = np.dtype(np.uint16) if dtype == BFLOAT16 else dtype
    whole = np.random.default_rng(seed).integers(0, 2 if dtype == np.bool_ else 100, whole_shape).astype(number)

    slices = ops.xla_split_nd(whole.view(dtype), int(np.prod(counts)), counts, paddings)
    expected = plain_split(whole, counts, paddings)
    assert [as_bytes(part) for part in slices] == [as_bytes(part) for part in expected]
    assert {part.dtype for part in slices} == {dtype}

    # Slices whose paddings are no zeros: concatenation must not see them.
    filled = [np.where(part == 0, np.ones((), number), part) for part in expected]
    merged = ops.xla_concat_nd([part.view(dtype) for part in filled], counts, paddings)
    assert as_bytes(merged) == as_bytes(plain_concat(filled, counts, paddings))
    assert merged.dtype == dtype
    assert as_bytes(ops.xla_concat_nd(slices, counts, paddings)) == as_bytes(whole)


@pytest.mark.parametrize(
    ("dtype", "shape", "counts", "paddings"),
    [
        (tf.int32, [3, 3], [2, 2], [1, 1]),
        (tf.bool, [5], [3], [4]),
        (tf.complex64, [2, 4], [1, 2], []),
        (tf.bfloat16, [2, 1, 3], [1, 1, 2], [2, 0, 1]),
        (tf.float64, [1] * 8, [1, 2] * 4, [0, 1] * 4),
    ],
)
def test_xla_says_the_same(dtype: tf.DType, shape: list[int], counts: list[int], paddings: list[int]) -> None:
    whole = tf.cast(tf.reshape(tf.range(1, 1 + np.prod(shape)), shape), dtype)
    number = int(np.prod(counts))

    def split_and_concat() -> Any:
        slices = tf.raw_ops.XlaSplitND(input=whole, N=number, num_splits=counts, paddings=paddings)
        return slices, tf.raw_ops.XlaConcatND(inputs=slices, num_concats=counts, paddings=paddings)

    their_slices, their_whole = tf.function(split_and_concat, jit_compile=True, autograph=False)()
    slices = ops.xla_split_nd(whole, number, counts, paddings)
    assert [as_bytes(part) for part in slices] == [as_bytes(part.numpy()) for part in their_slices]
    assert as_bytes(ops.xla_concat_nd(their_slices, counts, paddings)) == as_bytes(their_whole.numpy())


def test_strings_are_filled_up_with_empty_ones() -> None:
    words = np.array([b"a", b"bc", b"d"], object)
    slices = ops.xla_split_nd(words, 2, [2], [1])
    assert [part.tolist() for part in slices] == [[b"a", b"bc"], [b"d", b""]]
    assert ops.xla_concat_nd(slices, [2], [1]).tolist() == words.tolist()
    register_kernels()
    parts = tf.raw_ops.XlaSplitND(input=tf.constant(words), N=2, num_splits=[2], paddings=[1])
    assert [part.numpy().tolist() for part in parts] == [[b"a", b"bc"], [b"d", b""]]


def test_what_is_not_padded_is_not_copied() -> None:
    first, second, *_ = ops.xla_split_nd(NINE, 4, [2, 2], [1, 1])
    assert first.base is NINE.base
    assert second.base is None
    assert ops.xla_split_nd(NINE, 1, [1, 1])[0].base is NINE.base


def test_variables_are_read_and_given_a_value() -> None:
    assert [part.tolist() for part in ops.read_variable_xla_split_nd(NINE, 9, 4, [2, 2], [1, 1])] == FOUR
    assert ops.assign_variable_xla_concat_nd(None, FOUR, [2, 2], [1, 1]).tolist() == NINE.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.xla_split_nd(NINE, 4, [2, 0]), "'num_splits' at index 1 must be positive, got 0"),
        (lambda: ops.xla_split_nd(NINE, 3, [2, 2]), "'N' must match number of slices 4 from 'num_splits', got 3"),
        (lambda: ops.xla_split_nd(NINE, 4, [2, 2], [1]), "'paddings' length must match 'num_splits' length 2, got 1"),
        (lambda: ops.xla_split_nd(NINE, 4, [2, 2], [1, -1]), "'paddings' must be all non-negative, got -1 at index 1"),
        (lambda: ops.xla_split_nd(NINE, 4, [2, 2]), r"dimension 0 \(3\) with padding 0 must be evenly divisible .* 2"),
        (lambda: ops.xla_split_nd(NINE, 3, [3]), "input rank must be the same as 'num_splits' length 1, got rank 2"),
        (lambda: ops.xla_split_nd(NINE, 1, [0.5]), "num_splits must be integers"),
        (lambda: ops.xla_split_nd(1, 1, []), r"input must have rank in range \(0, 8\], got 0"),
        (lambda: ops.xla_split_nd(np.ones([1] * 9), 1, [1] * 9), r"input must have rank in range \(0, 8\], got 9"),
        (lambda: ops.xla_concat_nd(FOUR, [-2, -2]), "'num_concats' at index 0 must be positive, got -2"),
        (lambda: ops.xla_concat_nd([], [2]), "'N' must match number of slices 2 from 'num_concats', got 0"),
        (lambda: ops.xla_concat_nd(FOUR, [4]), "inputs rank must be the same as 'num_concats' length 1, got rank 2"),
        (lambda: ops.xla_concat_nd(FOUR, [2, 2], [0, 5]), "must not exceed .* dimension 4 at index 1, got 5"),
        (
            lambda: ops.xla_concat_nd([[1, 2], [3]], [2]),
            r"must all have the same expected shape and type, \[2\] of int64, got \[1\] of int64 at index 1",
        ),
        (lambda: ops.xla_concat_nd([[1], [1.5]], [2]), r"\[1\] of int64, got \[1\] of float64 at index 1"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
