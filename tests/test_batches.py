"""The numbers of the benchmark beside other engines."""

from __future__ import annotations

import numpy as np
import pytest
from peers.batches import Batches, initial_chunks, initial_values
from peers.workloads import Draw, Workload

TWO_FEATURES = Workload(
    name="any",
    num_tables=3,
    vocabulary_size=1000,
    dimension=4,
    batch_size=200,
    features_per_table=2,
    draws=(Draw(20), Draw(1), Draw(20, "Zipf 1.1"), Draw(20, "hot")),
)


@pytest.mark.parametrize("draw", TWO_FEATURES.draws, ids=str)
def test_every_sample_has_as_many_ids_as_the_draw_says(draw: Draw) -> None:
    batch = Batches(TWO_FEATURES, seed=0).next(draw)
    assert np.all(np.diff(batch.splits) == draw.ids_per_sample)
    assert len(batch.ids) == len(batch.gradients) == 6
    for ids, gradient in zip(batch.ids, batch.gradients, strict=True):
        assert len(ids) == batch.splits[-1] == 200 * draw.ids_per_sample
        assert ids.min() >= 0 and ids.max() < 1000
        assert gradient.shape == (200, 4) and gradient.dtype == np.float32


def test_one_hot_id_makes_half_of_all_lookups() -> None:
    ids = Batches(TWO_FEATURES, seed=0).next(Draw(20, "hot")).ids[0]
    assert abs(np.bincount(ids).max() / len(ids) - 0.5) < 0.02


def test_zipf_ids_follow_the_law_but_do_not_lie_side_by_side() -> None:
    batches = Batches(TWO_FEATURES, seed=0)
    counts = np.bincount(np.concatenate([batches.next(Draw(20, "Zipf 1.1")).ids[0] for _ in range(20)]))
    first, second = np.argsort(-counts)[:2]
    assert (first, second) == (0, 7919 % 1000)
    assert counts[first] / counts[second] == pytest.approx(2**1.1, rel=0.05)


def test_steps_differ_and_seeds_repeat_them() -> None:
    one, two = Batches(TWO_FEATURES, seed=0), Batches(TWO_FEATURES, seed=0)
    first, second = one.next(Draw(20)), one.next(Draw(20))
    assert not np.array_equal(first.ids[0], second.ids[0])
    np.testing.assert_array_equal(first.ids[0], two.next(Draw(20)).ids[0])


def test_ids_of_a_table_are_those_of_all_its_features() -> None:
    batch = Batches(TWO_FEATURES, seed=0).next(Draw(1))
    tables = batch.ids_of_tables(TWO_FEATURES)
    np.testing.assert_array_equal(tables[1], np.concatenate(batch.ids[2:4]))
    assert batch.distinct_rows(TWO_FEATURES) == sum(len(set(ids.tolist())) for ids in tables)


def test_sequences_have_a_gradient_for_every_id_and_means_a_weight() -> None:
    sequence = Workload(name="any", num_tables=1, vocabulary_size=10, dimension=4, batch_size=8, sequence=True)
    assert Batches(sequence, seed=0).next(Draw(20)).gradients[0].shape == (160, 4)
    mean = Workload(name="any", num_tables=1, vocabulary_size=10, dimension=4, batch_size=8, weighted_mean=True)
    weights = Batches(mean, seed=0).next(Draw(20)).weights
    assert weights is not None and weights[0].shape == (160,) and weights[0].min() >= 0.5


def test_starting_values_are_the_same_in_pieces() -> None:
    workload = Workload(name="any", vocabulary_size=100_000, dimension=2)
    whole = initial_values(3, np.arange(100_000), 2)
    pieces = list(initial_chunks(workload, 3))
    assert len(pieces) == 2
    for place, values in pieces:
        np.testing.assert_array_equal(values, whole[place])
    assert not np.array_equal(whole[:10], initial_values(4, np.arange(10), 2))
