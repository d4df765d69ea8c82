"""A factorization machine over one embedding per feature."""

from __future__ import annotations

import numpy as np

from anycore.demo.dataset import FloatArray

Embeddings = FloatArray
"""[features, samples, dimension]: column 0 of an embedding is its linear weight, the others are its factors."""


def scores(embeddings: Embeddings) -> FloatArray:
    """Returns [samples]: the linear weights of all features, plus the inner product of factors of every pair of them.

    The pairs are summed as half of (square of the sum - sum of the squares).

    Source: Rendle, Factorization Machines, ICDM 2010.
    """
    total: FloatArray = embeddings.sum(axis=0)
    pairs: FloatArray = np.square(total[:, 1:]).sum(axis=1) - np.square(embeddings[:, :, 1:]).sum(axis=(0, 2))
    return total[:, 0] + pairs / 2


def gradients(embeddings: Embeddings, errors: FloatArray) -> Embeddings:
    """Returns the gradient of half the sum of squared `errors`, where errors[b] is scores[b] minus its target.

    A linear weight gets the error, a factor gets the error times the same factor summed over the other features.
    """
    others: Embeddings = embeddings.sum(axis=0) - embeddings
    others[:, :, 0] = 1
    return others * errors[:, None]
