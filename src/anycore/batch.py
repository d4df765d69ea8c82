"""What a caller enqueues, and the one form that all of it becomes: for each sample row its ids and their gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anycore import recycled
from anycore.arrays import address, as_array, as_floats, as_integers, check_sequence, is_plain
from anycore.entries import Entry
from anycore.errors import InputError
from anycore.kernels import ingest
from anycore.kernels.parallel import Workers
from anycore.kernels.tasks import cut_samples
from anycore.plan import Plan


@dataclass(frozen=True)
class Sparse:
    """Ids with the activation row of each, in ascending order.

    `sample_indices` is integer [n], the row of each id, or [n, r] as a SparseTensor's indices: the first r - 1 columns
    address a cell of the feature's input_shape, the last is combined (in a sequence feature it is the position). Ids
    beyond the last of several axes are left out, as beyond the length of a sequence. Empty, it makes every id a row of
    its own. `embedding_indices` is integer [n]. `aggregation_weights` is float [n], or None
    or empty for ones.
    """

    sample_indices: Any
    embedding_indices: Any
    aggregation_weights: Any = None


@dataclass(frozen=True)
class Ragged:
    """Ids of one activation row after another.

    Row r holds the ids sample_splits[r] … sample_splits[r + 1] - 1. `sample_splits` is integer [rows + 1],
    `embedding_indices` integer [n], `aggregation_weights` float [n], or None or empty for ones.
    """

    sample_splits: Any
    embedding_indices: Any
    aggregation_weights: Any = None


@dataclass(frozen=True)
class Dense:
    """One id per activation row. A bare array means the same, without weights."""

    embedding_indices: Any
    aggregation_weights: Any = None


@dataclass(frozen=True)
class IdBatch:
    """The ids that one core looks up in one step; sample row s has the places splits[s] … splits[s + 1] - 1."""

    ids: NDArray[np.int64]
    gains: NDArray[np.float32]
    """Valid for tables marked in `weighted`; elsewhere every gain is 1 and this holds anything."""
    weighted: NDArray[np.bool_]
    splits: NDArray[np.int64]
    tasks: NDArray[np.int64]
    """Lookup tasks of `kernels.tasks.cut_samples`."""

    @property
    def is_small(self) -> bool:
        """True when one thread has looked it up before others would wake."""
        return len(self.ids) < _SMALL_LOOKUP


_SMALL_LOOKUP = 1 << 12
_SMALL_BATCH = 1 << 14


def named_inputs(inputs: Sequence[Any] | Mapping[str, Any], entries: Sequence[Entry]) -> list[Any]:
    """Returns the inputs in the order of `entries`. Raises: InputError for a wrong count or an unknown name."""
    if isinstance(inputs, Mapping):
        names = [entry.name for entry in entries]
        if len(set(names)) != len(names):
            raise InputError(f"inputs by name need distinct feature names, got {names}; pass a list instead")
        if set(inputs) != set(names):
            raise InputError(f"inputs must be named {names}, got {list(inputs)}")
        return [inputs[name] for name in names]
    check_sequence(inputs, "inputs", "a sequence or a mapping")
    if len(inputs) != len(entries):
        names = [entry.name for entry in entries]
        raise InputError(f"expected {len(entries)} inputs, one each for {names}, got {len(inputs)}")
    return list(inputs)


def read_batch(
    plan: Plan, tables: NDArray[np.int64], entries: Sequence[Entry], inputs: Sequence[Any], workers: Workers
) -> IdBatch:
    """Returns the inputs as an IdBatch that shares no memory with them; tables int64[T, 4] as in `kernels.records`.

    Raises: InputError that names the feature, the position and the value.
    """
    given = list(zip(entries, inputs, strict=True))
    sources = [_plain_source(plan, entry, value) or _Source(plan, entry, value) for entry, value in given]
    rows = np.array([source.row for source in sources], np.int64)
    small = int(rows[:, ingest.SIZE].sum()) < _SMALL_BATCH
    errors = np.zeros((len(sources), 3), np.int64)
    weighted = np.zeros(len(tables), np.bool_)
    weighted[[entry.table for (entry, _), source in zip(given, sources, strict=True) if source.weighted]] = True
    splits = recycled.empty(plan.sample_offsets[-1] + 1, np.int64)
    splits.fill(0)
    workers.run(ingest.measure, rows, splits, errors, parallel=not small)
    _raise_first(plan, given, errors)
    size = ingest.accumulate(splits)
    ids = recycled.empty(size, np.int64)
    gains = recycled.empty(size if weighted.any() else 0, np.float32)
    workers.run(ingest.fill, rows, splits, ids, gains, weighted, errors, parallel=not small)
    _raise_first(plan, given, errors)
    return IdBatch(ids, gains, weighted, splits, cut_samples(tables, plan.activation_samples, splits))


def _row(
    plan: Plan,
    entry: Entry,
    kind: int,
    ids: NDArray[np.int64],
    weights: int,
    index: int,
    columns: int,
    input_rows: int,
    sequence: int,
) -> tuple[int, ...]:
    """Returns the input's row of `kernels.ingest`; weights, index: addresses."""
    return (
        kind,
        address(ids),
        ids.size,
        weights,
        index,
        columns,
        input_rows,
        entry.table,
        plan.config.tables[entry.table].vocabulary_size,
        entry.first_sample,
        entry.cells,
        entry.block,
        entry.block_stride,
        sequence,
        ingest.SUM if sequence else entry.combiner,
    )


