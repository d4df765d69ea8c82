from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from itertools import pairwise
from statistics import NormalDist
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anycore.errors import ConfigError, InputError
from anycore.initializers import Constant, Initializer, RowFunction, TruncatedNormal, Uniform, resolve
from anycore.kernels.initialize import normal_from_symmetric

UNIFORM, NORMAL = Uniform(-0.25, 0.75), TruncatedNormal(0.5, 2.0)
BY_ROW = RowFunction(lambda rows, dimension: rows[:, None] * 10.0 + np.arange(dimension))
RANDOM = [UNIFORM, NORMAL]
EVERY = [Constant(1.5), *RANDOM, BY_ROW]


def values(initializer: Initializer, rows: int, dimension: int, *, seed: int = 0, table_name: str = "user") -> Any:
    """Returns float32[rows, dimension]: the rows from 0 on."""
    parameters = np.empty((rows, dimension), np.float32)
    initializer.fill(parameters, 0, seed, table_name)
    return parameters


def quantile_of_truncated_normal(probability: float) -> float:
    inside = NormalDist().cdf(2) - NormalDist().cdf(-2)
    return NormalDist().inv_cdf(NormalDist().cdf(-2) + probability * inside)


@pytest.mark.parametrize("initializer", EVERY)
@settings(deadline=None)  # the first call compiles
@given(cuts=st.lists(st.integers(0, 50), max_size=4), dimension=st.sampled_from([1, 3, 8, 63, 130]))
def test_ranges_of_rows_give_the_same_values(initializer: Initializer, cuts: list[int], dimension: int) -> None:
    parts = np.full((50, dimension), np.nan, np.float32)
    for first, last in pairwise([0, *sorted(cuts), 50]):
        initializer.fill(parts[first:last], first, 0, "user")
    np.testing.assert_array_equal(parts, values(initializer, 50, dimension))


@pytest.mark.parametrize("initializer", EVERY)
@pytest.mark.parametrize("num_shards", [1, 2, 7])
def test_strided_rows_give_the_same_values(initializer: Initializer, num_shards: int) -> None:
    whole = values(initializer, 50, 5)
    for shard_id in range(num_shards):
        shard = np.empty_like(whole[shard_id::num_shards])
        initializer.fill(shard, shard_id, 0, "user", row_step=num_shards)
        np.testing.assert_array_equal(shard, whole[shard_id::num_shards])


@pytest.mark.parametrize("initializer", EVERY)
def test_only_the_given_columns_of_records_are_written(initializer: Initializer) -> None:
    records = np.full((9, 16), -7, np.float32)
    initializer.fill(records[:, 2:7], 0, 0, "user")
    np.testing.assert_array_equal(records[:, 2:7], values(initializer, 9, 5))
    assert (np.delete(records, range(2, 7), axis=1) == -7).all()


@pytest.mark.parametrize("initializer", RANDOM)
def test_a_wider_table_starts_with_the_values_of_a_narrower_one(initializer: Initializer) -> None:
    np.testing.assert_array_equal(values(initializer, 4, 130)[:, :3], values(initializer, 4, 3))


@pytest.mark.parametrize("initializer", EVERY)
@pytest.mark.parametrize("shape", [(0, 4), (1, 1)])
def test_few_rows(initializer: Initializer, shape: tuple[int, int]) -> None:
    assert values(initializer, *shape).shape == shape


def test_first_values_never_change() -> None:
    """Recorded once: a change would give every user other tables for the same seed."""
    assert values(UNIFORM, 2, 3).tolist() == [
        [-0.06607308983802795, 0.18404880166053772, 0.42991796135902405],
        [0.09507718682289124, 0.2686654031276703, 0.03793880343437195],
    ]
    assert values(NORMAL, 2, 3).tolist() == [
        [-1.195358395576477, 0.18309220671653748, 1.3893996477127075],
        [-0.25917285680770874, 0.5893465876579285, -0.5627026557922363],
    ]


def test_compiled_hash_is_splitmix64() -> None:
    def member(key: int, index: int) -> int:
        h = (key + (index + 1) * 0x9E3779B97F4A7C15) % 2**64
        h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        h = (h ^ h >> 27) * 0x94D049BB133111EB % 2**64
        return h ^ h >> 31

    key = int.from_bytes(blake2b(b"42:user", digest_size=8).digest(), "little")
    draws = [[member(member(key, row), column) >> 40 for column in range(70)] for row in range(5)]
    signed = np.array(draws) - 2**24 * (np.array(draws) >= 2**23)
    np.testing.assert_array_equal(values(Uniform(-1, 1), 5, 70, seed=42), (signed + 0.5) * 2.0**-23)


def test_row_ids_beyond_32_bits() -> None:
    far = np.empty((1, 8), np.float32)
    UNIFORM.fill(far, 2**40, 0, "user")
    assert not np.isin(far, values(UNIFORM, 1, 8)).any()


def test_uniform_moments_quantiles_and_bounds() -> None:
    x = values(UNIFORM, 4000, 128).astype(float)
    assert x.min() >= -0.25 and x.max() <= 0.75
    assert x.mean() == pytest.approx(0.25, abs=0.002)
    assert x.std() == pytest.approx(1 / np.sqrt(12), abs=0.001)
    probabilities = np.linspace(0.01, 0.99, 99)
    np.testing.assert_allclose(np.quantile(x, probabilities), probabilities - 0.25, atol=0.003)


