"""The training loop's one step: look up, predict, send gradients."""

from __future__ import annotations

import math

import numpy as np

from anycore import EmbeddingConfig, EmbeddingEngine
from anycore.demo.configuration import configuration
from anycore.demo.dataset import FloatArray, IntArray
from anycore.demo.factorization_machine import gradients, scores
from anycore.demo.features import COMBINERS, Features, num_ids
from anycore.demo.hyper_parameters import (
    BATCH_SIZE,
    BETA1,
    BETA2,
    DIMENSION,
    FACTORS,
    INITIAL_DEVIATION,
    LEARNING_RATE,
)


class Trainer:
    """A factorization machine whose embeddings an `EmbeddingEngine` holds and trains."""

    def __init__(self, features: Features, train: IntArray, num_steps: int, seed: int) -> None:
        """Starts a model for the ratings at the positions `train` of the data set of `features`.

        Its learning rate falls to zero in `num_steps` steps; `seed` gives its initial factors.
        """
        self.features = features
        self._ratings = features.dataset.ratings
        self._lowest, self._highest = self._ratings[train].min(), self._ratings[train].max()
        self._bias = self._ratings[train].mean()
        self._num_steps = num_steps
        self.steps = 0
        """Training steps so far."""
        self.ids = 0
        """Ids looked up for training so far."""

        sizes = features.vocabulary_sizes()
        self.engine = EmbeddingEngine(EmbeddingConfig.from_proto(configuration(sizes, BATCH_SIZE)))
        rng = np.random.default_rng(seed)
        for name, size in sizes.items():
            parameters = np.zeros((size, DIMENSION), np.float32)
            parameters[:, 1:] = rng.normal(0, INITIAL_DEVIATION, (size, FACTORS))
            self.engine.load(name, {"parameters": parameters})

    def step(self, positions: IntArray) -> FloatArray:
        """Returns [positions] the errors of the ratings at `positions`, at most `BATCH_SIZE`, then learns from them."""
        inputs = self.features.inputs(positions)
        self.engine.enqueue(inputs, combiners=tuple(COMBINERS.values()))
        embeddings = np.stack(self.engine.receive_activations())
        # Rows of the batch that stay empty have no error, hence no gradient.
        errors = np.zeros(BATCH_SIZE, np.float32)
        errors[: len(positions)] = (self._bias + scores(embeddings))[: len(positions)] - self._ratings[positions]
        self.steps += 1
        self.ids += num_ids(inputs)
        rate = learning_rate(self.steps, self._num_steps)
        self.engine.send_gradients(list(gradients(embeddings, errors)), [rate * bias_correction(self.steps)])
        self._bias -= np.float32(rate) * errors.mean()
        return errors[: len(positions)]

    def predict(self, positions: IntArray) -> FloatArray:
        """Returns [positions] the predicted ratings, within the range of those seen in training."""
        predictions = np.empty(len(positions), np.float32)
        for start in range(0, len(positions), BATCH_SIZE):
            batch = positions[start : start + BATCH_SIZE]
            self.engine.enqueue(self.features.inputs(batch), combiners=tuple(COMBINERS.values()), mode="inference")
            embeddings = np.stack(self.engine.receive_activations())
            predictions[start : start + len(batch)] = self._bias + scores(embeddings)[: len(batch)]
        return np.clip(predictions, self._lowest, self._highest)


def learning_rate(step: int, num_steps: int) -> float:
    """Returns the learning rate of `step`, counted from 1: a straight line from `LEARNING_RATE` down to zero."""
    return LEARNING_RATE * (1 - (step - 1) / num_steps)


def bias_correction(step: int) -> float:
    """Returns what the learning rate of Adam is multiplied with at `step`, counted from 1.

    `AdamParameters` carries no such correction, so the sender of the rate folds it in.

    Source: Kingma and Ba, Adam, ICLR 2015, end of section 2.
    """
    return math.sqrt(1 - BETA2**step) / (1 - BETA1**step)
