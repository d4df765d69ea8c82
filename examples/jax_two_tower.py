"""A two-tower model of movie ratings in JAX: anycore trains the embeddings, optax the towers.

The ids of a batch are queued outside the compiled step, since their number changes from batch to batch and a program's
shapes do not; JAX runs a step in the background meanwhile. With --synthetic it needs no download.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tqdm import tqdm

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, TableConfig
from anycore.demo import movielens, synthetic
from anycore.demo.dataset import Dataset, split
from anycore.demo.features import COMBINERS, Features
from anycore.demo.history import earlier_ratings
from anycore.initializers import TruncatedNormal
from anycore.jax import lookup, tables
from anycore.optimizers import Adam
from anycore.optimizers.declarations import DynamicInput

TOWERS = {"query": ("user", "age", "gender", "occupation", "history"), "item": ("movie", "genres")}
DIMENSION, HIDDEN, OUTPUT = 16, 64, 32
RATE = 0.003
LIKED = 4
"""Stars from which on a rating counts as liked, for the area under the curve."""


class TwoTowers:
    """Predicts ratings as the inner product of what two towers make of the user and of the movie."""

    def __init__(self, features: Features, mean: float, num_steps: int, batch_size: int, seed: int) -> None:
        sizes = features.vocabulary_sizes()
        optimizer = Adam(
            learning_rate=DynamicInput(0), weight_decay_factor=1.0, multiply_weight_decay_factor_by_learning_rate=True
        )
        small = TruncatedNormal(0.0, 0.05)
        config = EmbeddingConfig(
            [TableConfig(name, sizes[name], DIMENSION, optimizer, COMBINERS[name], small) for name in sizes],
            [FeatureConfig(name, name, [batch_size]) for name in sizes],
        )
        self._features, self._mean, self._batch_size = features, mean, batch_size
        self._engine = EmbeddingEngine(config, seed=seed)
        self._rate = optax.linear_schedule(RATE, 0.0, num_steps)
        self._dense_optimizer = optax.adamw(self._rate)
        keys = jax.random.split(jax.random.key(seed))
        dense = {tower: _tower(key, len(TOWERS[tower])) for tower, key in zip(TOWERS, keys, strict=True)}
        self.state = (dense, self._dense_optimizer.init(dense), tables(self._engine), jnp.zeros((), jnp.int32))

    def learn(self, batch: Any) -> Any:
        """Returns the batch's mean squared error, then learns from it."""
        ratings = np.zeros(self._batch_size, np.float32)
        ratings[: len(batch)] = self._features.dataset.ratings[batch]
        self._engine.enqueue(self._features.inputs(batch))
        self.state, error = self._step(self.state, ratings, np.arange(self._batch_size) < len(batch))
        return error

    def predict(self, positions: Any) -> Any:
        """Returns the predicted ratings at `positions`."""
        predictions = []
        for batch in _batches(positions, self._batch_size):
            self._engine.enqueue(self._features.inputs(batch), mode="inference")
            predictions.append(np.asarray(self._infer(self.state))[: len(batch)])
        return np.clip(np.concatenate(predictions), 1, 5)

    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def _step(self, state: Any, ratings: Any, present: Any) -> Any:
        dense, optimizer_state, stand_in, step = state

        def error_of(dense: Any, stand_in: Any) -> Any:
            activations = lookup(stand_in, learning_rates=[self._rate(step)])
            return jnp.sum(jnp.where(present, self._ratings(dense, activations) - ratings, 0) ** 2) / jnp.sum(present)

        error, (gradients, stand_in) = jax.value_and_grad(error_of, argnums=(0, 1))(dense, stand_in)
        updates, optimizer_state = self._dense_optimizer.update(gradients, optimizer_state, dense)
        return (optax.apply_updates(dense, updates), optimizer_state, stand_in, step + 1), error

    @partial(jax.jit, static_argnums=0)
    def _infer(self, state: Any) -> Any:
        dense, _, stand_in, _ = state
        return self._ratings(dense, lookup(stand_in))

    def _ratings(self, dense: Any, activations: Any) -> Any:
        named = dict(zip((activation.name for activation in self._engine.activations), activations, strict=True))
        inputs = {tower: jnp.concatenate([named[name] for name in names], axis=1) for tower, names in TOWERS.items()}
        query, item = (_climb(dense[tower], inputs[tower]) for tower in TOWERS)
        return self._mean + named["user"][:, 0] + named["movie"][:, 0] + jnp.sum(query * item, axis=1)


def _tower(key: Any, num_features: int) -> list[Any]:
    shapes = ((num_features * DIMENSION, HIDDEN), (HIDDEN, OUTPUT))
    make = jax.nn.initializers.he_normal()
    return [(make(key, s), jnp.zeros(s[1])) for key, s in zip(jax.random.split(key), shapes, strict=True)]


def _climb(layers: list[Any], values: Any) -> Any:
    (first, shift), (second, last_shift) = layers
    return jax.nn.relu(values @ first + shift) @ second + last_shift


def _batches(positions: Any, size: int) -> list[Any]:
    return [positions[start : start + size] for start in range(0, len(positions), size)]


def area_under_curve(scores: Any, positive: Any) -> float:
    """Returns how often a positive has a higher score than a negative; equal scores count half."""
    _, ranks, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    num_positive = positive.sum()
    wins = middle[ranks][positive].sum() - num_positive * (num_positive + 1) / 2
    return float(wins / (num_positive * (len(positive) - num_positive)))


def train(dataset: Dataset, epochs: int, batch_size: int, seed: int = 0) -> dict[str, float]:
    """Trains on four fifths of the ratings and returns RMSE and AUC on the others."""
    positions, held_out = split(len(dataset.ratings))
    features = Features(dataset, earlier_ratings(dataset, positions))
    num_steps = epochs * len(_batches(positions, batch_size))
    model = TwoTowers(features, float(dataset.ratings[positions].mean()), num_steps, batch_size, seed)
    random = np.random.default_rng(seed)
    for epoch in range(1, epochs + 1):
        bar = tqdm(_batches(random.permutation(positions), batch_size), desc=f"epoch {epoch}/{epochs}", unit=" steps")
        errors = [model.learn(batch) for batch in bar]
        print(f"training RMSE {float(jnp.sqrt(jnp.mean(jnp.stack(errors)))):.3f}")
    predictions, ratings = model.predict(held_out), dataset.ratings[held_out]
    rmse = float(np.sqrt(np.mean((predictions - ratings) ** 2)))
    return {"RMSE": rmse, "AUC": area_under_curve(predictions, ratings >= LIKED)}


def main() -> None:
    """Runs the example from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--synthetic", action="store_true", help="ratings of a known model; no download")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=512)
    options = parser.parse_args()
    print("synthetic ratings" if options.synthetic else movielens.TERMS)
    dataset = synthetic.plant(0)[0] if options.synthetic else movielens.load(movielens.cache_directory())
    print(train(dataset, options.epochs, options.batch_size))


if __name__ == "__main__":
    main()
