"""The kernels that lay inputs out as sample rows: on descriptions made by hand, and on random inputs as a whole."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import pytest
import reference_inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from id_batches import cells, gains, one_feature, read
from strategies import inputs, wrapper

from anycore import EmbeddingConfig, FeatureConfig, Ragged, Sparse, TableConfig
from anycore.arrays import address
from anycore.kernels import ingest
from anycore.kernels.ingest import DENSE, MEAN, RAGGED, SPARSE, SQRTN, SUM
from anycore.kernels.parallel import workers
from anycore.optimizers import Adagrad


class Entries:
    """Descriptions of entries, the arrays that they point to, and what the kernels make of them."""

    def __init__(self, num_samples: int, weighted: list[bool]) -> None:
        self.splits = np.zeros(num_samples + 1, np.int64)
        self.weighted = np.array(weighted)
        self._rows: list[list[int]] = []
        self._arrays: list[np.ndarray] = []

    def add(
        self,
        kind: int,
        ids: list[int],
        index: Any = (),
        weights: list[float] | None = None,
        *,
        first: int = 0,
        num_cells: int,
        block: int | None = None,
        stride: int | None = None,
        sequence: int = 0,
        combiner: int = SUM,
        table: int = 0,
    ) -> Entries:
        index = np.array(index, np.int64)
        columns = index.shape[1] if index.ndim == 2 else 1
        input_rows = len(index) - 1 if kind == RAGGED else num_cells // max(1, sequence)
        block = block or num_cells
        source = [self._address(np.array(ids, np.int64)), len(ids)]
        source += [0 if weights is None else self._address(np.array(weights, np.float32)), self._address(index)]
        target = [table, 10, first, num_cells, block, stride or block, sequence, combiner]
        self._rows.append([kind, *source, columns, input_rows, *target])
        assert len(self._rows[-1]) == ingest.ENTRY_COLUMNS
        return self

    def run(self, threads: int = 1) -> tuple[list[list[int]], list[list[float]], list[list[int]]]:
        """Returns ids, gains and errors."""
        rows, errors = np.array(self._rows, np.int64), np.zeros((len(self._rows), 3), np.int64)
        workers(threads).run(ingest.measure, rows, self.splits, errors)
        if errors.any():
            return [], [], errors.tolist()
        size = ingest.accumulate(self.splits)
        ids, values = np.full(size, -1, np.int64), np.full(size, 99, np.float32)
        workers(threads).run(ingest.fill, rows, self.splits, ids, values, self.weighted, errors)
        cut = list(pairwise(self.splits))
        return [ids[a:b].tolist() for a, b in cut], [values[a:b].tolist() for a, b in cut], errors.tolist()

    def _address(self, array: np.ndarray) -> int:
        self._arrays.append(array)
        return address(array)


OK = [0, 0, 0]


def interleaved() -> Entries:
    """Two samples of four rows: a dense row, two ragged ones, a sparse one; then a sequence of three each."""
    entries = Entries(14, [True, False])
    entries.add(DENSE, [1, 2], num_cells=2, block=1, stride=4, combiner=MEAN)
    splits = [0, 2, 2, 3, 4]
    entries.add(RAGGED, [3, 4, 5, 6], splits, [1, 3, 2, 0], first=1, num_cells=4, block=2, stride=4, combiner=MEAN)
    entries.add(SPARSE, [7, 8], [[1, 0], [1, 1]], first=3, num_cells=2, block=1, stride=4, combiner=SQRTN)
    return entries.add(RAGGED, [1, 2, 3, 4, 5], [0, 1, 5], first=8, num_cells=6, sequence=3, table=1)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_entries_of_all_kinds_side_by_side(threads: int) -> None:
    ids, values, errors = interleaved().run(threads)
    assert ids[:8] == [[1], [3, 4], [], [], [2], [5], [6], [7, 8]]
    half = np.float32(1) / np.sqrt(np.float32(2))
    assert values[:8] == [[1], [0.25, 0.75], [], [], [1], [1], [0], [half, half]]
    assert ids[8:] == [[1], [], [], [2], [3], [4]]
    assert values[8:] == [[99], [], [], [99], [99], [99]]  # not written: the table needs no gains
    assert errors == [OK] * 4


@pytest.mark.parametrize(
    ("kind", "index"),
    [
        (SPARSE, [0, 0, 1, 1, 1]),
        (SPARSE, [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2]]),
        (SPARSE, [[0], [0], [1], [1], [1]]),
        (RAGGED, [0, 2, 5]),
    ],
)
def test_sequences_in_blocks(kind: int, index: Any) -> None:
    """A sequence of two beside a row: its cells are row · 2 + position, in blocks of two every three rows."""
    entries = Entries(6, [True])
    entries.add(kind, [1, 2, 3, 4, 5], index, num_cells=4, block=2, stride=3, sequence=2)
    entries.add(DENSE, [8, 9], weights=[0.5, 2], first=2, num_cells=2, block=1, stride=3)
    ids, values, _ = entries.run()
    assert ids == [[1], [2], [8], [3], [4], [9]]
    assert values == [[1], [1], [0.5], [1], [1], [2]]


@pytest.mark.parametrize(
    ("combiner", "weights", "expected"),
    [
        (SUM, [3, -4, 0, 0, 5], [3, -4, 0, 0, 5]),
        (MEAN, [3, -4, 0, 0, 5], [-3, 4, 0, 0, 1]),
        (SQRTN, [3, -4, 0, 0, 5], [0.6, -0.8, 0, 0, 1]),
        (MEAN, [1, -1, 2, 6, -1], [0, 0, 0.25, 0.75, 1]),
        (MEAN, None, [0.5, 0.5, 0.5, 0.5, 1]),
        (SUM, None, [1, 1, 1, 1, 1]),
    ],
)
@pytest.mark.parametrize("stride", [3, 4])  # where rows are side by side, and where they are not
def test_combiners(combiner: int, weights: Any, expected: list[float], stride: int) -> None:
    entries = Entries(4, [True])
    entries.add(RAGGED, [0] * 5, [0, 2, 4, 5], weights, num_cells=3, block=3, stride=stride, combiner=combiner)
    _, values, _ = entries.run()
    assert np.concatenate(values) == pytest.approx(expected, rel=1e-7, abs=0)


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({"kind": DENSE, "ids": [1, 10]}, [ingest.ID, 1, 10]),
        ({"kind": DENSE, "ids": [1, -1, 11]}, [ingest.ID, 1, -1]),
        ({"kind": DENSE, "ids": [1, 2], "weights": [1, np.inf]}, [ingest.WEIGHT, 1, 0]),
        ({"kind": SPARSE, "ids": [1, 2], "index": [0, 4]}, [ingest.ROW, 1, 4]),
        ({"kind": SPARSE, "ids": [1, 2], "index": [-1, 0]}, [ingest.ROW, 0, -1]),
        ({"kind": SPARSE, "ids": [1, 2], "index": [2, 1]}, [ingest.ROW_ORDER, 1, 1]),
        ({"kind": SPARSE, "ids": [1], "index": [[1, -2]], "sequence": 2}, [ingest.POSITION, 0, -2]),
        ({"kind": SPARSE, "ids": [1, 2], "index": [[0, 1], [0, 0]], "sequence": 2}, [ingest.ROW_ORDER, 1, 0]),
        ({"kind": RAGGED, "ids": [1], "index": [1, 1]}, [ingest.FIRST_SPLIT, 0, 1]),
        ({"kind": RAGGED, "ids": [1], "index": [0, 2, 1]}, [ingest.SPLIT_ORDER, 2, 1]),
        ({"kind": RAGGED, "ids": [1], "index": [0, 0, 2]}, [ingest.LAST_SPLIT, 2, 2]),
        ({"kind": RAGGED, "ids": [1], "index": [0, 2**62, 1]}, [ingest.SPLIT_ORDER, 2, 1]),
        ({"kind": RAGGED, "ids": [1], "index": [0, 2**62]}, [ingest.LAST_SPLIT, 1, 2**62]),
        ({"kind": RAGGED, "ids": [1], "index": [0, 0, 2], "sequence": 2}, [ingest.LAST_SPLIT, 2, 2]),
    ],
)
def test_errors_are_of_their_entry(entry: dict[str, Any], error: list[int]) -> None:
    entries = Entries(12, [True])
    entries.add(DENSE, [1, 2], num_cells=4)
    entries.add(**entry, first=4, num_cells=4)
    entries.add(SPARSE, [3, 4], [1, 2], num_cells=4, first=8)
    assert entries.run()[-1] == [OK, error, OK]


def test_accumulate() -> None:
    counts = np.array([0, 2, 0, 3])
    assert ingest.accumulate(counts) == 5
    assert counts.tolist() == [0, 2, 2, 5]


def test_threads_agree_on_a_large_batch() -> None:
    random = np.random.default_rng(0)
    tables = [TableConfig(f"t{k}", 1000, 1, Adagrad()) for k in range(3)]
    features = [FeatureConfig(f"f{k}", f"t{k % 3}", [500]) for k in range(9)]
    counts = random.integers(0, 9, (9, 500))
    ids = [random.integers(0, 1000, count.sum()) for count in counts]
    weights = [random.random(count.sum(), np.float32) for count in counts]
    values = [
        Ragged(np.concatenate([[0], np.cumsum(counts[k])]), ids[k], weights[k])
        if k % 2
        else Sparse(np.repeat(np.arange(500), counts[k]), ids[k], weights[k])
        for k in range(9)
    ]
    assert sum(map(len, ids)) > 1 << 14  # enough to wake the threads
    order = [0, 3, 6, 1, 4, 7, 2, 5, 8]  # of sample rows: table by table
    for threads in (1, 3):
        batch = read(EmbeddingConfig(tables, features), *values, threads=threads)
        np.testing.assert_array_equal(np.diff(batch.splits), np.concatenate([counts[k] for k in order]))
        np.testing.assert_array_equal(batch.ids, np.concatenate([ids[k] for k in order]))
        np.testing.assert_array_equal(batch.gains, np.concatenate([weights[k] for k in order]))


@settings(max_examples=200)
@given(st.data())
def test_agrees_with_the_reference(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    length = data.draw(st.sampled_from([0, shape[-1]])) if len(shape) > 1 else 0
    combiner = data.draw(st.sampled_from(["sum", "mean", "sqrtn"]))
    described = data.draw(inputs(shape, length, 10, False))
    batch = read(one_feature(shape, combiner), wrapper(Sparse, Ragged)(described), max_sequence_lengths=[length])
    expected = reference_inputs.lookups(
        wrapper(reference_inputs.Sparse, reference_inputs.Ragged)(described), shape, 10, combiner, length, False
    )
    assert cells(batch) == [[x.id for x in expected if x.cell == cell] for cell in range(prod(shape))]
    assert [gain for cell in gains(batch) for gain in cell] == pytest.approx(
        [x.gain for x in expected], rel=1e-6, abs=1e-7
    )
