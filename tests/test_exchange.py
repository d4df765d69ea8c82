"""Who needs which rows of whom."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anycore.batch import IdBatch
from anycore.exchange import asked, core_entries, wanted
from anycore.kernels.parallel import workers
from anycore.sharding import Sharding, ShardingStrategy

SIZES = np.array([7, 30], np.int64)
DIMENSIONS = np.array([2, 3], np.int64)
TABLES = np.array([[0, 0, 2, 7], [0, 0, 3, 30]], np.int64)


def batch_of(ids: list[list[int]]) -> IdBatch:
    """One sample row per id."""
    flat = np.array(ids[0] + ids[1], np.int64)
    none = np.zeros(2, np.bool_)
    return IdBatch(flat, np.empty(0, np.float32), none, np.arange(len(flat) + 1), np.empty((0, 4), np.int64))


@given(
    ids=st.lists(st.tuples(st.lists(st.integers(0, 6)), st.lists(st.integers(0, 29))), min_size=1, max_size=3),
    size=st.integers(1, 5),
    strategy=st.sampled_from(ShardingStrategy),
    summed=st.tuples(st.booleans(), st.booleans()),
)
def test_every_place_gets_a_place_in_the_message_of_its_owner(
    ids: list[tuple[list[int], list[int]]], size: int, strategy: ShardingStrategy, summed: tuple[bool, bool]
) -> None:
    cores = [
        core_entries(
            batch_of([first, second]),
            np.array([0, len(first), len(first) + len(second)]),
            TABLES,
            np.array(summed),
            workers(1),
        )
        for first, second in ids
    ]
    needs = wanted(cores, SIZES, DIMENSIONS, size, strategy == ShardingStrategy.MOD)
    messages = needs.row_messages()
    seen: set[int] = set()
    for core, (entries, given_ids) in enumerate(zip(cores, ids, strict=True)):
        for table in range(2):
            sharding = Sharding("t", int(SIZES[table]), size, strategy)
            covered = []
            for e in range(entries.table_entries[table], entries.table_entries[table + 1]):
                places = entries.positions[entries.starts[e] : entries.starts[e + 1]]
                assert [given_ids[table][place] for place in places] == [entries.rows[e]] * len(places)
                assert list(places) == sorted(places)
                covered += places.tolist()
                owner, row = (int(value) for value in sharding.locate(int(entries.rows[e])))
                # Its floats are where its row stands in the message, counted in floats.
                offset = needs.offsets[core][e]
                before = needs.counts[owner, :core] @ DIMENSIONS
                first = needs.floats[owner] + before.sum() + needs.counts[owner, core, :table] @ DIMENSIONS[:table]
                slot = (offset - first) // DIMENSIONS[table]
                assert 0 <= slot < needs.counts[owner, core, table]
                rows_before = needs.counts[owner, :core].sum() + needs.counts[owner, core, :table].sum()
                assert messages[owner][rows_before + slot] == row
                assert offset not in seen
                seen.add(int(offset))
            assert sorted(covered) == list(range(len(given_ids[table])))
            if summed[table]:
                assert needs.counts[:, core, table].sum() == len(set(given_ids[table]))


@pytest.mark.parametrize("counts", [[[2, 1], [0, 3]], [[0, 0], [0, 0]], [[1, 0], [4, 2]]])
def test_what_is_asked_becomes_batches_of_one_id_a_sample(counts: list[list[int]]) -> None:
    table = np.array(counts, np.int64)
    rows = np.arange(table.sum())
    orders = asked(table, rows, DIMENSIONS)
    offsets = orders.sample_offsets()
    assert np.diff(offsets).tolist() == table.max(axis=0).tolist()
    found = []
    for batch, of_core in zip(orders.batches(), counts, strict=True):
        assert np.diff(batch.splits[offsets]).tolist() == of_core
        assert set(np.diff(batch.splits).tolist()) <= {0, 1}
        found += batch.ids.tolist()
    assert found == rows.tolist()
    assert orders.num_floats([1, 1])[-1] == (table @ DIMENSIONS).sum()
