"""Ratings that a known model plants, for a machine that cannot fetch real ones."""

from __future__ import annotations

import numpy as np

from anycore.demo.dataset import Dataset, FloatArray, age_bucket

NOISE = 0.8
"""Standard deviation of what no model can know, in stars."""
_RANK = 4
_NUM_OCCUPATIONS = 21
_NUM_GENRES = 18
_MOST_GENRES = 3


def plant(
    seed: int, *, num_users: int = 943, num_movies: int = 1682, num_ratings: int = 100_000
) -> tuple[Dataset, FloatArray]:
    """Returns a data set of distinct (user, movie) pairs, and [ratings] its ratings without their noise.

    A rating is 3.5 stars, plus what the user and the movie are worth, plus the inner product of their `_RANK` factors,
    plus normal noise of deviation `NOISE`; a movie's factors lean towards those of its genres. Popular movies are
    rated more often, as in real life; stars are not rounded.
    """
    rng = np.random.default_rng(seed)
    genre_counts = rng.integers(1, _MOST_GENRES + 1, num_movies)
    genre_splits = np.concatenate(([0], np.cumsum(genre_counts)))
    genres = rng.integers(0, _NUM_GENRES, genre_splits[-1])
    genre_factors = rng.normal(0, 0.6, (_NUM_GENRES, _RANK))
    movie_factors = np.add.reduceat(genre_factors[genres], genre_splits[:-1]) / genre_counts[:, None]
    movie_factors += rng.normal(0, 0.4, movie_factors.shape)
    user_factors = rng.normal(0, 0.4, (num_users, _RANK))
    movie_worth = rng.normal(0, 0.5, num_movies)
    user_worth = rng.normal(0, 0.4, num_users)

    # The largest of log-probability plus Gumbel noise are a draw without replacement.
    popularity = -np.log1p(rng.permutation(num_movies)) + rng.gumbel(size=(num_users, num_movies))
    pairs = np.argpartition(-popularity.ravel(), num_ratings)[:num_ratings]
    users, movies = np.divmod(pairs, num_movies)
    planted = 3.5 + user_worth[users] + movie_worth[movies] + (user_factors[users] * movie_factors[movies]).sum(axis=1)

    dataset = Dataset(
        users=users,
        movies=movies,
        ratings=(planted + rng.normal(0, NOISE, num_ratings)).astype(np.float32),
        timestamps=rng.permutation(num_ratings),
        ages=age_bucket(rng.integers(10, 70, num_users)),
        genders=rng.integers(0, 2, num_users),
        occupations=rng.integers(0, _NUM_OCCUPATIONS, num_users),
        genre_splits=genre_splits,
        genres=genres,
    )
    return dataset, planted.astype(np.float32)
