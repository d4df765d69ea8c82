"""How good predictions are, and what a model has to beat."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anycore.demo.dataset import Dataset, FloatArray, IntArray
from anycore.demo.hyper_parameters import BIAS_SHRINKAGE

_SWEEPS = 20


def rmse(predictions: FloatArray, ratings: FloatArray) -> float:
    """Returns the root of the mean squared difference."""
    return float(np.sqrt(np.mean(np.square(predictions - ratings, dtype=np.float64))))


def auc(scores: FloatArray, positive: NDArray[np.bool_]) -> float:
    """Returns how often a positive one has the higher score of a pair, equal scores counted half."""
    ordered = np.sort(scores[~positive])
    below = np.searchsorted(ordered, scores[positive], "left") + np.searchsorted(ordered, scores[positive], "right")
    return float(below.mean() / (2 * len(ordered)))


def bias_only(dataset: Dataset, train: IntArray, test: IntArray) -> FloatArray:
    """Returns predictions for `test`: the mean of `train`, plus what its users and movies deviate from it.

    The deviations are the regularised least squares solution, found by solving for users and movies in turn.
    """
    users, movies = dataset.users, dataset.movies
    mean = dataset.ratings[train].mean()
    residuals = dataset.ratings[train] - mean
    user_biases, movie_biases = np.zeros(users.max() + 1), np.zeros(movies.max() + 1)
    for _ in range(_SWEEPS):
        user_biases = _shrunk_means(users[train], residuals - movie_biases[movies[train]], len(user_biases))
        movie_biases = _shrunk_means(movies[train], residuals - user_biases[users[train]], len(movie_biases))
    predictions: FloatArray = mean + user_biases[users[test]] + movie_biases[movies[test]]
    return predictions


def _shrunk_means(ids: IntArray, values: FloatArray, size: int) -> FloatArray:
    means: FloatArray = np.bincount(ids, values, size) / (np.bincount(ids, minlength=size) + BIAS_SHRINKAGE)
    return means
