"""JAX: take and segment sum, whose gradient is as large as the tables, and a dense update by optax, all in one jit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from peers.batches import Batch, Floats, Integers, initial_chunks
from peers.contenders.contender import INITIAL_ACCUMULATOR, LEARNING_RATE, Contender, Lap
from peers.workloads import Workload

_OPTIMIZERS: dict[str, Any] = {
    "stochastic_gradient_descent": lambda: optax.sgd(LEARNING_RATE),
    "adagrad": lambda: optax.adagrad(LEARNING_RATE, initial_accumulator_value=INITIAL_ACCUMULATOR, eps=0.0),
}


@dataclass(frozen=True)
class Prepared:
    """All features in one, by row of the stacked tables and by sample among the samples of all features."""

    rows: jax.Array
    samples: jax.Array
    weights: jax.Array | None
    gradients: jax.Array


class Jax(Contender):
    """All tables stacked in one array."""

    optimizers = frozenset(_OPTIMIZERS)
    dense_copies = 2

    def __init__(self, workload: Workload, num_threads: int) -> None:
        # XLA has no setting for it: its threads are as many as the processors that the process may use.
        self._workload = workload
        self._num_samples = workload.num_features * workload.batch_size
        self._optimizer = _OPTIMIZERS[workload.optimizer]()
        rows = workload.num_tables * workload.vocabulary_size
        self._tables = jnp.zeros((rows, workload.dimension))
        for t in range(workload.num_tables):
            for place, values in initial_chunks(workload, t):
                self._tables = _write(self._tables, values, t * workload.vocabulary_size + place.start)
        self._state = jax.jit(self._optimizer.init)(self._tables)
        self._look_up = jax.jit(self._forward)
        self._step = jax.jit(self._train, donate_argnums=(0, 1))

    def prepare(self, batch: Batch) -> Prepared:
        workload = self._workload
        tables = np.arange(workload.num_features) // workload.features_per_table
        rows = [ids + t * workload.vocabulary_size for t, ids in zip(tables, batch.ids, strict=True)]
        lengths = np.tile(np.diff(batch.splits), len(batch.ids))
        samples = np.repeat(np.arange(len(lengths)), lengths)
        weights = None if batch.weights is None else jnp.asarray(np.concatenate(batch.weights))
        return Prepared(
            jnp.asarray(np.concatenate(rows), jnp.int32),
            jnp.asarray(samples, jnp.int32),
            weights,
            jnp.asarray(np.concatenate(batch.gradients)),
        )

    def look_up(self, prepared: Prepared) -> jax.Array:
        activations: jax.Array = self._look_up(self._tables, prepared.rows, prepared.samples, prepared.weights)
        return activations.block_until_ready()

    def step(self, prepared: Prepared, lap: Lap) -> jax.Array:
        self._tables, self._state, activations = self._step(
            self._tables, self._state, prepared.rows, prepared.samples, prepared.weights, prepared.gradients
        )
        jax.block_until_ready((self._tables, self._state, activations))
        lap("step")
        result: jax.Array = activations
        return result

    def activations(self, returned: jax.Array) -> list[Floats]:
        return np.split(np.asarray(returned), self._workload.num_features)

    def parameters(self, table: int, rows: Integers) -> Floats:
        return np.asarray(self._tables[jnp.asarray(rows + table * self._workload.vocabulary_size)])

    def _forward(self, tables: jax.Array, rows: jax.Array, samples: jax.Array, weights: jax.Array | None) -> jax.Array:
        taken = jnp.take(tables, rows, axis=0, mode="clip")
        if self._workload.sequence:
            return taken
        total = partial(
            jax.ops.segment_sum, segment_ids=samples, num_segments=self._num_samples, indices_are_sorted=True
        )
        if weights is None:
            return total(taken)
        return total(taken * weights[:, None]) / total(weights)[:, None]

    def _train(
        self,
        tables: jax.Array,
        state: Any,
        rows: jax.Array,
        samples: jax.Array,
        weights: jax.Array | None,
        gradients: jax.Array,
    ) -> tuple[jax.Array, Any, jax.Array]:
        activations, backward = jax.vjp(lambda tables: self._forward(tables, rows, samples, weights), tables)
        (gradient,) = backward(gradients)
        updates, state = self._optimizer.update(gradient, state, tables)
        return optax.apply_updates(tables, updates), state, activations


@partial(jax.jit, donate_argnums=0)
def _write(tables: jax.Array, values: jax.Array, row: int) -> jax.Array:
    return jax.lax.dynamic_update_slice(tables, values, (row, 0))