class _PlainSource(NamedTuple):
    """What is needed of an input that is as kernels take it."""

    row: tuple[int, ...]
    weighted: bool
    splits: NDArray[np.int64]
    """Keeps the memory alive."""


def _plain_source(plan: Plan, entry: Entry, value: Any) -> _PlainSource | None:
    """Returns what `_Source` makes of the most common input, in a third of the time; None for every other.

    A step of many small tables has microseconds for each.
    """
    if type(value) is not Ragged or not entry.is_flat:
        return None
    weights = value.aggregation_weights
    if not (weights is None or (type(weights) is np.ndarray and weights.size == 0)):
        return None
    ids, splits = value.embedding_indices, value.sample_splits
    if not (is_plain(ids, np.int64) and is_plain(splits, np.int64) and ids.ndim == splits.ndim == 1):
        return None
    input_rows = splits.size - 1
    if not 0 <= input_rows <= entry.cells:
        return None
    index = splits.copy()
    row = _row(plan, entry, ingest.RAGGED, ids, 0, address(index), 1, input_rows, 0)
    return _PlainSource(row, entry.combiner > 0, index)


class _Source:
    """One input, read as arrays and described as a row of `kernels.ingest`; it keeps the arrays alive."""

    kept: NDArray[np.bool_] | None = None
    """Which of the given ids the feature has room for; None for all."""

    def __init__(self, plan: Plan, entry: Entry, value: Any) -> None:
        self.entry = entry
        self.value = value
        self.table = plan.config.tables[entry.table]
        self.sequence = entry.sequence
        self.index = _NO_INDEX
        self.columns = 1
        self.input_rows = 0
        self.shape: tuple[int, ...] | None = None
        if isinstance(value, (Sparse, Ragged, Dense)):
            self.ids, self.weights = value.embedding_indices, value.aggregation_weights
        else:
            self.ids, self.weights = value, None
        if isinstance(value, Ragged) and _has_elements(value.sample_splits):
            kind = ingest.RAGGED
            self._read_splits(value)
        elif isinstance(value, Sparse) and _has_elements(value.sample_indices):
            kind = ingest.SPARSE
            self._read_indices(value)
        else:
            # Source: enqueue ops, TensorFlow 2.21: an empty index tensor makes every id its own sample.
            kind = ingest.DENSE
            self._read_dense()
        if self.weights is not None:
            self._read_weights()
        if self.kept is not None:
            self._leave_out()
        self.weighted = self.weights is not None or (kind != ingest.DENSE and not self.sequence and entry.combiner > 0)
        weights = 0 if self.weights is None else address(self.weights)
        index = address(self.index)
        self.row = _row(plan, entry, kind, self.ids, weights, index, self.columns, self.input_rows, self.sequence)

    def error(self, code: int, position: int, value: int) -> InputError:
        """Returns the error that a kernel reported."""
        given = position
        if self.kept is not None:
            position = int(np.flatnonzero(self.kept)[position])
        texts = {
            ingest.ID: f"embedding_indices[{position}] must be an id in [0, {self.table.vocabulary_size}) "
            f"of table {self.table.name!r}, got {value}",
            ingest.ROW: f"sample_indices[{position}] must be a row in [0, {self.input_rows}), got {value}",
            ingest.POSITION: f"sample_indices[{position}] has a negative position in its row, {value}",
            ingest.FIRST_SPLIT: f"sample_splits[0] must be 0, got {value}",
            ingest.SPLIT_ORDER: f"sample_splits must not descend, but [{position}] = {value} is below the one before",
            ingest.LAST_SPLIT: f"sample_splits[{position}], the last, must be the number of embedding_indices, "
            f"{self.ids.size}, got {value}",
        }
        if code == ingest.ROW_ORDER:
            row = as_array(self.value.sample_indices, "sample_indices")[position].tolist()
            return self._refuse(f"sample_indices must ascend, but [{position}] = {row} comes after a later one")
        if code == ingest.WEIGHT:
            return self._refuse(f"aggregation_weights[{position}] must be finite, got {self.weights[given]}")
        return self._refuse(texts[code])

    def _read_splits(self, value: Ragged) -> None:
        self.ids = self._vector("embedding_indices", self.ids)
        # A copy, for the kernels rely on splits that stay as they were checked.
        self.index = self._vector("sample_splits", value.sample_splits).copy()
        self.input_rows = self.index.size - 1
        shape = self.entry.input_shape
        if self.sequence == 0 and len(shape) > 1 and self.input_rows * shape[-1] == self.entry.cells != self.input_rows:
            self.sequence = shape[-1]
        most = self._most_rows()
        if self.input_rows > most:
            raise self._refuse(f"sample_splits must be for at most {most} rows, got {self.input_rows}")

    def _read_indices(self, value: Sparse) -> None:
        self.ids = self._vector("embedding_indices", self.ids)
        index = as_integers(value.sample_indices, self._name("sample_indices"))
        if index.ndim not in (1, 2) or len(index) != self.ids.size:
            raise self._refuse(
                f"sample_indices must have shape [n] or [n, rank] for the {self.ids.size} embedding_indices, "
                f"got {list(index.shape)}"
            )
        if index.ndim == 2 and index.shape[1] > 2:
            index = self._flatten(index)
        self.index = index
        self.columns = 1 if index.ndim == 1 else index.shape[1]
        self.input_rows = self._most_rows()

    def _flatten(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the flat cell of each SparseTensor index [n, r] whose first r - 1 columns address input_shape."""
        shape = self.entry.input_shape
        if self.sequence or index.shape[1] - 1 != len(shape):
            raise self._refuse(
                f"sample_indices of rank {index.shape[1]} need an input_shape of rank {index.shape[1] - 1} without "
                f"max_sequence_lengths, the feature has {list(shape)}"
            )
        cells = index[:, :-1]
        kept = cells[:, -1] < shape[-1]
        if len(shape) > 1 and not kept.all():
            self.kept = kept
            cells = np.where(kept[:, None], cells, 0)
        for position in np.flatnonzero(((cells < 0) | (cells >= shape)).any(axis=1))[:1]:
            raise self._refuse(
                f"sample_indices[{position}] must lie in input_shape {list(shape)}, got {index[position].tolist()}"
            )
        return np.ravel_multi_index(tuple(cells.T), shape).astype(np.int64)

    def _leave_out(self) -> None:
        """Drops the ids that are not `kept`, with their weights."""
        self.ids, self.index = self.ids[self.kept], self.index[self.kept]
        if self.weights is not None:
            self.weights = self.weights[self.kept]

    def _read_dense(self) -> None:
        ids = as_integers(self.ids, self._name("embedding_indices"))
        most, shape = self._most_rows(), self.entry.input_shape
        rows = ids.shape[:-1] if ids.ndim == len(shape) + 1 and ids.shape[-1] == 1 else ids.shape
        if ids.ndim > 1 and (rows[1:] != shape[1:] or rows[0] > shape[0]):
            raise self._refuse(f"embedding_indices must have shape {list(shape)} or be flat, got {list(ids.shape)}")
        if ids.size > most:
            raise self._refuse(f"embedding_indices without an index must be at most {most}, one a row, got {ids.size}")
        if self.entry.is_table and 0 < ids.size < most:
            raise self._refuse(f"embedding_indices without an index must be {most}, one a row, got {ids.size}")
        self.shape = ids.shape
        self.ids = ids.reshape(-1)
        self.input_rows = most

    def _read_weights(self) -> None:
        weights = as_floats(self.weights, self._name("aggregation_weights"))
        if weights.size == 0:
            self.weights = None
            return
        if self.sequence:
            raise self._refuse("a sequence feature is not combined and takes no aggregation_weights")
        if weights.size != self.ids.size or (weights.ndim != 1 and weights.shape != self.shape):
            raise self._refuse(
                f"aggregation_weights must be as many as embedding_indices, {self.ids.size}, got {list(weights.shape)}"
            )
        self.weights = weights.reshape(-1)

    def _most_rows(self) -> int:
        return self.entry.cells // max(1, self.sequence)

    def _vector(self, field_name: str, value: Any) -> NDArray[np.int64]:
        if is_plain(value, np.int64) and value.ndim == 1:
            return value
        array = as_integers(value, self._name(field_name))
        if array.ndim != 1:
            raise self._refuse(f"{field_name} must have one axis, got shape {list(array.shape)}")
        return array

    def _name(self, field_name: str) -> str:
        return f"feature {self.entry.name!r}: {field_name}"

    def _refuse(self, problem: str) -> InputError:
        return InputError(f"feature {self.entry.name!r}: {problem}")


def _has_elements(index: Any) -> bool:
    return as_array(index, "an index").size > 0


_NO_INDEX = np.zeros(1, np.int64)


def _raise_first(plan: Plan, given: Sequence[tuple[Entry, Any]], errors: NDArray[np.int64]) -> None:
    for index in np.flatnonzero(errors[:, 0])[:1]:
        raise _Source(plan, *given[index]).error(*errors[index].tolist())
