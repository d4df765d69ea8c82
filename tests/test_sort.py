from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anycore.arrays import address
from anycore.kernels.parallel import Workers
from anycore.kernels.records import COLUMNS, ROWS
from anycore.kernels.sort import COUNT, TABLE, bit_length, cut_segments, sort_rows

# Around one and two digits of the sort, and more than 31 bits.
VOCABULARIES = [1, 2, 2047, 2048, 2049, 2**22, 2**22 + 1, 2**31 + 5]
SIZES = [0, 1, 2, 1000]
WORKERS = Workers(2)


@dataclass
class Core:
    """What one core looks up: splits over the samples of all tables, ids, gains, and which tables have gains."""

    splits: np.ndarray
    ids: np.ndarray
    gains: np.ndarray
    weighted: np.ndarray


def random_core(rng: Any, vocabularies: list[int], samples: list[int], sizes: list[int], weighted: list[bool]) -> Core:
    """Returns as many ids per table as `sizes` says, half of them from a few rows, spread over its samples."""
    counts, ids = [], []
    for vocabulary, num_samples, size in zip(vocabularies, samples, sizes, strict=True):
        size *= num_samples > 0
        of_sample = rng.integers(0, max(1, num_samples), size)
        counts.append(np.bincount(of_sample, minlength=num_samples)[:num_samples])
        few = rng.integers(0, vocabulary, 5)
        ids.append(np.where(rng.random(size) < 0.5, rng.choice(few, size), rng.integers(0, vocabulary, size)))
    splits = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    gains = rng.normal(0, 1, splits[-1] if any(weighted) else 0).astype(np.float32)
    return Core(splits, np.concatenate(ids).astype(np.int64), gains, np.array(weighted))


def sort(vocabularies: list[int], samples: list[int], cores: list[Core], pieces: int) -> list[tuple[Any, ...]]:
    """Returns for each table the distinct rows, the starts counted from its first place, the samples and the gains."""
    tables = np.zeros((len(vocabularies), COLUMNS), np.int64)
    tables[:, ROWS] = vocabularies
    sample_offsets = np.concatenate([[0], np.cumsum(samples)])
    id_offsets = np.sum([core.splits[sample_offsets] for core in cores], axis=0)
    weighted = np.array([core.weighted for core in cores])
    addresses = np.array([[address(core.splits), address(core.ids), address(core.gains)] for core in cores])
    segments = cut_segments(tables, sample_offsets, addresses, id_offsets, pieces, 10)
    count = id_offsets[-1]
    sorted_samples, gains = np.full(count, -9, np.int32), np.full(count, np.nan, np.float32)
    rows, starts = np.full((2, count + len(segments)), -9)
    distinct = np.full(len(segments), -9)
    scratch = np.empty((WORKERS.num_threads, 3, segments[:, COUNT].max() + 1), np.uint64)
    WORKERS.run(
        sort_rows,
        *(tables, sample_offsets, addresses, weighted, segments, scratch),
        *(sorted_samples, gains, rows, starts, distinct),
    )
    found: list[tuple[Any, ...]] = []
    for table, (first, last) in enumerate(pairwise(id_offsets)):
        table_rows, table_starts = [], []
        row = 0
        for s in np.flatnonzero(segments[:, TABLE] == table):
            _, first_row, last_row, offset, ids = segments[s]
            assert first_row == row
            assert first_row < last_row or pieces > 1
            row = last_row
            place, number = offset + s, distinct[s]
            assert starts[place + number] == offset + ids
            assert all(first_row <= r < last_row for r in rows[place : place + number])
            table_rows.append(rows[place : place + number])
            table_starts.append(starts[place : place + number] - first)
        assert row == vocabularies[table]
        new_gains = gains[first:last] if weighted[:, table].any() else np.ones(last - first, np.float32)
        starts_and_end = np.append(np.concatenate(table_starts), last - first)
        found.append((np.concatenate(table_rows), starts_and_end, sorted_samples[first:last], new_gains))
    return found


