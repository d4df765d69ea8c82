from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from anycore.kernels.records import COLUMNS, DIMENSION, ROWS
from anycore.kernels.tasks import cut_rows, cut_samples
from anycore.kernels.update import EVERY_ROW

DIMENSION_OF_ALL = 64
TASK = (1 << 18) // DIMENSION_OF_ALL
"""Vectors that one task should move."""


def describe(rows: list[int]) -> np.ndarray:
    tables = np.zeros((len(rows), COLUMNS), np.int64)
    tables[:, ROWS], tables[:, DIMENSION] = rows, DIMENSION_OF_ALL
    return tables


def assert_partition(tasks: np.ndarray, ranges: list[tuple[int, int]]) -> None:
    """The tasks of a table are not empty and follow each other from its first place to its last."""
    assert (tasks[:, 1] < tasks[:, 2]).all()
    for table, (first, last) in enumerate(ranges):
        mine = tasks[tasks[:, 0] == table]
        expected = [first, *mine[:, 2]] if first < last else []
        assert [*mine[:, 1], last][: len(expected)] == expected
    assert set(tasks[:, 0]) <= set(range(len(ranges)))


# Lookup


def samples_of(name: str) -> list[np.ndarray]:
    """Returns the number of ids of each sample, table by table."""
    rng = np.random.default_rng(0)
    return {
        "nothing": [np.zeros(0, int)],
        "no sample in the middle": [np.array([1]), np.zeros(0, int), np.array([2, 0])],
        "empty samples": [np.zeros(5, int), np.array([0, 3, 0])],
        "one table": [rng.integers(0, 40, 2000)],
        "one sample with everything": [np.array([0, 10**6, 0])],
        "one hot sample among many": [np.where(np.arange(3000) == 1000, 10**5, rng.integers(0, 9, 3000))],
        "one id each": [np.ones(50_000, int)],
        "one huge table, many tiny": [*[np.array([1, 2])] * 50, rng.integers(0, 40, 5000), *[np.array([3])] * 50],
        "nothing but empty samples": [np.zeros(50_000, int)],
        "many empty samples at the end": [np.concatenate([np.full(1000, 20), np.zeros(50_000, int)])],
    }[name]


SAMPLES = [
    "nothing",
    "no sample in the middle",
    "empty samples",
    "one table",
    "one sample with everything",
    "one hot sample among many",
    "one id each",
    "one huge table, many tiny",
    "nothing but empty samples",
    "many empty samples at the end",
]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_in_one_task_of_bounded_cost(name: str) -> None:
    counts = samples_of(name)
    offsets = np.concatenate([[0], np.cumsum([len(of_table) for of_table in counts])])
    splits = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    activations = np.array([(table, *ends) for table, ends in enumerate(pairwise(offsets))])
    tasks = cut_samples(describe([10] * len(counts)), activations, splits)
    assert (tasks[:, 0] == tasks[:, 3]).all()
    assert_partition(tasks, list(pairwise(offsets.tolist())))
    for _, first, last, _ in tasks:
        # A sample is never divided.
        costliest = np.diff(splits[first : last + 1]).max() + 1
        assert splits[last] - splits[first] + last - first <= 2 * TASK + costliest


# Update


def cut(
    counts: list[np.ndarray], rows: list[np.ndarray], vocabularies: list[int], every_row: list[bool]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns tasks, the place of each table's first distinct row, and starts; counts: ids of each distinct row."""
    firsts: list[int] = []
    segments = []
    all_rows: list[int] = []
    starts: list[int] = []
    ids = 0
    for table, (of_table, table_rows) in enumerate(zip(counts, rows, strict=True)):
        # Rows and starts lie where the ids of the segment begin, one place further for each segment before it.
        padding = [-9] * (ids + table - len(all_rows))
        all_rows += padding
        starts += padding
        firsts.append(len(all_rows))
        segments.append((table, 0, vocabularies[table], ids, int(of_table.sum())))
        all_rows += [*table_rows, -9]
        starts += [*(ids + np.concatenate([[0], np.cumsum(of_table)]))]
        ids += int(of_table.sum())
    optimizers = np.zeros((len(counts), 3), np.int64)
    optimizers[:, EVERY_ROW] = every_row
    distinct = np.array([len(of_table) for of_table in counts])
    arrays = np.array(segments), distinct, np.array(all_rows, np.int64), np.array(starts, np.int64)
    return cut_rows(describe(vocabularies), optimizers, *arrays), np.array(firsts), arrays[3]


def rows_of(name: str) -> list[np.ndarray]:
    """Returns the number of ids of each distinct row, table by table."""
    rng = np.random.default_rng(1)
    return {
        "nothing": [np.zeros(0, int), np.zeros(0, int)],
        "one row": [np.array([1])],
        "one hot row": [np.array([10**6])],
        "one hot row among many": [np.where(np.arange(30_000) == 10_000, 10**6, rng.integers(1, 4, 30_000))],
        "one id each": [np.ones(30_000, int)],
        "one huge table, many tiny": [*[np.array([1, 2])] * 50, rng.integers(1, 9, 20_000), *[np.array([3])] * 50],
        "an untouched table in the middle": [np.array([1]), np.zeros(0, int), np.array([2, 1])],
    }[name]


ROWS_OF = [
    "nothing",
    "one row",
    "one hot row",
    "one hot row among many",
    "one id each",
    "one huge table, many tiny",
    "an untouched table in the middle",
]


@pytest.mark.parametrize("name", ROWS_OF)
def test_every_distinct_row_is_in_one_task_of_bounded_cost(name: str) -> None:
    counts = rows_of(name)
    rows = [np.arange(len(of_table)) for of_table in counts]
    tasks, firsts, starts = cut(counts, rows, [50_000] * len(counts), [False] * len(counts))
    assert_partition(
        tasks, [(int(first), int(first) + len(of_table)) for first, of_table in zip(firsts, counts, strict=True)]
    )
    for _, first, last, *_ in tasks:
        # Cut by ids; a row costs as much as two more.
        hottest = np.diff(starts[first : last + 1]).max()
        assert starts[last] - starts[first] <= 2 * TASK + hottest


@pytest.mark.parametrize("name", ROWS_OF)
def test_tables_that_update_every_row_are_covered(name: str) -> None:
    """Every other table does; its tasks divide the vocabulary, and each has the ids of its own rows."""
    counts = rows_of(name)
    vocabularies = [40_000 + table for table in range(len(counts))]
    rng = np.random.default_rng(2)
    rows = [
        np.sort(rng.permutation(vocabulary)[: len(of_table)])
        for vocabulary, of_table in zip(vocabularies, counts, strict=True)
    ]
    every_row = [table % 2 == 0 for table in range(len(counts))]
    tasks, firsts, _ = cut(counts, rows, vocabularies, every_row)
    for table, vocabulary in enumerate(vocabularies):
        mine = tasks[tasks[:, 0] == table]
        if every_row[table]:
            assert_partition(mine[:, [0, 3, 4]], [(0, 0)] * table + [(0, vocabulary)])
            assert (mine[:, 4] - mine[:, 3]).max() <= 2 * TASK
        covered = [
            row for _, first, last, *_ in mine for row in rows[table][first - firsts[table] : last - firsts[table]]
        ]
        assert covered == rows[table].tolist()
        for _, first, last, first_row, last_row in mine if every_row[table] else ():
            of_task = rows[table][first - firsts[table] : last - firsts[table]]
            assert ((first_row <= of_task) & (of_task < last_row)).all()
