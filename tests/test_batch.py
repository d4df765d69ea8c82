"""Every kind of input as ids and gains of sample rows, and the words with which the others are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np
import pytest
from engines import assert_same_bits, state
from foreign_arrays import OnlyArray, OnlyDLPack, unaligned
from id_batches import cells, gains, one_feature, read

from anycore import Dense, EmbeddingConfig, EmbeddingEngine, FeatureConfig, InputError, Ragged, Sparse, TableConfig
from anycore.batch import named_inputs
from anycore.entries import entries_of
from anycore.optimizers import Adagrad
from anycore.plan import Plan

ROOT2, ROOT5 = sqrt(2), sqrt(5)


# Which ids a sample row gets; every gain is 1

PLACES: list[tuple[Any, Any, dict[str, Any], list[list[int]]]] = [
    # Dense
    ([4], [3, 0, 3, 9], {}, [[3], [0], [3], [9]]),
    ([4], Dense((3, 0)), {}, [[3], [0], [], []]),
    ([2], [], {}, [[], []]),
    ([2, 2], np.array([[1, 2], [3, 4]]), {}, [[1], [2], [3], [4]]),
    ([2, 2], np.array([[[1], [2]], [[3], [4]]]), {}, [[1], [2], [3], [4]]),
    ([2, 2], [1, 2, 3], {}, [[1], [2], [3], []]),
    ([3], Sparse(np.zeros((0, 2), int), [7, 8, 9]), {}, [[7], [8], [9]]),
    ([3], Sparse([], [7]), {}, [[7], [], []]),
    ([3], Ragged([], [7, 8]), {}, [[7], [8], []]),
    ([2, 2], np.array([1, 2]), {"max_sequence_lengths": [2]}, [[1], [], [2], []]),  # each a sequence of one
    # Sparse
    ([3], Sparse([0, 0, 2], [5, 6, 7]), {}, [[5, 6], [], [7]]),
    ([3], Sparse([[0], [0], [2]], [5, 6, 7]), {}, [[5, 6], [], [7]]),
    ([3], Sparse([[1, 0], [1, 4], [2, 1]], [5, 5, 7]), {}, [[], [5, 5], [7]]),
    ([3], Sparse([[1, 4], [1, 0]], [5, 6]), {}, [[], [5, 6], []]),  # the last column is combined, whatever its order
    ([2, 2], Sparse([[1, 0], [3, 0]], [5, 6]), {}, [[], [5], [], [6]]),  # flat cells
    ([2, 2], Sparse([[0, 1, 0], [0, 1, 2], [1, 0, 0]], [5, 6, 7]), {}, [[], [5, 6], [7], []]),
    ([2, 1, 2], Sparse([[0, 0, 1, 0], [1, 0, 1, 0]], [5, 6]), {}, [[], [5], [], [6]]),
    ([2, 2], Sparse([[0, 1, 0], [0, 2, 0], [1, 0, 0], [1, 7, 0]], [5, 6, 7, 8]), {}, [[], [5], [7], []]),  # cut off
    # Ragged
    ([3], Ragged([0, 2, 2, 3], [5, 6, 7]), {}, [[5, 6], [], [7]]),
    ([3], Ragged([0, 1], [5]), {}, [[5], [], []]),
    ([3], Ragged([0], []), {}, [[], [], []]),
    ([3], Ragged([0, 0, 0, 0], []), {}, [[], [], []]),
    ([2, 2], Ragged([0, 1, 1, 2, 4], [5, 6, 7, 8]), {}, [[5], [], [6], [7, 8]]),
    ([2, 2], Ragged([0, 1, 1, 2], [5, 6]), {}, [[5], [], [6], []]),
    ([2, 1], Ragged([0, 2, 3], [5, 6, 7]), {}, [[5, 6], [7]]),  # as many rows as cells
    # Sequences by the trailing axis
    ([2, 3], Ragged([0, 2, 6], [1, 2, 3, 4, 5, 6]), {}, [[1], [2], [], [3], [4], [5]]),
    ([2, 1, 2], Ragged([0, 0, 1], [5]), {}, [[], [], [5], []]),
    # Sequences by max_sequence_lengths
    ([2, 3], Ragged([0, 2, 6], [1, 2, 3, 4, 5, 6]), {"max_sequence_lengths": [3]}, [[1], [2], [], [3], [4], [5]]),
    ([2, 3], Ragged([0, 1], [1]), {"max_sequence_lengths": [3]}, [[1], [], [], [], [], []]),
    ([2, 2], Sparse([0, 1, 1, 1], [1, 2, 3, 4]), {"max_sequence_lengths": [2]}, [[1], [], [2], [3]]),
    ([2, 2], Sparse([[0], [1], [1], [1]], [1, 2, 3, 4]), {"max_sequence_lengths": [2]}, [[1], [], [2], [3]]),
    ([2, 2], Sparse([[0, 1], [0, 3], [1, 0]], [1, 2, 3]), {"max_sequence_lengths": [2]}, [[], [1], [3], []]),
    ([2, 2], Sparse([[1, 0], [1, 0]], [1, 2]), {"max_sequence_lengths": [2]}, [[], [], [1, 2], []]),
    ([1, 2, 2], Sparse([1], [4]), {"max_sequence_lengths": [2]}, [[], [], [4], []]),
    ([2], Ragged([0, 3], [4, 5, 6]), {"max_sequence_lengths": [2]}, [[4], [5]]),
    ([2, 1], Ragged([0, 2, 3], [5, 6, 7]), {"max_sequence_lengths": [1]}, [[5], [7]]),
]


@pytest.mark.parametrize(("shape", "value", "attributes", "expected"), PLACES)
def test_places(shape: Any, value: Any, attributes: Any, expected: list[list[int]]) -> None:
    batch = read(one_feature(shape), value, **attributes)
    assert cells(batch) == expected
    assert gains(batch) == [[1] * len(cell) for cell in expected]


@pytest.mark.parametrize(
    ("value", "attributes"),
    [
        (Ragged([0, 2, 4], [1, 2, 3, 4]), {}),
        (Ragged([0, 2, 4], [1, 2, 3, 4]), {"max_sequence_lengths": [2]}),
        (Sparse([[0, 1], [0, 1]], [1, 2]), {"max_sequence_lengths": [2]}),
    ],
)
def test_a_sequence_is_not_combined(value: Any, attributes: Any) -> None:
    found = gains(read(one_feature([2, 2], "mean"), value, **attributes))
    assert {gain for cell in found for gain in cell} == {1}


# Which gain an id gets

GAINS: list[tuple[Any, str, list[list[float]]]] = [
    (Ragged([0, 2, 2, 3], [4, 4, 6], [0.5, 2, -3]), "sum", [[0.5, 2], [], [-3]]),
    (Ragged([0, 2, 2, 3], [4, 4, 6], [0.5, 1.5, -3]), "mean", [[0.25, 0.75], [], [1]]),
    (Ragged([0, 2, 2, 3], [4, 4, 6], [1, 2, -3]), "sqrtn", [[1 / ROOT5, 2 / ROOT5], [], [-1]]),
    (Ragged([0, 2, 2, 3], [4, 5, 6], None), "sqrtn", [[1 / ROOT2] * 2, [], [1]]),
    (Ragged([0, 2, 2, 3], [4, 5, 6], []), "mean", [[0.5, 0.5], [], [1]]),
    (Sparse([[0, 0], [0, 1], [2, 0]], [4, 5, 6], [1, 3, 2]), "mean", [[0.25, 0.75], [], [1]]),
    (Sparse([0, 0, 2], [4, 5, 6], np.array([1, 2, 2], np.float64)), "sqrtn", [[1 / ROOT5, 2 / ROOT5], [], [1]]),
    # A denominator of zero gives zeros.
    (Sparse([0, 0, 1], [4, 5, 6], [1, -1, 0]), "mean", [[0, 0], [0], []]),
    (Sparse([0, 0, 1], [4, 5, 6], [0, 0, 2]), "sqrtn", [[0, 0], [1], []]),
    (Sparse([0, 0], [4, 5], [1, -1]), "sqrtn", [[1 / ROOT2, -1 / ROOT2], [], []]),
    (Dense([4, 5, 6], [0.5, -2, 0]), "sum", [[0.5], [-2], [0]]),
    (Dense([4, 5, 6], [0.5, -2, 0]), "mean", [[1], [1], [0]]),
    (Dense([4, 5], [0.5, -2]), "sqrtn", [[1], [-1], []]),
    (Dense([4, 5]), "sqrtn", [[1], [1], []]),
    (Sparse([], [4, 5], [2, 3]), "sum", [[2], [3], []]),
]


@pytest.mark.parametrize(("value", "combiner", "expected"), GAINS)
def test_gains(value: Any, combiner: str, expected: list[list[float]]) -> None:
    for config, combiners in ((one_feature([3], combiner), ()), (one_feature([3]), (combiner,))):
        found = gains(read(config, value, combiners=combiners))
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours == pytest.approx(theirs, rel=2e-7, abs=0)


def test_weights_of_a_dense_input_may_have_its_shape() -> None:
    batch = read(one_feature([2, 2]), Dense([[1, 2], [3, 4]], [[1, 2], [3, 4]]))
    assert (cells(batch), gains(batch)) == ([[1], [2], [3], [4]], [[1], [2], [3], [4]])


def test_only_tables_that_need_gains_have_them() -> None:
    tables = [TableConfig(name, 10, 1, Adagrad()) for name in "ab"]
    features = [FeatureConfig(name, table, [2]) for name, table in [("f", "a"), ("g", "b"), ("h", "a")]]
    config = EmbeddingConfig(tables, features)
    sparse = Sparse([0, 0], [1, 2])
    assert len(read(config, sparse, sparse, sparse).gains) == 0
    batch = read(config, Sparse([0, 0], [1, 2], [3, 4]), [5, 6], [7, 8])
    assert batch.weighted.tolist() == [True, False]
    assert batch.gains[:4].tolist() == [3, 4, 1, 1]
    assert cells(batch) == [[1, 2], [], [7], [8], [5], [6]]  # of table a: f, h; of table b: g
    batch = read(config, sparse, sparse, sparse, combiners=["sum", "mean", "mean"])
    assert batch.weighted.tolist() == [True, True]
    assert batch.gains.tolist() == [1, 1, 0.5, 0.5, 0.5, 0.5]


# Table mode


def two_tables() -> EmbeddingConfig:
    """Sample rows: a 0 … 1, b 2 … 4 of the first sample and 5 … 7 of the second."""
    tables = [TableConfig("a", 10, 1, Adagrad(), num_features=1), TableConfig("b", 10, 1, Adagrad(), num_features=3)]
    return EmbeddingConfig(tables, batch_size_per_tensor_core=2)


@pytest.mark.parametrize(
    ("values", "attributes", "expected"),
    [
        (([1, 2], [3, 4, 5, 6, 7, 8]), {}, [[1], [2], [3], [4], [5], [6], [7], [8]]),
        ((Sparse([1], [2]), Sparse([0, 4, 4], [3, 4, 5])), {}, [[], [2], [3], [], [], [], [4, 5], []]),
        (  # one entry a row: a sparse one, a ragged one, a dense one
            (Sparse([0, 0], [1, 2]), [9, 8], Ragged([0, 1, 3], [3, 4, 5]), [6, 7]),
            {"table_ids": [1, 0, 1, 1]},
            [[9], [8], [1, 2], [3], [6], [], [4, 5], [7]],
        ),
        (  # a sample's two consecutive rows, then another
            ([9, 8], Ragged([0, 1, 1, 3], [1, 2, 3]), Sparse([[1, 0]], [4])),
            {"table_ids": [0, 1, 1], "num_features": [1, 2, 1]},
            [[9], [8], [1], [], [], [2, 3], [], [4]],
        ),
        (  # a sequence of two beside a row
            (Sparse([], []), Ragged([0, 3, 4], [1, 2, 3, 4]), [5, 6]),
            {"table_ids": [0, 1, 1], "max_sequence_lengths": [0, 2, 0]},
            [[], [], [1], [2], [5], [4], [], [6]],
        ),
    ],
)
def test_entries_of_tables(values: Any, attributes: Any, expected: list[list[int]]) -> None:
    assert cells(read(two_tables(), *values, **attributes)) == expected


# Memory

KINDS: dict[str, Any] = {
    "int64": np.asarray,
    "int32": np.int32,
    "uint8": np.uint8,
    "big-endian": lambda values: np.array(values, ">i8"),
    "list": lambda values: np.asarray(values).tolist(),
    "strided": lambda values: np.repeat(np.asarray(values), 2, axis=0)[::2],
    "unaligned": lambda values: unaligned(np.asarray(values)),
    "dlpack": lambda values: OnlyDLPack(np.asarray(values)),
    "array": lambda values: OnlyArray(np.asarray(values)),
    "fortran": lambda values: np.asfortranarray(values),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_any_kind_of_array_will_do(kind: Any) -> None:
    for value in (
        Sparse(kind([[0, 0], [0, 1], [2, 0]]), kind([5, 6, 7]), kind([1, 2, 4])),
        Sparse(kind([0, 0, 2]), kind([5, 6, 7]), kind([1, 2, 4])),
        Ragged(kind([0, 2, 2, 3]), kind([5, 6, 7]), kind([1, 2, 4])),
    ):
        batch = read(one_feature([3]), value)
        assert (cells(batch), gains(batch)) == ([[5, 6], [], [7]], [[1, 2], [], [4]])
    assert cells(read(one_feature([3]), kind([5, 6, 7]))) == [[5], [6], [7]]


def test_read_only_inputs_are_read_and_nothing_of_them_is_kept() -> None:
    splits, ids, weights = np.array([0, 2, 3]), np.array([5, 6, 7]), np.ones(3, np.float32)
    for array in (splits, ids, weights):
        array.flags.writeable = False
    batch = read(one_feature([2]), Ragged(splits, ids, weights))
    for array in (splits, ids, weights):
        array.flags.writeable = True
        array[...] = 0
    assert (cells(batch), gains(batch)) == ([[5, 6], [7]], [[1, 1], [1]])


# Names


def test_inputs_may_be_named() -> None:
    plan = Plan(two_tables())
    entries = entries_of(plan, None, (), (), ())
    assert named_inputs({"b": 1, "a": 2}, entries) == [2, 1]
    assert named_inputs((1, 2), entries) == [1, 2]


@pytest.mark.parametrize(
    ("given", "table_ids", "text"),
    [
        ([1], None, r"expected 2 inputs, one each for \['a', 'b'\], got 1"),
        ([1, 2, 3], None, r"expected 2 inputs, .* got 3"),
        ({"a": 1, "c": 2}, None, r"inputs must be named \['a', 'b'\], got \['a', 'c'\]"),
        ({"a": 1}, None, r"inputs must be named \['a', 'b'\], got \['a'\]"),
        ({"a": 1, "b": 2, "c": 3}, None, r"inputs must be named \['a', 'b'\], got \['a', 'b', 'c'\]"),
        ({"a": 1, "b": 2}, (0, 1, 1, 1), r"inputs by name need distinct feature names, got \['a', 'b', 'b', 'b'\]"),
        (Sparse([0], [1]), None, r"inputs must be a sequence or a mapping.*, got Sparse"),
        (3, None, r"inputs must be a sequence or a mapping.*, got int"),
    ],
)
def test_refuses_other_inputs(given: Any, table_ids: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        named_inputs(given, entries_of(Plan(two_tables()), table_ids, (), (), ()))


# Refused

SEQUENCE = {"max_sequence_lengths": [3]}
NAN, INF = float("nan"), float("inf")

REFUSED: list[tuple[list[int], Any, dict[str, Any], str]] = [
    # Ids
    ([3], [0, 10], {}, r"embedding_indices\[1\] must be an id in \[0, 10\) of table 't', got 10"),
    ([3], [0, 1, -1], {}, r"embedding_indices\[2\] must be an id in \[0, 10\) of table 't', got -1"),
    ([3], Ragged([0, 2], [3, 99]), {}, r"embedding_indices\[1\] .* got 99"),
    ([3], Sparse([0, 1], [-(2**63), 0]), {}, r"embedding_indices\[0\] .* got -9223372036854775808"),
    ([3], np.array([1, 2**64 - 1], np.uint64), {}, r"embedding_indices.* 18446744073709551615"),
    ([2, 3], Ragged([0, 5], [1, 2, 3, 4, 10]), SEQUENCE, r"embedding_indices\[4\] .* got 10"),  # though truncated
    ([3], [1.0, 2.0], {}, r"embedding_indices must be integers, got float64"),
    ([3], [True], {}, r"embedding_indices must be integers, got bool"),
    ([3], None, {}, r"embedding_indices must be integers, got object"),
    ([3], "abc", {}, r"embedding_indices must be integers, got <U3"),
    ([3], [[1], [2, 3]], {}, r"embedding_indices: cannot be read as an array"),
    # Dense
    ([3], [1, 2, 3, 4], {}, r"embedding_indices without an index must be at most 3, one a row, got 4"),
    ([2, 3], [1, 2, 3], SEQUENCE, r"embedding_indices without an index must be at most 2, one a row, got 3"),
    ([2, 2], [[1, 2, 3]], {}, r"embedding_indices must have shape \[2, 2\] or be flat, got \[1, 3\]"),
    ([2, 2], [[[1, 2], [3, 4]]], {}, r"embedding_indices must have shape \[2, 2\] or be flat, got \[1, 2, 2\]"),
    # Splits
    ([3], Ragged([1, 2], [5]), {}, r"sample_splits\[0\] must be 0, got 1"),
    ([3], Ragged([0, 2, 1, 3], [5, 6, 7]), {}, r"sample_splits must not descend, but \[2\] = 1 is below"),
    ([3], Ragged([0, 2], [5, 6, 7]), {}, r"sample_splits\[1\], the last, must be .* embedding_indices, 3, got 2"),
    ([3], Ragged([0, 2], [5]), {}, r"sample_splits\[1\], the last, must be .* embedding_indices, 1, got 2"),
    ([3], Ragged([0, -1], [5]), {}, r"sample_splits must not descend, but \[1\] = -1"),
    ([3], Ragged([0, 1, 2, 3, 4], [5, 6, 7, 8]), {}, r"sample_splits must be for at most 3 rows, got 4"),
    ([2, 3], Ragged([0, 1, 2, 3], [5, 6, 7]), SEQUENCE, r"sample_splits must be for at most 2 rows, got 3"),
    ([2, 3], Ragged([0, 2, 1], [5]), SEQUENCE, r"sample_splits must not descend, but \[2\] = 1"),
    ([3], Ragged([0.0, 1.0], [5]), {}, r"sample_splits must be integers, got float64"),
    ([3], Ragged([[0, 1]], [5]), {}, r"sample_splits must have one axis, got shape \[1, 2\]"),
    ([3], Ragged(0, []), {}, r"sample_splits must have one axis, got shape \[\]"),
    ([3], Ragged([0, 1], [[5]]), {}, r"embedding_indices must have one axis, got shape \[1, 1\]"),
    # Sparse indices
    ([3], Sparse([0, 1], [5]), {}, r"sample_indices must have shape \[n\] .* the 1 embedding_indices, got \[2\]"),
    ([3], Sparse([[0, 0]], [5, 6]), {}, r"sample_indices must have shape .* the 2 embedding_indices, got \[1, 2\]"),
    ([3], Sparse([[[0]]], [5]), {}, r"sample_indices must have shape .* got \[1, 1, 1\]"),
    ([3], Sparse([0.0], [5]), {}, r"sample_indices must be integers, got float64"),
    ([3], Sparse([0], [[5]]), {}, r"embedding_indices must have one axis, got shape \[1, 1\]"),
    ([3], Sparse([1, 0], [5, 6]), {}, r"sample_indices must ascend, but \[1\] = 0 comes after a later one"),
    ([3], Sparse([[0, 0], [2, 0], [1, 0]], [5, 6, 7]), {}, r"sample_indices must ascend, but \[2\] = .*1"),
    ([2, 3], Sparse([[0, 1], [0, 0]], [5, 6]), SEQUENCE, r"sample_indices must ascend, but \[1\] = \[0, 0\] comes"),
    ([2, 3], Sparse([[0, 9], [0, 1]], [5, 6]), SEQUENCE, r"sample_indices must ascend, but \[1\] = \[0, 1\] comes"),
    ([2, 3], Sparse([[1, 0, 0], [0, 2, 0]], [5, 6]), {}, r"sample_indices must ascend, but \[1\] = \[0, 2, 0\] comes"),
    ([3], Sparse([0, 3], [5, 6]), {}, r"sample_indices\[1\] must be a row in \[0, 3\), got 3"),
    ([3], Sparse([-1], [5]), {}, r"sample_indices\[0\] must be a row in \[0, 3\), got -1"),
    ([2, 3], Sparse([0, 2], [5, 6]), SEQUENCE, r"sample_indices\[1\] must be a row in \[0, 2\), got 2"),
    ([2, 3], Sparse([[0, -1]], [5]), SEQUENCE, r"sample_indices\[0\] has a negative position in its row, -1"),
    (
        [2, 3],
        Sparse([[0, 3, 0], [2, 0, 0]], [5, 6]),
        {},
        r"sample_indices\[1\] .* input_shape \[2, 3\], got \[2, 0, 0\]",
    ),
    ([2, 3], Sparse([[0, -1, 0]], [5]), {}, r"sample_indices\[0\] must lie in .* got \[0, -1, 0\]"),
    ([2, 3], Sparse([[0, 0, 0, 0]], [5]), {}, r"sample_indices of rank 4 need an input_shape of rank 3 .* \[2, 3\]"),
    ([2, 3], Sparse([[0, 0, 0]], [5]), SEQUENCE, r"sample_indices of rank 3 need .* without max_sequence_lengths"),
    ([2, 3], Sparse([[0, 3, 0], [0, 0, 0]], [5, 99]), {}, r"embedding_indices\[1\] must be an id in .*, got 99"),
    # Weights
    ([2, 3], Sparse([[0, 3, 0], [1, 0, 0]], [5, 6], [1, NAN]), {}, r"aggregation_weights\[1\] must be finite, got nan"),
    ([3], Dense([1, 2], [1, NAN]), {}, r"aggregation_weights\[1\] must be finite, got nan"),
    ([2, 2], Dense([[1, 2], [3, 4]], [[1, 2], [NAN, 4]]), {}, r"aggregation_weights\[2\] must be finite, got nan"),
    ([3], Dense(1, NAN), {}, r"aggregation_weights\[0\] must be finite, got nan"),
    ([3], Ragged([0, 2], [1, 2], [INF, 1]), {}, r"aggregation_weights\[0\] must be finite, got inf"),
    ([3], Sparse([0, 1], [1, 2], [1, -INF]), {}, r"aggregation_weights\[1\] must be finite, got -inf"),
    ([3], Sparse([0, 1], [1, 2], [1, 1e300]), {}, r"aggregation_weights\[1\] must be finite, got inf"),
    ([3], Sparse([0, 1], [1, 2], [1]), {}, r"aggregation_weights must be as many as embedding_indices, 2, got \[1\]"),
    ([3], Ragged([0, 0], [], [1]), {}, r"aggregation_weights must be as many as embedding_indices, 0, got \[1\]"),
    ([3], Sparse([0, 1], [1, 2], [[1, 2]]), {}, r"aggregation_weights must be .* 2, got \[1, 2\]"),
    ([2, 2], Dense([[1, 2], [3, 4]], [[1, 2, 3, 4]]), {}, r"aggregation_weights must be .* got \[1, 4\]"),
    ([3], Dense([1], ["a"]), {}, r"aggregation_weights must be real numbers, got <U1"),
    ([3], Dense([1], [1j]), {}, r"aggregation_weights must be real numbers, got complex128"),
    ([2, 3], Ragged([0, 1], [1], [2.0]), SEQUENCE, r"a sequence feature .* takes no aggregation_weights"),
    ([2, 3], Ragged([0, 1, 1], [1], [2.0]), {}, r"a sequence feature .* takes no aggregation_weights"),
    ([2, 3], Sparse([[0, 1]], [1], [2.0]), SEQUENCE, r"a sequence feature .* takes no aggregation_weights"),
    # Which error comes first: an input's layout, then its ids, then its weights
    ([3], Ragged([0, 2], [99], [NAN]), {}, r"sample_splits\[1\], the last"),
    ([3], Ragged([0, 1], [99], [NAN]), {}, r"embedding_indices\[0\]"),
]


@pytest.mark.parametrize(("shape", "value", "attributes", "text"), REFUSED)
def test_refuses(shape: list[int], value: Any, attributes: Any, text: str) -> None:
    with pytest.raises(InputError, match=f"^feature 'f': {text}"):
        read(one_feature(shape), value, **attributes)


def test_the_error_names_the_input_that_is_wrong() -> None:
    with pytest.raises(InputError, match=r"^feature 'b': embedding_indices\[0\] .* table 'b', got 10"):
        read(two_tables(), [1, 2], [10] * 6)
    with pytest.raises(InputError, match=r"^feature 'a': sample_indices\[0\] must be a row in \[0, 2\), got 5"):
        read(two_tables(), Sparse([5], [1]), [10] * 6)


def test_a_dense_batch_of_a_table_is_complete() -> None:
    with pytest.raises(InputError, match=r"^feature 'b': embedding_indices .* 6.* got 5"):
        read(two_tables(), [1, 2], [1] * 5)


# Nothing has changed


def step(engine: EmbeddingEngine) -> list[np.ndarray]:
    engine.enqueue({"f": [1, 2], "g": Ragged([0, 2, 3], [1, 4, 1], [1, 2, 3])}, combiners=["mean"])
    activations = engine.receive_activations()
    engine.send_gradients(activations)
    return list(activations)


def two_features() -> EmbeddingEngine:
    table = TableConfig("t", 5, 2, Adagrad(learning_rate=0.5))
    features = [FeatureConfig("f", "t", [2]), FeatureConfig("g", "t", [3])]
    return EmbeddingEngine(EmbeddingConfig([table], features), timeout=0.05, num_threads=1)


@pytest.mark.parametrize(
    ("values", "attributes"),
    [
        ([[1, 2], [5]], {}),
        ([[5], [1]], {}),
        ([[1, 2], Ragged([0, 2], [1])], {}),
        ([[1, 2], Sparse([1, 0], [1, 2], [3, 4])], {}),
        ([[1, 2], Dense([1], [NAN])], {}),
        ([[1, 2]], {}),
        ({"f": [1], "h": [2]}, {}),
        ([[1, 2], [1]], {"combiners": ["sum", "max"]}),
        ([[1, 2], [1]], {"table_ids": [0, 1]}),
        ([[1, 2], [1]], {"max_sequence_lengths": [0, 2]}),
        ([[1, 2], [1]], {"num_features": [1, 2]}),
        ([[1, 2], [1]], {"mode": "evaluation"}),
        ([[1, 2], [1]], {"core": 1}),
    ],
)
def test_a_refused_enqueue_changes_nothing(values: Sequence[Any] | Mapping[str, Any], attributes: Any) -> None:
    tried, fresh = two_features(), two_features()
    for _ in range(2):
        with pytest.raises(InputError):
            tried.enqueue(values, **attributes)
        for ours, theirs in zip(step(tried), step(fresh), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert_same_bits(state(tried), state(fresh))
