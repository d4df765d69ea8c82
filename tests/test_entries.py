"""Where the inputs of an enqueue call go, for all its attributes."""

from __future__ import annotations

from typing import Any

import pytest

from anycore import EmbeddingConfig, FeatureConfig, InputError, TableConfig
from anycore.entries import Entry, entries_of
from anycore.optimizers import StochasticGradientDescent
from anycore.plan import Plan

SGD = StochasticGradientDescent()

BY_FEATURE = Plan(
    EmbeddingConfig(
        [TableConfig("a", 9, 1, SGD, combiner="mean"), TableConfig("b", 9, 1, SGD)],
        [FeatureConfig("f", "b", [2, 3]), FeatureConfig("g", "a", [4]), FeatureConfig("h", "b", [2])],
    )
)
"""Sample rows: g 0 … 3, f 4 … 9, h 10 … 11."""

BY_TABLE = Plan(
    EmbeddingConfig(
        [TableConfig("a", 9, 1, SGD, num_features=1), TableConfig("b", 9, 1, SGD, "sqrtn", num_features=4)],
        batch_size_per_tensor_core=2,
    )
)
"""Sample rows: a 0 … 1, b 2 … 5 of the first sample and 6 … 9 of the second."""


def entries(plan: Plan, **attributes: Any) -> tuple[Entry, ...]:
    names = ("table_ids", "combiners", "max_sequence_lengths", "num_features")
    given: dict[str, Any] = {"table_ids": None} | attributes
    return entries_of(plan, *(given.get(name, ()) for name in names))


def rows(entry: Entry) -> list[int]:
    """The sample rows of the entry's cells, as its documentation says."""
    return [entry.first_sample + c // entry.block * entry.block_stride + c % entry.block for c in range(entry.cells)]


def test_features_own_their_activations() -> None:
    f, g, h = entries(BY_FEATURE)
    assert [(e.name, e.table, e.input_shape) for e in (f, g, h)] == [("f", 1, (2, 3)), ("g", 0, (4,)), ("h", 1, (2,))]
    assert rows(f) == [4, 5, 6, 7, 8, 9]
    assert rows(g) == [0, 1, 2, 3]
    assert rows(h) == [10, 11]
    assert [e.sequence for e in (f, g, h)] == [0, 0, 0]


def test_features_may_repeat_what_is_configured() -> None:
    found = entries(BY_FEATURE, table_ids=(1, 0, 1), max_sequence_lengths=(3, 0, 0), num_features=(3, 2, 1))
    assert [e.sequence for e in found] == [3, 0, 0]
    assert [rows(e) for e in found] == [rows(e) for e in entries(BY_FEATURE)]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, [("a", 0, [0, 1]), ("b", 0, [2, 3, 4, 5, 6, 7, 8, 9])]),
        ({"num_features": (1, 4)}, [("a", 0, [0, 1]), ("b", 0, [2, 3, 4, 5, 6, 7, 8, 9])]),
        (  # blocks of a table stand in the order of its entries
            {"table_ids": (1, 0, 1), "num_features": (1, 1, 3)},
            [("b", 0, [2, 6]), ("a", 0, [0, 1]), ("b", 0, [3, 4, 5, 7, 8, 9])],
        ),
        (  # without num_features an entry is one row a sample
            {"table_ids": (1, 1, 0, 1, 1)},
            [("b", 0, [2, 6]), ("b", 0, [3, 7]), ("a", 0, [0, 1]), ("b", 0, [4, 8]), ("b", 0, [5, 9])],
        ),
        (  # a sequence of 3 beside a row
            {"table_ids": (0, 1, 1), "max_sequence_lengths": (0, 3, 0)},
            [("a", 0, [0, 1]), ("b", 3, [2, 3, 4, 6, 7, 8]), ("b", 0, [5, 9])],
        ),
        (  # two sequences of 2 in one entry
            {"table_ids": (0, 1), "max_sequence_lengths": (1, 2), "num_features": (1, 2)},
            [("a", 1, [0, 1]), ("b", 2, [2, 3, 4, 5, 6, 7, 8, 9])],
        ),
    ],
)
def test_entries_of_a_table_share_the_rows_of_its_samples(attributes: Any, expected: Any) -> None:
    assert [(e.name, e.sequence, rows(e)) for e in entries(BY_TABLE, **attributes)] == expected


SUM, MEAN, SQRTN = range(3)


