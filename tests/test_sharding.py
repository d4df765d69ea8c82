from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anycore.errors import InputError
from anycore.sharding import Sharding, ShardingStrategy, overlap

DIV, MOD = ShardingStrategy

EXAMPLE = {
    DIV: [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10], [11, 12]],
    MOD: [[0, 5, 10], [1, 6, 11], [2, 7, 12], [3, 8], [4, 9]],
}

shardings = st.builds(
    Sharding,
    table_name=st.just("user"),
    vocabulary_size=st.integers(1, 60),
    num_shards=st.integers(1, 70),
    strategy=st.sampled_from(ShardingStrategy),
)


def ids_by_shard(sharding: Sharding) -> list[list[int]]:
    """Returns the ids of every shard that is not empty, by the slices."""
    everything = np.arange(sharding.vocabulary_size)
    filled = min(sharding.num_shards, sharding.vocabulary_size)
    return [everything[sharding.ids_of_shard(shard_id)].tolist() for shard_id in range(filled)]


@pytest.mark.parametrize("strategy", ShardingStrategy)
def test_thirteen_ids_on_five_shards(strategy: ShardingStrategy) -> None:
    assert ids_by_shard(Sharding("user", 13, 5, strategy)) == EXAMPLE[strategy]


def test_eight_rows_on_three_shards() -> None:
    assert [Sharding("user", 8, 3).size(shard_id) for shard_id in range(3)] == [3, 3, 2]


def test_strategies_have_the_numbers_of_the_wire() -> None:
    assert (DIV, MOD) == (0, 1)
    assert (DIV.name, MOD.name) == ("DIV_DEFAULT", "MOD")


@given(shardings)
def test_sizes_add_up_and_differ_by_one_at_most(sharding: Sharding) -> None:
    sizes = [sharding.size(shard_id) for shard_id in range(sharding.num_shards)]
    assert sum(sizes) == sharding.vocabulary_size
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


@given(shardings)
def test_slices_list_every_id_once_where_locate_puts_it(sharding: Sharding) -> None:
    shards = ids_by_shard(sharding)
    assert [len(ids) for ids in shards] == [sharding.size(shard_id) for shard_id in range(len(shards))]
    assert sorted(id_ for ids in shards for id_ in ids) == list(range(sharding.vocabulary_size))
    for expected_shard_id, ids in enumerate(shards):
        shard_id, row = sharding.locate(np.array(ids))
        assert shard_id.tolist() == [expected_shard_id] * len(ids)
        assert row.tolist() == list(range(len(ids)))


@given(shardings)
def test_ranges_are_the_slices_and_empty_without_rows(sharding: Sharding) -> None:
    ranges = [list(sharding.range_of_shard(shard_id)) for shard_id in range(sharding.num_shards)]
    shards = ids_by_shard(sharding)
    assert ranges == shards + [[]] * (sharding.num_shards - len(shards))


@given(shardings)
def test_ids_undoes_locate(sharding: Sharding) -> None:
    ids = np.arange(sharding.vocabulary_size).reshape(1, -1)
    shard_id, row = sharding.locate(ids)
    again = sharding.ids(shard_id, row)
    assert shard_id.dtype == row.dtype == again.dtype == np.int64
    np.testing.assert_array_equal(again, ids)


@given(shardings, st.data())
def test_one_id_gives_one_number(sharding: Sharding, data: st.DataObject) -> None:
    one = data.draw(st.integers(0, sharding.vocabulary_size - 1))
    shard_id, row = sharding.locate(one)
    assert 0 <= shard_id < sharding.num_shards
    assert 0 <= row < sharding.size(int(shard_id))
    assert sharding.ids(shard_id, row) == one


@pytest.mark.parametrize("strategy", ShardingStrategy)
def test_ids_beyond_32_bits(strategy: ShardingStrategy) -> None:
    sharding = Sharding("user", 2**40 + 3, 7, strategy)
    ids = np.array([0, 2**31, 2**40, 2**40 + 2])
    np.testing.assert_array_equal(sharding.ids(*sharding.locate(ids)), ids)


@pytest.mark.parametrize("num_shards", [0, -2])
def test_without_shards(num_shards: int) -> None:
    with pytest.raises(InputError, match=rf"^table 'user': num_shards must be at least 1, got {num_shards}$"):
        Sharding("user", 8, num_shards)


@pytest.mark.parametrize("shard_id", [-1, 3])
def test_no_such_shard(shard_id: int) -> None:
    message = rf"^table 'user': shard_id must be at least 0 and less than num_shards = 3, got {shard_id}$"
    with pytest.raises(InputError, match=message):
        Sharding("user", 8, 3).ids_of_shard(shard_id)


@pytest.mark.parametrize("strategy", ShardingStrategy)
def test_empty_shard(strategy: ShardingStrategy) -> None:
    message = r"^table 'user': every shard must hold a row, but shard_id 2 of 4 is empty; use at most 2 shards"
    sharding = Sharding("user", 2, 4, strategy)
    assert sharding.size(2) == 0
    with pytest.raises(InputError, match=message):
        sharding.ids_of_shard(2)


RANGES = st.builds(range, st.integers(0, 40), st.integers(0, 80), st.integers(1, 9))


@given(RANGES, RANGES)
def test_overlap_is_what_both_hold(a: range, b: range) -> None:
    assert list(overlap(a, b)) == sorted(set(a) & set(b))
