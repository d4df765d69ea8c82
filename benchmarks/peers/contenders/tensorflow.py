"""TensorFlow: embedding_lookup_sparse, its gradient, and the sparse update of the tables, in one tf.function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from peers.batches import Batch, Floats, Integers, initial_chunks
from peers.contenders.contender import INITIAL_ACCUMULATOR, LEARNING_RATE, Contender, Lap
from peers.workloads import Workload


@dataclass(frozen=True)
class Prepared:
    """For each table the ids of all its features: sparse tensors, plain ids for a sequence."""

    ids: list[Any]
    weights: list[Any]
    gradients: list[Any]


class Tensorflow(Contender):
    """One variable a table, which all its features share in one lookup."""

    optimizers = frozenset({"stochastic_gradient_descent", "adagrad"})

    def __init__(self, workload: Workload, num_threads: int) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(num_threads)
        tf.config.threading.set_inter_op_parallelism_threads(num_threads)
        self._workload = workload
        shape = (workload.vocabulary_size, workload.dimension)
        self._tables = [tf.Variable(tf.zeros(shape)) for _ in range(workload.num_tables)]
        for t, table in enumerate(self._tables):
            for place, values in initial_chunks(workload, t):
                table[place].assign(values)
        self._accumulators = []
        if workload.optimizer == "adagrad":
            self._accumulators = [tf.Variable(tf.fill(shape, INITIAL_ACCUMULATOR)) for _ in self._tables]
        self._look_up = tf.function(self._forward, reduce_retracing=True)
        self._step = tf.function(self._train, reduce_retracing=True)

    def prepare(self, batch: Batch) -> Prepared:
        share = self._workload.features_per_table
        tables = [slice(t * share, (t + 1) * share) for t in range(self._workload.num_tables)]
        gradients = [tf.constant(np.concatenate(batch.gradients[table])) for table in tables]
        ids: list[Any] = list(batch.ids_of_tables(self._workload))
        if self._workload.sequence:
            return Prepared([tf.constant(values) for values in ids], [], gradients)
        lengths = np.tile(np.diff(batch.splits), share)
        samples = np.repeat(np.arange(len(lengths)), lengths)
        places = np.arange(len(samples)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        indices, shape = tf.constant(np.stack([samples, places], axis=1)), [len(lengths), int(lengths.max())]
        weights = []
        if batch.weights is not None:
            flat = [np.concatenate(batch.weights[table]) for table in tables]
            weights = [tf.SparseTensor(indices, values, shape) for values in flat]
        return Prepared([tf.SparseTensor(indices, values, shape) for values in ids], weights, gradients)

    def look_up(self, prepared: Prepared) -> Any:
        return self._look_up(prepared.ids, prepared.weights)

    def step(self, prepared: Prepared, lap: Lap) -> Any:
        activations = self._step(prepared.ids, prepared.weights, prepared.gradients)
        lap("step")
        return activations

    def activations(self, returned: Any) -> list[Floats]:
        share = self._workload.features_per_table
        return [part for table in returned for part in np.split(table.numpy(), share)]

    def parameters(self, table: int, rows: Integers) -> Floats:
        found: Floats = tf.gather(self._tables[table], rows).numpy()
        return found

    def _forward(self, ids: list[Any], weights: list[Any]) -> list[Any]:
        if self._workload.sequence:
            return [tf.nn.embedding_lookup(table, values) for table, values in zip(self._tables, ids, strict=True)]
        combiner = "mean" if weights else "sum"
        return [
            tf.nn.embedding_lookup_sparse(table, values, weight, combiner=combiner)
            for table, values, weight in zip(self._tables, ids, weights or [None] * len(ids), strict=True)
        ]

    def _train(self, ids: list[Any], weights: list[Any], gradients: list[Any]) -> list[Any]:
        with tf.GradientTape() as tape:
            activations = self._forward(ids, weights)
        slices = tape.gradient(activations, self._tables, output_gradients=gradients)
        for t, (values, rows) in enumerate(map(self._distinct, slices)):
            if self._accumulators:
                tf.raw_ops.ResourceSparseApplyAdagrad(
                    var=self._tables[t].handle,
                    accum=self._accumulators[t].handle,
                    lr=tf.constant(LEARNING_RATE),
                    grad=values,
                    indices=rows,
                )
            else:
                tf.raw_ops.ResourceScatterSub(
                    resource=self._tables[t].handle, indices=rows, updates=values * LEARNING_RATE
                )
        return activations

    def _distinct(self, slices: Any) -> tuple[Any, Any]:
        """A sparse lookup's gradient has every row once, that of a plain lookup once for each id."""
        if not self._workload.sequence:
            return slices.values, slices.indices
        rows, places = tf.unique(slices.indices)
        return tf.math.unsorted_segment_sum(slices.values, places, tf.size(rows)), rows