@pytest.mark.parametrize(
    ("low", "high"), [(0.1, 0.3), (3.0, 3.0), (-1e30, 3e38), (1.0, np.nextafter(np.float32(1), 2))]
)
def test_uniform_never_leaves_its_bounds(low: float, high: float) -> None:
    x = values(Uniform(low, high), 1000, 16)
    assert np.float32(low) <= x.min() and x.max() <= np.float32(high)


def test_truncated_normal_moments_quantiles_and_bounds() -> None:
    x = (values(NORMAL, 4000, 128).astype(float) - 0.5) / 2
    assert abs(x).max() <= 2
    assert x.mean() == pytest.approx(0, abs=0.005)
    assert x.std() == pytest.approx(0.87962566, abs=0.003)
    assert (x**4).mean() == pytest.approx(1.4161891, abs=0.01)
    probabilities = np.linspace(0.01, 0.99, 99)
    expected = [quantile_of_truncated_normal(probability) for probability in probabilities]
    np.testing.assert_allclose(np.quantile(x, probabilities), expected, atol=0.01)


def test_normal_from_symmetric_is_the_exact_quantile() -> None:
    grid = ((np.arange(-(2**23), 2**23, 1009) + 0.5) * 2.0**-23).astype(np.float32)
    for t in [*grid, np.float32(1 - 2.0**-24)]:
        got = normal_from_symmetric(t)
        assert got == pytest.approx(quantile_of_truncated_normal((float(t) + 1) / 2), abs=6e-7)
        assert got == -normal_from_symmetric(-t)
        assert abs(got) <= 2


@pytest.mark.parametrize("initializer", RANDOM)
def test_seed_table_row_and_column_each_matter(initializer: Initializer) -> None:
    x = values(initializer, 64, 64)
    others = [
        values(initializer, 64, 64, seed=1),
        values(initializer, 64, 64, seed=-1),
        values(initializer, 64, 64, table_name="user2"),
        np.roll(x, 1, axis=0),
        np.roll(x, 1, axis=1),
        x.T,
    ]
    for other in others:
        assert (x != other).mean() > 0.98
        assert abs(np.corrcoef(x.ravel(), other.ravel())[0, 1]) < 0.06
    assert len(np.unique(x)) > 4000


@pytest.mark.parametrize("initializer", RANDOM)
def test_neighbouring_rows_and_columns_are_uncorrelated(initializer: Initializer) -> None:
    """Means of n products of independent draws lie within 5/√n standard deviations of 0."""
    x = values(initializer, 20000, 32).astype(float)
    x = (x - x.mean()) / x.std()
    for shifted, original in [(x[1:], x[:-1]), (x[:, 1:], x[:, :-1]), (x[16:], x[:-16])]:
        products = (shifted * original).ravel()
        assert abs(products.mean()) < 5 / np.sqrt(products.size)


def test_row_function_gets_the_row_ids() -> None:
    shard = np.empty((3, 2), np.float32)
    BY_ROW.fill(shard, 4, 0, "user", row_step=5)
    assert shard.tolist() == [[40, 41], [90, 91], [140, 141]]


def test_row_function_of_another_shape() -> None:
    with pytest.raises(ConfigError, match=r"^table 'user': initializer must return shape \(3, 2\).*got \(3,\)"):
        values(RowFunction(lambda rows, dimension: np.zeros(len(rows))), 3, 2)


@pytest.mark.parametrize("initializer", RANDOM)
@pytest.mark.parametrize("parameters", [np.zeros((2, 3)), np.zeros((3, 2), np.float32).T])
def test_memory_that_a_kernel_cannot_fill(initializer: Initializer, parameters: Any) -> None:
    with pytest.raises(InputError, match=r"^table 'user': parameters must be float32 with the values of a row side by"):
        initializer.fill(parameters, 0, 0, "user")


@pytest.mark.parametrize(
    ("initializer", "message"),
    [
        (lambda: Constant(float("nan")), r"Constant\(value=nan\): value must be a finite float32"),
        (lambda: Uniform(0, 1e39), "high must be a finite float32"),
        (lambda: Uniform(2, 1), r"Uniform\(low=2, high=1\): low must not be above high"),
        (lambda: TruncatedNormal(stddev=-1), "stddev must not be negative"),
        (lambda: replace(NORMAL, mean=float("inf")), "mean must be a finite float32"),
        (
            lambda: resolve(cast(Any, 0.5), "user", 4),
            r"table 'user': initializer must be .*got 0\.5 \(TableConfig\.initializer\)",
        ),
    ],
)
def test_unusable_initializers(initializer: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        initializer()


def test_resolve() -> None:
    def function(rows: Any, dimension: int) -> Any:
        return np.zeros((len(rows), dimension))

    assert resolve(None, "user", 16) == TruncatedNormal(0.0, 0.25)
    assert resolve(UNIFORM, "user", 16) is UNIFORM
    assert resolve(function, "user", 16) == RowFunction(function)
