from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anycore.arrays import address
from anycore.kernels.lookup import lookup
from anycore.kernels.parallel import Workers

DIMENSIONS = [1, 3, 16, 63, 64, 130]
NONE = (0.0, 0.0, 0.0)
"""No quantization: lower limit, upper limit, bucket width."""
WORKERS = Workers(2)


class Tables:
    """Random tables whose records are `spare` floats wider than the parameters."""

    def __init__(self, rng: Any, rows: list[int], dimensions: list[int], spare: int = 5) -> None:
        self.dimensions = np.array(dimensions)
        self.records = [
            rng.normal(0, 1, (n, dimension + spare)).astype(np.float32)
            for n, dimension in zip(rows, dimensions, strict=True)
        ]
        self.descriptors = np.array(
            [(address(r), r.strides[0], r.shape[1] - spare, r.shape[0]) for r in self.records], np.int64
        )

    def row(self, table: int, row: int) -> np.ndarray:
        """Returns the parameters of one row."""
        return self.records[table][row, : self.dimensions[table]]


class Batch:
    """Random ids and gains, few per sample and many in the last sample of a table."""

    def __init__(self, rng: Any, tables: Tables, samples: list[int], weighted: list[bool]) -> None:
        self.offsets = np.concatenate([[0], np.cumsum(samples)])
        counts = [rng.integers(0, 4, n) for n in samples]
        for of_table in counts:
            of_table[-1:] += 40
        owners = np.repeat(np.arange(len(samples)), [of_table.sum() for of_table in counts])
        self.splits = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
        self.ids = rng.integers(0, [len(tables.records[owner]) for owner in owners])
        self.gains = rng.normal(0, 1, len(owners)).astype(np.float32)
        self.weighted = np.array(weighted)


def look_up(tables: Tables, batch: Batch, quantization: list[tuple[float, float, float]], pieces: int) -> Any:
    """Returns the activations of each table; every table is cut into `pieces` tasks."""
    outputs, places, tasks = [], [], []
    for table, (first, last) in enumerate(pairwise(batch.offsets)):
        dimension = int(tables.dimensions[table])
        # NaN shows what was not written, the guard what should not have been.
        outputs.append(np.full((last - first + 1, dimension), np.nan, np.float32))
        outputs[-1][-1] = -7
        places.append(address(outputs[-1]) - 4 * dimension * int(first))
        cuts = np.linspace(first, last, pieces + 1).astype(int)
        tasks += [(table, *cut, table) for cut in pairwise(cuts)]
    WORKERS.run(
        lookup,
        *(np.array(tasks), tables.descriptors, np.array(quantization, np.float32), batch.ids, batch.splits),
        *(batch.gains, batch.weighted, np.array(places)),
    )
    assert all((output[-1] == -7).all() for output in outputs)
    return [output[:-1] for output in outputs]


def look_up_with_numpy(tables: Tables, batch: Batch, quantization: list[tuple[float, float, float]]) -> Any:
    """Returns the same by float32 sums, in the order of the ids."""
    activations = []
    for table, (first, last) in enumerate(pairwise(batch.offsets)):
        lower, upper, width = np.array(quantization[table], np.float32)
        activations.append(np.zeros((last - first, tables.dimensions[table]), np.float32))
        for sample in range(first, last):
            total = None
            for place in range(batch.splits[sample], batch.splits[sample + 1]):
                row = tables.row(table, batch.ids[place])
                if width:
                    row = np.floor((np.clip(row, lower, upper) - lower) / width + np.float32(0.5)) * width + lower
                term = (batch.gains[place] if batch.weighted[table] else np.float32(1)) * row
                total = term if total is None else total + term
            if total is not None:
                assert total.dtype == np.float32
                activations[-1][sample - first] = total
    return activations


def assert_same_bits(ours: Any, theirs: Any) -> None:
    """Equal, and with the same sign of zero."""
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_array_equal(a.view(np.int32), b.view(np.int32))


