"""Ratings of movies by users, and what is known of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore.demo.hyper_parameters import HELD_OUT, SPLIT_SEED

IntArray = NDArray[np.integer[Any]]
FloatArray = NDArray[np.floating[Any]]

_AGE_EDGES = (18, 25, 35, 45, 50, 56)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Every id counts from zero; `users[n]` and `movies[n]` are the ids of rating n."""

    users: IntArray
    """[ratings]"""
    movies: IntArray
    """[ratings]"""
    ratings: FloatArray
    """[ratings]; stars."""
    timestamps: IntArray
    """[ratings]; seconds."""
    ages: IntArray
    """[users]; `age_bucket` of the user."""
    genders: IntArray
    """[users]"""
    occupations: IntArray
    """[users]"""
    genre_splits: IntArray
    """[movies + 1]; the genres of movie m are `genres[genre_splits[m]:genre_splits[m + 1]]`."""
    genres: IntArray
    """[genres of all movies]"""

    def vocabulary_sizes(self) -> dict[str, int]:
        """Returns how many ids there are of each kind that stands for one thing, by feature name."""
        return {
            "user": len(self.ages),
            "movie": len(self.genre_splits) - 1,
            "age": len(_AGE_EDGES) + 1,
            "gender": int(self.genders.max()) + 1,
            "occupation": int(self.occupations.max()) + 1,
            "genres": int(self.genres.max()) + 1,
        }


def age_bucket(years: IntArray) -> IntArray:
    """Returns the bucket of each age: under 18, 18-24, 25-34, 35-44, 45-49, 50-55, 56 and more."""
    return np.searchsorted(_AGE_EDGES, years, side="right")


def split(num_ratings: int) -> tuple[IntArray, IntArray]:
    """Returns the positions of the ratings to learn from and of those held out: random, and the same at every call."""
    shuffled = np.random.default_rng(SPLIT_SEED).permutation(num_ratings)
    num_train = num_ratings - round(HELD_OUT * num_ratings)
    return shuffled[:num_train], shuffled[num_train:]
