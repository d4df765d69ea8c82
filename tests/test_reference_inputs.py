"""The plain lookups against numbers made by TensorFlow or worked out by hand; row i of the table is [2i, 2i + 1]."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference_inputs import Ragged, Sparse, lookups


def as_ragged(rows: list[list[int]], weights: list[float] | None = None) -> Ragged:
    splits = np.cumsum([0, *map(len, rows)])
    return Ragged(splits, np.array([i for row in rows for i in row], int), weights)


def as_sparse(rows: list[list[int]], weights: list[float] | None = None) -> Sparse:
    indices = [(sample, position) for sample, row in enumerate(rows) for position in range(len(row))]
    return Sparse(np.array(indices), np.array([i for row in rows for i in row], int), weights)


LOOKUP_ROWS = [[1, 2], [], [3], [4, 4], []]
LOOKUPS = [
    ("sum", None, [[6, 8], [0, 0], [6, 7], [16, 18], [0, 0]]),
    ("sum", [0.5, 2, 3, 1, 1], [[9, 11.5], [0, 0], [18, 21], [16, 18], [0, 0]]),
    ("sum", [1, 1, 1, 0, 0], [[6, 8], [0, 0], [6, 7], [0, 0], [0, 0]]),
    ("sum", [1, 1, 1, 1, -1], [[6, 8], [0, 0], [6, 7], [0, 0], [0, 0]]),
    ("mean", None, [[3, 4], [0, 0], [6, 7], [8, 9], [0, 0]]),
    ("mean", [0.5, 2, 3, 1, 1], [[3.6, 4.6], [0, 0], [6, 7], [8, 9], [0, 0]]),
    ("mean", [1, 1, 1, 0, 0], [[3, 4], [0, 0], [6, 7], [0, 0], [0, 0]]),
    ("mean", [1, 1, 1, 1, -1], [[3, 4], [0, 0], [6, 7], [0, 0], [0, 0]]),
    ("sqrtn", None, [[4.242641, 5.656854], [0, 0], [6, 7], [11.313708, 12.727922], [0, 0]]),
    ("sqrtn", [0.5, 2, 3, 1, 1], [[4.365642, 5.578320], [0, 0], [6, 7], [11.313708, 12.727922], [0, 0]]),
    ("sqrtn", [1, 1, 1, 1, -1], [[4.242641, 5.656854], [0, 0], [6, 7], [0, 0], [0, 0]]),
]


def lookup(entry: Any, shape: list[int], combiner: str = "sum", length: int = 0, exact: bool = False) -> np.ndarray:
    """Activations from a table of eight rows."""
    activations = np.zeros((*shape, 2))
    for cell, i, gain in lookups(entry, tuple(shape), 8, combiner, length, exact):
        activations.reshape(-1, 2)[cell] += gain * np.array([2 * i, 2 * i + 1])
    return activations


@pytest.mark.parametrize("build", [as_sparse, as_ragged])
@pytest.mark.parametrize(("combiner", "weights", "expected"), LOOKUPS)
def test_combiners(build: Any, combiner: str, weights: list[float] | None, expected: list) -> None:
    assert_allclose(lookup(build(LOOKUP_ROWS, weights), [5], combiner), expected, rtol=2e-7)


@pytest.mark.parametrize("build", [as_sparse, as_ragged])
def test_sequences(build: Any) -> None:
    expected = np.zeros((5, 3, 2))
    expected[0, :2], expected[2, 0], expected[3, :2] = [[2, 3], [4, 5]], [6, 7], [8, 9]
    assert_array_equal(lookup(build(LOOKUP_ROWS), [5, 3], length=3), expected)
    assert_array_equal(lookup(build(LOOKUP_ROWS), [5, 1], length=1), expected[:, :1])


def test_sparse_sequence_has_gaps() -> None:
    entry = Sparse([[0, 1], [0, 3], [1, 0]], [1, 2, 3])
    expected = [[[0, 0], [2, 3]], [[6, 7], [0, 0]]]
    assert_array_equal(lookup(entry, [2, 2], length=2), expected)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[1], [2, 3]], [[[2, 3], [0, 0]], [[4, 5], [6, 7]]]),  # two rows for [2, 2]: sequences
        ([[1], [2, 3], [], []], [[[2, 3], [10, 12]], [[0, 0], [0, 0]]]),  # four rows: combined
        ([[1], [2, 3], [4]], [[[2, 3], [10, 12]], [[8, 9], [0, 0]]]),  # fewer than four: the last cells stay empty
    ],
)
def test_ragged_rows_decide(rows: list[list[int]], expected: list) -> None:
    assert_array_equal(lookup(as_ragged(rows), [2, 2]), expected)


def test_ragged_rows_of_single_cells_are_combined() -> None:
    assert_array_equal(lookup(as_ragged([[1], [2, 3]], [1, 2, 1]), [2, 1]), [[[2, 3]], [[14, 17]]])


def test_sparse_indices_address_cells() -> None:
    expected = [[[0, 0], [2, 3]], [[10, 12], [0, 0]]]
    assert_array_equal(lookup(Sparse([[0, 1, 0], [1, 0, 0], [1, 0, 1]], [1, 2, 3]), [2, 2]), expected)
    assert_array_equal(lookup(Sparse([[1, 0], [2, 0], [2, 1]], [1, 2, 3]), [2, 2]), expected)
    assert_array_equal(lookup(Sparse([1, 2, 2], [1, 2, 3]), [2, 2]), expected)


@pytest.mark.parametrize(("combiner", "expected"), [("sum", [-6, -7]), ("mean", [6, 7]), ("sqrtn", [-6, -7])])
def test_dense_weights(combiner: str, expected: list) -> None:
    assert_array_equal(lookup(Sparse([], [0, 3, 3], [1, -1, 0]), [4], combiner), [[0, 1], expected, [0, 0], [0, 0]])


def test_dense_may_be_shorter() -> None:
    assert_array_equal(lookup(np.array([3]), [2]), [[6, 7], [0, 0]])
    assert_array_equal(lookup(Sparse([], []), [2], exact=True), [[0, 0], [0, 0]])


@pytest.mark.parametrize(
    ("entry", "shape", "keywords", "message"),
    [
        (as_sparse([[1, -1]]), [1], {}, "ids must lie"),
        (as_ragged([[1, 99]]), [1], {}, "ids must lie"),
        (np.array([1.0]), [1], {}, "ids must be integers"),
        (np.array([1, 2]), [1], {}, "2 ids for 1 activation rows"),
        (Sparse([0, 0], [1, 2], [1.0]), [1], {}, "1 weights for 2 ids"),
        (Sparse([0], [1], [np.nan]), [1], {}, "weights must be finite"),
        (Sparse([0], [1], [1e300]), [1], {}, "weights must be finite"),
        (Sparse([0, 0], [1]), [1], {}, "2 sample indices for 1 ids"),
        (Sparse([1, 0], [1, 1]), [2], {}, "must not descend"),
        (Sparse([[2, 0]], [1]), [2], {}, "sample indices must lie"),
        (Sparse([[0, 0, 0, 0]], [1]), [2], {}, "sample indices of shape"),
        (Ragged([0, 2, 1], [1]), [2], {}, "splits must ascend"),
        (Ragged([1, 1], [1]), [2], {}, "splits must ascend"),
        (Ragged([0, 2], [1]), [2], {}, "splits must ascend"),
        (Ragged([0, 0, 0, 1], [1]), [2], {}, "3 ragged rows for 2 input rows"),
        (as_ragged([[1], [1]], [1, 1]), [2, 2], {}, "a sequence takes no weights"),
        (as_sparse([[1]], [1]), [2, 2], {"length": 2}, "a sequence takes no weights"),
        (as_sparse([[1]]), [2, 2], {"length": 3}, "not the last axis"),
        (as_sparse([[1]]), [2], {"combiner": "max"}, "combiner must be"),
        (np.array([1]), [2], {"exact": True}, "1 ids for 2 activation rows"),
        (Sparse([], [1]), [2], {"exact": True}, "1 ids for 2 activation rows"),
    ],
)
def test_refuses_bad_inputs(entry: Any, shape: list[int], keywords: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lookup(entry, shape, **keywords)
