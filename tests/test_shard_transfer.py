"""State variables of any ids, between processes that keep parts of them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from shared_engines import in_processes, unless_raised

from anycore import ShardingStrategy, TableConfig
from anycore.optimizers import Adagrad, RowWiseAdagrad
from anycore.shard_transfer import load_shards, retrieve_shards
from anycore.sharding import Sharding
from anycore.table import Table
from anycore.transport import Transport

CONFIGS = [TableConfig("wide", 11, 3, Adagrad()), TableConfig("narrow", 2, 2, RowWiseAdagrad())]
"""Tables of two state variables, in one of which a slot has a single column."""

SLICES = st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(1, 4))


def ranges_of(table: int, size: int, strategy: ShardingStrategy) -> list[range]:
    """The ids of each shard."""
    sharding = Sharding(CONFIGS[table].name, CONFIGS[table].vocabulary_size, size, strategy)
    return [sharding.range_of_shard(process) for process in range(size)]


def value(table: int, name: str, row: int, column: int, writer: int = 0) -> float:
    """A number that says where it belongs and who wrote it."""
    return 1e5 * table + 1e4 * (name != "parameters") + 1e3 * writer + 10 * row + column


def values(table: int, ids: range, names: list[str], widths: dict[str, int], writer: int = 0) -> dict[str, Any]:
    return {
        name: np.array(
            [[value(table, name, row, column, writer) for column in range(widths[name])] for row in ids], np.float32
        ).reshape(len(ids), widths[name])
        for name in names
    }


class Process:
    """The shards of one process, each value as `value` says."""

    def __init__(self, transport: Transport, strategy: ShardingStrategy) -> None:
        self.transport = transport
        self.shards = [ranges_of(table, transport.size, strategy) for table in range(len(CONFIGS))]
        self.tables = [
            Table(config, of_table[transport.rank]) for config, of_table in zip(CONFIGS, self.shards, strict=True)
        ]
        for number, table in enumerate(self.tables):
            names = list(table.state_variables)
            for name, array in values(number, self.shards[number][transport.rank], names, self.widths(number)).items():
                table.view(name)[:] = array

    def widths(self, table: int) -> dict[str, int]:
        chosen = self.tables[table]
        return {name: chosen.view(name).shape[1] for name in chosen.state_variables}

    def retrieve(self, table: int, ids: range) -> dict[str, Any]:
        return retrieve_shards(self.transport, self.tables, self.shards, table, ids)

    def load(self, table: int, ids: range, names: list[str], writer: int) -> None:
        given_values = values(table, ids, names, self.widths(table), writer)
        load_shards(self.transport, self.tables, self.shards, table, ids, given_values)


@st.composite
def wishes(draw: Any) -> tuple[int, range]:
    """A table, and some of its ids."""
    table = draw(st.integers(0, len(CONFIGS) - 1))
    return table, range(CONFIGS[table].vocabulary_size)[slice(*draw(SLICES))]


@given(st.lists(wishes(), min_size=1, max_size=4), st.sampled_from(ShardingStrategy))
def test_every_process_retrieves_what_it_asks_for(asked: list[tuple[int, range]], strategy: ShardingStrategy) -> None:
    def program(transport: Transport) -> None:
        process = Process(transport, strategy)
        table, ids = asked[transport.rank]
        widths = process.widths(table)
        expected = values(table, ids, list(widths), widths)
        found = process.retrieve(table, ids)
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)

    unless_raised(in_processes(len(asked), program))


@st.composite
def loads(draw: Any) -> tuple[int, tuple[int, int, int], list[str]]:
    """A table, the first, the end and the step of some of its ids, and which state variables are given."""
    table, ids = draw(wishes())
    names = list(CONFIGS[table].optimizer.state_variables)
    return table, (ids.start, ids.stop, ids.step), draw(st.sampled_from([names, names[:1], names[1:]]))


@given(st.lists(loads(), min_size=1, max_size=4), st.sampled_from(ShardingStrategy))
def test_the_last_writer_counts_but_what_all_give_each_takes_from_itself(
    given_by: list[tuple[int, tuple[int, int, int], list[str]]], strategy: ShardingStrategy
) -> None:
    def program(transport: Transport) -> list[dict[str, Any]]:
        process = Process(transport, strategy)
        table, limits, names = given_by[transport.rank]
        process.load(table, range(*limits), names, writer=transport.rank + 1)
        return [process.retrieve(number, range(config.vocabulary_size)) for number, config in enumerate(CONFIGS)]

    found = unless_raised(in_processes(len(given_by), program))
    for table, config in enumerate(CONFIGS):
        owners = {row: rank for rank, ids in enumerate(ranges_of(table, len(given_by), strategy)) for row in ids}
        for name, (row, owner) in product(config.optimizer.state_variables, owners.items()):
            writers = [
                rank
                for rank, (chosen, limits, names) in enumerate(given_by)
                if chosen == table and row in range(*limits) and name in names
                if rank == owner or given_by[rank] != given_by[owner]
            ]
            expected = value(table, name, row, 0, writer=writers[-1] + 1 if writers else 0)
            assert {tables[table][name][row, 0] for tables in found} == {expected}


def test_a_row_of_all_given_by_two_and_of_its_own_by_the_third() -> None:
    def program(transport: Transport) -> list[float]:
        process = Process(transport, ShardingStrategy.DIV_DEFAULT)
        process.load(0, range(11) if transport.rank < 2 else range(1), ["parameters"], writer=transport.rank + 1)
        return ((process.retrieve(0, range(11))["parameters"][:, 0] - 10 * np.arange(11)) / 1e3).tolist()

    # Rows 0 to 3 are kept by process 0, which takes row 0 of process 2; the next four by 1, and 2 takes from both.
    assert unless_raised(in_processes(3, program)) == [[3, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]] * 3