@pytest.mark.parametrize("quantization", [NONE, (-0.75, 1.25, 0.1)], ids=["exact", "quantized"])
@pytest.mark.parametrize("weighted", [False, True], ids=["ones", "weighted"])
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_one_table(dimension: int, weighted: bool, quantization: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(dimension)
    tables = Tables(rng, [30], [dimension])
    batch = Batch(rng, tables, [20], [weighted])
    expected = look_up_with_numpy(tables, batch, [quantization])
    for pieces in (1, 2, 20):
        assert_same_bits(look_up(tables, batch, [quantization], pieces), expected)


@given(
    shapes=st.lists(
        st.tuples(st.integers(1, 40), st.sampled_from(DIMENSIONS), st.integers(0, 6), st.booleans(), st.booleans()),
        min_size=1,
        max_size=5,
    ),
    pieces=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_many_tables(shapes: list[tuple[int, int, int, bool, bool]], pieces: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, dimensions, samples, weighted, quantized = (list(column) for column in zip(*shapes, strict=True))
    tables = Tables(rng, rows, dimensions)
    batch = Batch(rng, tables, samples, weighted)
    quantization = [(-0.5, 0.5, 0.25) if flag else NONE for flag in quantized]
    expected = look_up_with_numpy(tables, batch, quantization)
    assert_same_bits(look_up(tables, batch, quantization, pieces), expected)


def by_hand(row: Any, splits: list[int], quantization: tuple[float, float, float] = NONE, gain: float = 1) -> Any:
    """Returns the activations of a table of one row."""
    rng = np.random.default_rng(0)
    tables = Tables(rng, [1], [len(row)])
    tables.row(0, 0)[:] = row
    batch = Batch(rng, tables, [len(splits) - 1], [gain != 1])
    batch.splits, batch.ids = np.array(splits), np.zeros(splits[-1], np.int64)
    batch.gains = np.full(splits[-1], gain, np.float32)
    return look_up(tables, batch, [quantization], 1)[0]


def test_empty_samples_are_zero() -> None:
    assert by_hand([2, 3], [0, 0, 1, 1, 3, 3]).tolist() == [[0, 0], [2, 3], [0, 0], [4, 6], [0, 0]]


def test_a_gain_of_zero_is_no_empty_sample() -> None:
    """0 · inf is NaN: a diverged row shows."""
    np.testing.assert_array_equal(by_hand([2, np.inf], [0, 1, 1], gain=0), [[0, np.nan], [0, 0]])


def test_one_id_is_a_copy() -> None:
    row = np.array([-0.0, 1e-45, 3.4e38, -np.inf, np.nan], np.float32)
    assert_same_bits(by_hand(row, [0, 1]), row[None])


@pytest.mark.parametrize(
    ("value", "expected"),
    # Five buckets from -1 to 1; half way rounds up; beyond the limits counts as at them.
    [(-9, -1), (-1, -1), (-0.76, -1), (-0.75, -0.5), (-0.1, 0), (0.24, 0), (0.25, 0.5), (0.99, 1), (9, 1), (np.inf, 1)],
)
def test_quantization_rounds_to_the_nearest_bucket(value: float, expected: float) -> None:
    assert by_hand([value], [0, 1], (-1, 1, 0.5)).item() == expected


def test_quantization_rounds_each_row_and_not_the_sum() -> None:
    assert by_hand([0.2], [0, 3], (-1, 1, 0.5)).item() == 0
    assert by_hand([0.3], [0, 3], (-1, 1, 0.5), gain=0.1).item() == pytest.approx(0.15)


def test_quantization_keeps_nan() -> None:
    """A diverged row must show, not pass for one at a limit."""
    assert np.isnan(by_hand([np.nan], [0, 1], (-1, 1, 0.5)).item())


def test_no_task() -> None:
    """A table without samples and a batch without ids ask for nothing."""
    rng = np.random.default_rng(0)
    tables = Tables(rng, [1], [3])
    batch = Batch(rng, tables, [0], [False])
    assert look_up(tables, batch, [NONE], 1)[0].shape == (0, 3)
