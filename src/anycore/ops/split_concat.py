"""Arrays cut into a grid of equal slices, and put together again.

Slices are listed in row-major order of the grid. Paddings are zeros, or empty strings, on the right of an axis of the
whole array, there so that the slices come out equal.

Source: `XlaSplitND`, `XlaConcatND` and their twins for variables, TensorFlow 2.21.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore.arrays import as_array, as_integers
from anycore.errors import InputError

MAX_RANK = 8


def xla_split_nd(input: Any, N: int, num_splits: Sequence[int], paddings: Sequence[int] = ()) -> list[NDArray[Any]]:  # noqa: N803
    """Returns the `N` slices of `input`, of any dtype and rank 1 to 8, `num_splits` along each axis.

    Slices without padding are views of `input`.

    Raises: InputError when the numbers do not fit each other or the shape.
    """
    whole = as_array(input, "input")
    splits, added = _grid("num_splits", num_splits, N, paddings)
    _check_rank("input", whole, "num_splits", splits)
    for axis, (size, padding, count) in enumerate(zip(whole.shape, added, splits, strict=True)):
        if (size + padding) % count:
            raise InputError(
                f"input: dimension {axis} ({size}) with padding {padding} must be evenly divisible by "
                f"'num_splits' {count}"
            )
    shape = [(size + padding) // count for size, padding, count in zip(whole.shape, added, splits, strict=True)]
    return [_filled_up(whole[region], shape) for region in _regions(splits, shape)]


def xla_concat_nd(inputs: Sequence[Any], num_concats: Sequence[int], paddings: Sequence[int] = ()) -> NDArray[Any]:
    """Returns the array of which `inputs` are the slices, `num_concats` along each axis, without its paddings.

    The slices have one shape and dtype, and rank 1 to 8.

    Raises: InputError when the numbers do not fit each other or the shapes.
    """
    slices = [as_array(given, f"inputs[{index}]") for index, given in enumerate(inputs)]
    concats, stripped = _grid("num_concats", num_concats, len(slices), paddings)
    first = slices[0]
    _check_rank("inputs", first, "num_concats", concats)
    for index, part in enumerate(slices):
        if (part.shape, part.dtype) != (first.shape, first.dtype):
            raise InputError(
                f"inputs must all have the same expected shape and type, {list(first.shape)} of {first.dtype}, "
                f"got {list(part.shape)} of {part.dtype} at index {index}"
            )
    sizes = [count * size for count, size in zip(concats, first.shape, strict=True)]
    for axis, (size, padding) in enumerate(zip(sizes, stripped, strict=True)):
        if padding > size:
            raise InputError(
                f"paddings must not exceed expected output shape dimension {size} at index {axis}, got {padding}"
            )
    whole = np.empty([size - padding for size, padding in zip(sizes, stripped, strict=True)], first.dtype)
    for region, part in zip(_regions(concats, first.shape), slices, strict=True):
        target = whole[region]
        target[...] = part[_corner(target.shape)]
    return whole


def read_variable_xla_split_nd(
    resource: Any,
    T: Any,  # noqa: N803
    N: int,  # noqa: N803
    num_splits: Sequence[int],
    paddings: Sequence[int] = (),
) -> list[NDArray[Any]]:
    """Returns the slices of a variable: `xla_split_nd` of `resource`, its value. `T` says what that shows: its type."""
    return xla_split_nd(resource, N, num_splits, paddings)


def assign_variable_xla_concat_nd(
    resource: Any, inputs: Sequence[Any], num_concats: Sequence[int], paddings: Sequence[int] = ()
) -> NDArray[Any]:
    """Returns the value to assign to the variable `resource`, which is not looked at: `xla_concat_nd` of `inputs`."""
    return xla_concat_nd(inputs, num_concats, paddings)


def _grid(name: str, given: Sequence[int], N: int, paddings: Sequence[int]) -> tuple[list[int], list[int]]:  # noqa: N803
    """Returns the counts and paddings of each axis, checked against each other."""
    counts = as_integers(given, name).tolist()
    for index, count in enumerate(counts):
        if count < 1:
            raise InputError(f"'{name}' at index {index} must be positive, got {count}")
    if math.prod(counts) != N:
        raise InputError(f"'N' must match number of slices {math.prod(counts)} from '{name}', got {N}")
    right = as_integers(paddings, "paddings").tolist() or [0] * len(counts)
    if len(right) != len(counts):
        raise InputError(f"'paddings' length must match '{name}' length {len(counts)}, got {len(right)}")
    for index, padding in enumerate(right):
        if padding < 0:
            raise InputError(f"'paddings' must be all non-negative, got {padding} at index {index}")
    return counts, right


def _check_rank(what: str, array: NDArray[Any], name: str, counts: list[int]) -> None:
    if not 1 <= array.ndim <= MAX_RANK:
        raise InputError(f"{what} must have rank in range (0, {MAX_RANK}], got {array.ndim}")
    if array.ndim != len(counts):
        raise InputError(f"{what} rank must be the same as '{name}' length {len(counts)}, got rank {array.ndim}")


def _regions(counts: list[int], shape: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Yields where in the whole array each slice of that shape lies; an array that ends before it cuts it short."""
    for place in np.ndindex(*counts):
        yield tuple(slice(index * size, (index + 1) * size) for index, size in zip(place, shape, strict=True))


def _corner(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(size) for size in shape)


def _filled_up(part: NDArray[Any], shape: list[int]) -> NDArray[Any]:
    if list(part.shape) == shape:
        return part
    whole = np.full(shape, b"", object) if part.dtype.hasobject else np.zeros(shape, part.dtype)
    whole[_corner(part.shape)] = part
    return whole
