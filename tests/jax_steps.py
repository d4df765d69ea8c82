"""A model of two tables for JAX: its engines, batches, and a step inside and outside of `jax.jit`.

The model is element-wise, so that XLA's rounding does not depend on what else is in the program.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, Ragged, Sparse, TableConfig
from anycore.jax import lookup
from anycore.optimizers import Adagrad, Adam
from anycore.optimizers.declarations import DynamicInput

BATCH = 6
WATCHED = 14
"""Ids of the feature in every batch; a program's shapes are fixed."""


def make_engine(timeout: float = 5.0, **options: Any) -> EmbeddingEngine:
    """Returns an engine of tables 'movies' and 'users', and features 'watched' (mean), 'liked' (mean) and 'user'."""
    config = EmbeddingConfig(
        [
            TableConfig("movies", 50, 5, Adagrad(learning_rate=DynamicInput(0)), combiner="mean"),
            TableConfig("users", 20, 3, Adam(learning_rate=DynamicInput(1))),
        ],
        [
            FeatureConfig("watched", "movies", [BATCH]),
            FeatureConfig("liked", "movies", [BATCH]),
            FeatureConfig("user", "users", [BATCH]),
        ],
        **options,
    )
    return EmbeddingEngine(config, seed=1, timeout=timeout)


def make_batch(random: np.random.Generator) -> dict[str, Any]:
    """Returns ids: ragged with weights and empty rows, sparse, dense."""
    inner = np.sort(random.integers(0, WATCHED + 1, BATCH - 1))
    splits = np.concatenate([[0], inner, [WATCHED]])
    weights = random.random(WATCHED, np.float32)
    rows = np.sort(random.integers(0, BATCH, 9))
    return {
        "watched": Ragged(splits, random.integers(0, 50, WATCHED), weights),
        "liked": Sparse(np.stack([rows, np.arange(9)], 1), random.integers(0, 50, 9)),
        "user": random.integers(0, 20, BATCH),
    }


def make_dense() -> dict[str, Any]:
    """Returns the dense parameters."""
    return {"movies": jnp.linspace(-1, 1, 5), "users": jnp.linspace(0.5, 2, 3)}


def loss_of(dense: Any, activations: Any) -> Any:
    """Returns the model's loss."""
    watched, liked, user = activations["watched"], activations["liked"], activations["user"]
    return jnp.sum(dense["movies"] * watched * liked * liked) + jnp.sum(jnp.square(dense["users"] * user))


def descend(dense: Any, gradients: Any) -> Any:
    """Returns the dense parameters after one step."""
    return jax.tree.map(lambda value, gradient: value - jnp.float32(0.125) * gradient, dense, gradients)


def step(dense: Any, tables: Any, batch: Any, rates: Any) -> tuple[Any, Any, Any]:
    """Returns loss, dense parameters and tables after one step: what `jax.jit` compiles."""

    def loss_by(dense: Any, tables: Any) -> Any:
        return loss_of(dense, lookup(tables, batch, learning_rates=rates))

    loss, (gradients, tables) = jax.value_and_grad(loss_by, argnums=(0, 1))(dense, tables)
    return loss, descend(dense, gradients), tables


def explicit_step(engine: EmbeddingEngine, dense: Any, batch: Any, rates: Any) -> tuple[Any, Any]:
    """Does the same around a compiled program by the engine's own calls."""
    engine.enqueue(batch)
    names = [activation.name for activation in engine.activations]
    activations = dict(zip(names, engine.receive_activations(), strict=True))
    loss, (gradients, of_activations) = _value_and_grad(dense, activations)
    engine.send_gradients(of_activations, rates)
    return loss, descend(dense, gradients)


_value_and_grad = jax.jit(jax.value_and_grad(loss_of, argnums=(0, 1)))