def sort_with_numpy(samples: list[int], cores: list[Core]) -> list[tuple[Any, ...]]:
    """Returns the same by a stable sort of each table's ids, core after core."""
    offsets = np.concatenate([[0], np.cumsum(samples)])
    found: list[tuple[Any, ...]] = []
    for table, (first, last) in enumerate(pairwise(offsets)):
        ids, owners, gains = [], [], []
        for number, core in enumerate(cores):
            places = slice(core.splits[first], core.splits[last])
            counts = np.diff(core.splits[first : last + 1])
            ids.append(core.ids[places])
            owners.append(np.repeat(np.arange(last - first) + number * (last - first), counts))
            gains.append(core.gains[places] if core.weighted[table] else np.ones(len(ids[-1]), np.float32))
        order = np.argsort(np.concatenate(ids), kind="stable")
        in_order = np.concatenate(ids)[order]
        rows, starts = np.unique(in_order, return_index=True)
        found.append((rows, np.append(starts, len(order)), np.concatenate(owners)[order], np.concatenate(gains)[order]))
    return found


def assert_sorted(vocabularies: list[int], samples: list[int], cores: list[Core]) -> None:
    expected = sort_with_numpy(samples, cores)
    for pieces in (1, 3):
        found = sort(vocabularies, samples, cores, pieces)
        for of_table, expected_of_table in zip(found, expected, strict=True):
            for ours, theirs in zip(of_table, expected_of_table, strict=True):
                np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("num_cores", [1, 3])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_one_table(vocabulary: int, size: int, num_cores: int) -> None:
    rng = np.random.default_rng(size)
    cores = [random_core(rng, [vocabulary], [7], [size], [number == 1]) for number in range(num_cores)]
    assert_sorted([vocabulary], [7], cores)


@given(
    tables=st.lists(
        st.tuples(st.sampled_from(VOCABULARIES), st.integers(0, 5), st.sampled_from(SIZES)), min_size=1, max_size=6
    ),
    weighted=st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
def test_many_tables_many_cores(tables: list[tuple[int, int, int]], weighted: list[list[bool]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    vocabularies, samples, _ = (list(column) for column in zip(*tables, strict=True))
    cores = []
    for flags in weighted:
        sizes = [int(rng.choice([size, 0, 1])) for _, _, size in tables]
        cores.append(random_core(rng, vocabularies, samples, sizes, flags[: len(tables)]))
    assert_sorted(vocabularies, samples, cores)


def test_equal_ids_keep_their_order() -> None:
    """The order of core, sample and place is what makes sums canonical."""
    splits, ids = np.array([0, 3, 3, 5]), np.array([4, 0, 4, 4, 4])
    cores = [Core(splits, ids, np.arange(5, dtype=np.float32) + 10 * k, np.array([True])) for k in range(2)]
    ((rows, starts, samples, gains),) = sort([5], [3], cores, 1)
    assert (rows.tolist(), starts.tolist()) == ([0, 4], [0, 2, 10])
    assert samples.tolist() == [0, 3, 0, 0, 2, 2, 3, 3, 5, 5]
    assert gains.tolist() == [1, 11, 0, 2, 3, 4, 10, 12, 13, 14]


@pytest.mark.parametrize("value", [0, 1, 2, 3, 4, 2047, 2048, 2**31, 2**40 + 1])
def test_bit_length(value: int) -> None:
    assert bit_length(value) == value.bit_length()


def cut(counts: list[int], pieces: int, smallest: int) -> np.ndarray:
    """Returns the segments of tables with that many ids."""
    rng = np.random.default_rng(0)
    splits = np.concatenate([[0], np.cumsum(counts)])
    ids = rng.integers(0, 10**6, splits[-1])
    tables = np.zeros((len(counts), COLUMNS), np.int64)
    tables[:, ROWS] = 10**6
    gains = np.empty(0, np.float32)
    addresses = np.array([[address(splits), address(ids), address(gains)]])
    return cut_segments(tables, np.arange(len(splits)), addresses, splits, pieces, smallest)


def test_a_table_with_many_ids_is_cut_into_about_equal_segments() -> None:
    segments = cut([10_000], 4, 2_000)
    assert len(segments) == 4
    assert segments[:, COUNT].sum() == 10_000
    assert segments[:, COUNT].max() < 2_600


def test_a_table_stays_whole_where_the_threads_share_the_tables() -> None:
    """A range reads all ids of its table."""
    assert cut([10_000] * 8, 4, 2_000)[:, COUNT].tolist() == [10_000] * 8
    assert cut([10_000, 70_000], 4, 2_000)[:, TABLE].tolist() == [0, 1, 1, 1, 1]