@pytest.mark.parametrize(
    ("plan", "attributes", "expected"),
    [
        (BY_FEATURE, {}, [SUM, MEAN, SUM]),
        (BY_FEATURE, {"combiners": ("sum", "sqrtn")}, [SQRTN, SUM, SQRTN]),  # one a table
        (BY_FEATURE, {"combiners": ("sqrtn", "mean", "sum")}, [SQRTN, MEAN, SUM]),  # one a feature
        (BY_TABLE, {}, [SUM, SQRTN]),
        (BY_TABLE, {"combiners": ("mean", "sum")}, [MEAN, SUM]),
        (BY_TABLE, {"table_ids": (1, 0), "combiners": ("mean", "sum"), "num_features": (4, 1)}, [SUM, MEAN]),
        (
            BY_TABLE,
            {"table_ids": (1, 0, 1), "combiners": ("mean", "sum", "sqrtn"), "num_features": (2, 1, 2)},
            [MEAN, SUM, SQRTN],
        ),
    ],
)
def test_combiners_are_per_table_or_per_entry(plan: Plan, attributes: Any, expected: list[int]) -> None:
    assert [e.combiner for e in entries(plan, **attributes)] == expected


@pytest.mark.parametrize(
    ("plan", "attributes", "text"),
    [
        (BY_FEATURE, {"table_ids": (1, 0)}, r"table_ids must have one value per input, 3, got 2"),
        (BY_FEATURE, {"table_ids": (1, 0, 0)}, r"feature 'h': table_ids\[2\] must be 1 as configured, got 0 \(Fea"),
        (BY_FEATURE, {"max_sequence_lengths": (3,)}, r"max_sequence_lengths must have one value per input, 3, got 1"),
        (BY_FEATURE, {"max_sequence_lengths": (0, 0, -1)}, r"max_sequence_lengths\[2\] must be at least 0, got -1"),
        (
            BY_FEATURE,
            {"max_sequence_lengths": (2, 0, 0)},
            r"feature 'f': max_sequence_lengths\[0\] must be the last entry of input_shape \(2, 3\), got 2 \(Feature",
        ),
        (BY_FEATURE, {"max_sequence_lengths": (3.0, 0, 0)}, r"max_sequence_lengths\[0\] must be an integer, got 3\.0"),
        (BY_FEATURE, {"max_sequence_lengths": (0, "x", 0)}, r"max_sequence_lengths\[1\] must be an integer, got 'x'"),
        (BY_FEATURE, {"num_features": (1, 1)}, r"num_features must have one value per input, 3, got 2"),
        (BY_FEATURE, {"num_features": (1, 0, 1)}, r"num_features\[1\] must be at least 1, got 0"),
        (BY_FEATURE, {"num_features": (4, 1, 1)}, r"feature 'f': num_features\[0\] must divide the 6 .* got 4 \(Feat"),
        (BY_FEATURE, {"combiners": ("sum",)}, r"Have 1 but expected 0, one per table \(2\) or one per feature \(3\)"),
        (BY_FEATURE, {"combiners": ("sum", "max")}, r"combiners\[1\]: Invalid combiner: .* are supported, got 'max'"),
        (BY_FEATURE, {"combiners": ("sum", "sum", b"sum")}, r"combiners\[2\]: Invalid combiner: .* got b'sum'"),
        (BY_TABLE, {"combiners": ("sum",) * 3}, r"Have 3 but expected 0, one per table \(2\)"),
        (BY_TABLE, {"table_ids": (0, 2)}, r"table_ids\[1\] must be in \[0, 2\), got 2"),
        (BY_TABLE, {"table_ids": (-1, 1)}, r"table_ids\[0\] must be in \[0, 2\), got -1"),
        (BY_TABLE, {"table_ids": ("b", 1)}, r"table_ids\[0\] must be an integer, got 'b'"),
        (BY_TABLE, {"table_ids": (0, 1)}, r"table 'b': .* fill num_features = 4 rows of a sample, got 1; .*\.num_f"),
        (BY_TABLE, {"table_ids": ()}, r"table 'a': .* fill num_features = 1 rows of a sample, got 0"),
        (
            BY_TABLE,
            {"table_ids": (0, 1), "num_features": (1, 2), "max_sequence_lengths": (0, 3)},
            r"table 'b': .* fill num_features = 4 rows of a sample, got 6",
        ),
        (BY_TABLE, {"table_ids": (0, 1), "num_features": (1, 4, 1)}, r"num_features must have one value per input, 2"),
    ],
)
def test_refuses(plan: Plan, attributes: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        entries(plan, **attributes)
