"""A two-tower model of movie ratings in JAX: anycore trains the embeddings, optax the towers.

The ids of a batch are queued outside the compiled step: their number changes from batch to batch, a program's shapes do
not. With --synthetic it needs no download. The processes that `torchrun --nproc-per-node 2` starts share the tables and
every batch, and learn the same up to rounding.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from tqdm import tqdm

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, TableConfig
from anycore.demo import movielens, synthetic
from anycore.demo.baselines import auc, rmse
from anycore.demo.dataset import Dataset, split
from anycore.demo.features import COMBINERS, Features
from anycore.demo.history import earlier_ratings
from anycore.initializers import TruncatedNormal
from anycore.jax import lookup, tables
from anycore.optimizers import Adam, DynamicInput
from anycore.transport import TorchTransport

TOWERS = {"query": ("user", "age", "gender", "occupation", "history"), "item": ("movie", "genres")}
DIMENSION, HIDDEN, OUTPUT, RATE = 16, 64, 32, 0.003
LIKED = 4  # stars from which on a rating counts as liked, for the area under the curve
RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))  # torchrun sets them


class TwoTowers:
    """Predicts ratings as the inner product of what two towers make of the user and of the movie."""

    def __init__(self, features: Features, mean: float, num_steps: int, batch_size: int, seed: int) -> None:
        self._features, self._mean, self._share = features, mean, -(-batch_size // SIZE)
        rate = DynamicInput(0)
        adam = Adam(learning_rate=rate, weight_decay_factor=1.0, multiply_weight_decay_factor_by_learning_rate=True)
        sizes, small = features.vocabulary_sizes(), TruncatedNormal(0.0, 0.05)
        of_names = [TableConfig(name, sizes[name], DIMENSION, adam, COMBINERS[name], small) for name in sizes]
        inputs = [FeatureConfig(name, name, [self._share]) for name in sizes]
        transport = TorchTransport() if SIZE > 1 else None
        config = EmbeddingConfig(of_names, inputs, num_tensor_cores=SIZE)
        self._engine = EmbeddingEngine(config, seed=seed, transport=transport)
        self._channel = transport.channel(timeout=60) if transport else None
        self._rate = optax.linear_schedule(RATE, 0.0, num_steps)
        self._optimizer = optax.adamw(self._rate)
        keys = dict(zip(TOWERS, jax.random.split(jax.random.key(seed)), strict=True))
        dense, self._towers = ravel_pytree({tower: _tower(key, len(TOWERS[tower])) for tower, key in keys.items()})
        self.state = (dense, self._optimizer.init(dense), tables(self._engine), jnp.zeros((), jnp.int32))
        self._infer = jax.jit(lambda state: self._ratings(state[0], lookup(state[2])))

    def learn(self, batch: Any) -> Any:
        """Returns the batch's mean squared error, then learns from it."""
        own = batch[RANK::SIZE]
        ratings = np.pad(self._features.dataset.ratings[own], (0, self._share - len(own)))
        self._engine.enqueue(self._features.inputs(own))
        sums, stand_in = self._differentiate(self.state, ratings, np.arange(self._share) < len(own), len(batch))
        if self._channel:
            gathered = self._channel.all_gather(np.asarray(sums).tobytes())
            sums = np.sum([np.frombuffer(each, np.float32) for each in gathered], axis=0)
        self.state, error = self._update(self.state, sums, stand_in)
        return error

    def predict(self, positions: Any) -> Any:
        """Returns the predicted ratings at `positions`, to every process."""
        predictions = []
        for batch in np.split(positions, range(self._share, len(positions), self._share)):
            self._engine.enqueue(self._features.inputs(batch), mode="inference")
            predictions.append(np.asarray(self._infer(self.state))[: len(batch)])
        return np.clip(np.concatenate(predictions), 1, 5)

    @partial(jax.jit, static_argnums=0)
    def _differentiate(self, state: Any, ratings: Any, present: Any, batch_size: Any) -> Any:
        dense, _, stand_in, step = state

        def error_of(dense: Any, stand_in: Any) -> Any:
            activations = lookup(stand_in, learning_rates=[self._rate(step)])
            return jnp.sum(jnp.where(present, self._ratings(dense, activations) - ratings, 0) ** 2) / batch_size

        error, (gradient, stand_in) = jax.value_and_grad(error_of, argnums=(0, 1))(dense, stand_in)
        return jnp.append(gradient, error), stand_in

    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def _update(self, state: Any, sums: Any, stand_in: Any) -> Any:
        dense, optimizer_state, _, step = state
        updates, optimizer_state = self._optimizer.update(sums[:-1], optimizer_state, dense)
        return (optax.apply_updates(dense, updates), optimizer_state, stand_in, step + 1), sums[-1]

    def _ratings(self, dense: Any, activations: Any) -> Any:
        named = dict(zip((activation.name for activation in self._engine.activations), activations, strict=True))
        inputs = {tower: jnp.concatenate([named[name] for name in names], axis=1) for tower, names in TOWERS.items()}
        query, item = (_climb(layers, inputs[tower]) for tower, layers in self._towers(dense).items())
        return self._mean + named["user"][:, 0] + named["movie"][:, 0] + jnp.sum(query * item, axis=1)


def _tower(key: Any, num_features: int) -> list[Any]:
    shapes = ((num_features * DIMENSION, HIDDEN), (HIDDEN, OUTPUT))
    make = jax.nn.initializers.he_normal()
    return [(make(key, s), jnp.zeros(s[1])) for key, s in zip(jax.random.split(key), shapes, strict=True)]


def _climb(layers: list[Any], values: Any) -> Any:
    (first, shift), (second, last_shift) = layers
    return jax.nn.relu(values @ first + shift) @ second + last_shift


def train(dataset: Dataset, epochs: int, batch_size: int, seed: int = 0) -> dict[str, float]:
    """Trains on four fifths of the ratings and returns RMSE and AUC on the others."""
    positions, held_out = split(len(dataset.ratings))
    features = Features(dataset, earlier_ratings(dataset, positions))
    mean, num_steps = float(dataset.ratings[positions].mean()), epochs * -(-len(positions) // batch_size)
    model = TwoTowers(features, mean, num_steps, batch_size, seed)
    random = np.random.default_rng(seed)
    for epoch in range(1, epochs + 1):
        batches = np.split(random.permutation(positions), range(batch_size, len(positions), batch_size))
        errors = [model.learn(batch) for batch in tqdm(batches, f"epoch {epoch}/{epochs}", disable=RANK > 0)]
        if RANK == 0:
            print(f"training RMSE {float(jnp.sqrt(jnp.mean(jnp.stack(errors)))):.3f}")
    predictions, ratings = model.predict(held_out), dataset.ratings[held_out]
    return {"RMSE": rmse(predictions, ratings), "AUC": auc(predictions, ratings >= LIKED)}


def main() -> None:
    """Runs the example from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--synthetic", action="store_true", help="ratings of a known model; no download")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=512)
    options = parser.parse_args()
    if SIZE > 1:
        import torch.distributed

        torch.distributed.init_process_group("gloo")  # or MPITransport() above, and mpiexec
    dataset = synthetic.plant(0)[0] if options.synthetic else movielens.load(movielens.cache_directory())
    results = train(dataset, options.epochs, options.batch_size)
    if RANK == 0:
        print("synthetic ratings" if options.synthetic else movielens.TERMS, results, sep="\n")


if __name__ == "__main__":
    main()
