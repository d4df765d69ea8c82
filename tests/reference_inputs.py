"""Every input kind of the enqueue operations as plain lookups, one Python loop per rule.

Source: the enqueue operations of TensorFlow 2.21 (tpu_embedding_ops) and FeatureDescriptor.input_shape.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from math import prod, sqrt
from typing import Any, NamedTuple

import numpy as np


class Sparse(NamedTuple):
    """A sparse input: [n] or [n, r] indices, n ids, n weights or None. No indices: every id is its own row."""

    sample_indices: Any
    embedding_indices: Any
    aggregation_weights: Any = None


class Ragged(NamedTuple):
    """A ragged input: ascending row splits, n ids, n weights or None."""

    sample_splits: Any
    embedding_indices: Any
    aggregation_weights: Any = None


class Lookup(NamedTuple):
    """One id that adds `gain` times its table row to activation row `cell`."""

    cell: int
    id: int
    gain: float


def lookups(
    entry: Any, shape: tuple[int, ...], vocabulary_size: int, combiner: str, length: int, exact: bool
) -> list[Lookup]:
    """The lookups of one enqueue entry, in input order; cells are the row-major positions in `shape`.

    `length` is the entry's maximum sequence length; where it is positive, it is the last axis of `shape`.
    `exact` demands that a dense input names every cell.
    """
    ids, weights = _ids(entry, vocabulary_size), _weights(entry)
    indices = np.asarray(getattr(entry, "sample_indices", ()))
    splits = np.asarray(getattr(entry, "sample_splits", ()))
    if length and shape[-1] != length:
        raise ValueError(f"max_sequence_length {length} is not the last axis of {shape}")
    if splits.size and not length and len(shape) >= 2 and prod(shape[:-1]) == len(splits) - 1 != prod(shape):
        length = shape[-1]  # one input row for each cell but the last axis: a sequence along that axis
    if weights and len(weights) != len(ids):
        raise ValueError(f"{len(weights)} weights for {len(ids)} ids")
    if weights and length:
        raise ValueError("a sequence takes no weights")

    if splits.size:
        places = _ragged_places(splits, len(ids), _row_count(shape, length))
    elif indices.size:
        places = _sparse_places(indices, len(ids), shape, length)
    else:
        places = _dense_places(len(ids), prod(shape), exact and (_is_array(entry) or len(ids) > 0))
        length = 0  # one id for each activation row, also where the entry is a sequence
    rows = [row for row, _ in places]
    cells: list[int | None] = list(rows)
    if length:
        cells = [row * length + position if position < length else None for row, position in places]
        gains = [1.0] * len(ids)
    else:
        gains = _gains(rows, weights or [1.0] * len(ids), combiner)
    found = [Lookup(cell, i, gain) for cell, i, gain in zip(cells, ids, gains, strict=True) if cell is not None]
    if any(a.cell > b.cell for a, b in pairwise(found)):
        raise ValueError("sample indices must not descend")
    return found


def _is_array(entry: Any) -> bool:
    return not hasattr(entry, "embedding_indices")


def _ids(entry: Any, vocabulary_size: int) -> list[int]:
    ids = np.asarray(entry if _is_array(entry) else entry.embedding_indices).reshape(-1)
    if ids.size and ids.dtype.kind not in "iu":
        raise ValueError(f"ids must be integers, got {ids.dtype}")
    if any(not 0 <= i < vocabulary_size for i in ids.tolist()):
        raise ValueError(f"ids must lie in [0, {vocabulary_size}), got {ids}")
    return ids.tolist()


def _weights(entry: Any) -> list[float]:
    """The weights, rounded to float32 as the wire does; empty where all weigh 1."""
    given = getattr(entry, "aggregation_weights", None)
    with np.errstate(over="ignore"):  # becomes infinite, which is refused
        weights = np.asarray(() if given is None else given, np.float32)
    if not np.isfinite(weights).all():
        raise ValueError(f"weights must be finite, got {weights}")
    return weights.tolist()


def _row_count(shape: tuple[int, ...], length: int) -> int:
    return prod(shape[:-1]) if length else prod(shape)


def _dense_places(count: int, rows: int, exact: bool) -> list[tuple[int, int]]:
    """(row, position) of each id."""
    if count > rows or (exact and count != rows):
        raise ValueError(f"{count} ids for {rows} activation rows")
    return [(row, 0) for row in range(count)]


def _ragged_places(splits: np.ndarray, count: int, rows: int) -> list[tuple[int, int]]:
    """(row, position) of each id."""
    bounds = splits.tolist()
    if bounds[0] != 0 or bounds[-1] != count or bounds != sorted(bounds):
        raise ValueError(f"splits must ascend from 0 to {count}, got {bounds}")
    if len(bounds) - 1 > rows:
        raise ValueError(f"{len(bounds) - 1} ragged rows for {rows} input rows")
    return [(row, at) for row in range(len(bounds) - 1) for at in range(bounds[row + 1] - bounds[row])]


def _sparse_places(indices: np.ndarray, count: int, shape: tuple[int, ...], length: int) -> list[tuple[Any, int]]:
    """(row, position) of each id; the row is None where the id is cut off."""
    if len(indices) != count:
        raise ValueError(f"{len(indices)} sample indices for {count} ids")
    if indices.ndim == 1:
        rows = indices.tolist()
        positions = [rows[:k].count(row) for k, row in enumerate(rows)]
    elif indices.shape[1] == 2:
        rows, positions = indices[:, 0].tolist(), indices[:, 1].tolist()
    elif not length and indices.shape[1] == len(shape) + 1:
        # Beyond the last axis that addresses a cell, an id is cut off as in a sequence.
        cells = [tuple(row[:-1]) if row[-2] < shape[-1] else None for row in indices.tolist()]
        rows = [None if cell is None else int(np.ravel_multi_index(cell, shape)) for cell in cells]
        positions = indices[:, -1].tolist()
    else:
        raise ValueError(f"sample indices of shape {indices.shape} for activation rows {shape}")
    limit = _row_count(shape, length)
    if any(not 0 <= row < limit for row in rows if row is not None) or any(at < 0 for at in positions):
        raise ValueError(f"sample indices must lie in [0, {limit}), got {indices.tolist()}")
    return list(zip(rows, positions, strict=True))


def _gains(rows: list[int], weights: list[float], combiner: str) -> list[float]:
    """The combiner's factor of each id: its weight over the denominator of its row, 0 where that is 0."""
    if combiner not in ("sum", "mean", "sqrtn"):
        raise ValueError(f"combiner must be 'sum', 'mean' or 'sqrtn', got {combiner!r}")
    if combiner == "sum":
        return list(weights)
    totals: dict[int, float] = defaultdict(float)
    for row, weight in zip(rows, weights, strict=True):
        totals[row] += weight if combiner == "mean" else weight * weight
    denominators = [totals[row] if combiner == "mean" else sqrt(totals[row]) for row in rows]
    return [weight / total if total else 0.0 for weight, total in zip(weights, denominators, strict=True)]
