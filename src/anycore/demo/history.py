"""What the user thought of other movies before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anycore.demo.dataset import Dataset, FloatArray, IntArray
from anycore.demo.hyper_parameters import HISTORY_LENGTH


@dataclass(frozen=True)
class History:
    """Training ratings by user and time; what precedes rating n is the slice `starts[n]:stops[n]` of them."""

    movies: IntArray
    """[training ratings]"""
    opinions: FloatArray
    """[training ratings]; stars above the mean of the training ratings."""
    starts: IntArray
    """[ratings]"""
    stops: IntArray
    """[ratings]"""


def earlier_ratings(dataset: Dataset, train: IntArray) -> History:
    """Returns for every rating of `dataset` the last `HISTORY_LENGTH` training ratings of its user before it.

    Only ratings with a smaller timestamp count, so a rating is never part of its own history, held out or not.
    """
    order = train[np.lexsort((dataset.timestamps[train], dataset.users[train]))]
    # (user, timestamp) as one number: users in the upper half, timestamps in the lower.
    users = dataset.users.astype(np.int64) << 32
    moments = users + dataset.timestamps
    stops = np.searchsorted(moments[order], moments)
    starts = np.maximum(np.searchsorted(moments[order], users), stops - HISTORY_LENGTH)
    ratings = dataset.ratings[order]
    return History(dataset.movies[order], ratings - ratings.mean(), starts, stops)
