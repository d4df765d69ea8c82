"""Ratings to look up → one embedding input per feature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anycore import Ragged
from anycore.demo.dataset import Dataset, IntArray
from anycore.demo.history import History

COMBINERS = {
    "user": "sum",
    "movie": "sum",
    "age": "sum",
    "gender": "sum",
    "occupation": "sum",
    "genres": "mean",
    "history": "sum",
}
"""Feature → how its ids are combined; every feature has a table of its own name."""


@dataclass(frozen=True)
class Features:
    """The features of a data set's ratings."""

    dataset: Dataset
    history: History

    def vocabulary_sizes(self) -> dict[str, int]:
        """Returns the number of rows of every feature's table."""
        sizes = self.dataset.vocabulary_sizes()
        # A movie in a history speaks of the user, not of itself: with a table of its own the model validated better.
        return {**sizes, "history": sizes["movie"]}

    def inputs(self, positions: IntArray) -> dict[str, IntArray | Ragged]:
        """Returns the ids of the ratings at `positions` by feature, one sample a rating, never the ratings themselves.

        The n movies of a history weigh (stars above the mean) / √n: their sum keeps its spread however many they are.
        """
        dataset, history = self.dataset, self.history
        users, movies = dataset.users[positions], dataset.movies[positions]
        genre_splits, genres = _slices(dataset.genre_splits[movies], dataset.genre_splits[movies + 1])
        splits, earlier = _slices(history.starts[positions], history.stops[positions])
        lengths = np.diff(splits)
        weights = history.opinions[earlier] / np.sqrt(np.repeat(lengths, lengths), dtype=np.float32)
        return {
            "user": users,
            "movie": movies,
            "age": dataset.ages[users],
            "gender": dataset.genders[users],
            "occupation": dataset.occupations[users],
            "genres": Ragged(genre_splits, dataset.genres[genres]),
            "history": Ragged(splits, history.movies[earlier], weights),
        }


def num_ids(inputs: dict[str, IntArray | Ragged]) -> int:
    """Returns how many ids `inputs` looks up."""
    return sum(len(ids.embedding_indices if isinstance(ids, Ragged) else ids) for ids in inputs.values())


def _slices(starts: IntArray, stops: IntArray) -> tuple[IntArray, IntArray]:
    # Row splits of the slices one after the other, and the position of every element of them.
    lengths = stops - starts
    splits = np.concatenate(([0], np.cumsum(lengths)))
    return splits, np.arange(splits[-1]) + np.repeat(starts - splits[:-1], lengths)
