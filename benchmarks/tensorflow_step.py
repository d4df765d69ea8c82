"""Times a training step through TensorFlow's operations beside the bare engine and beside TensorFlow's own kernels.

The three take turns in every repetition, each time in another order, so that a slow moment of the machine meets them
all; the table shows medians. The bare engine is the one that the operations work with.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from step import Stopwatch
from workload import Workload

from anycore import Ragged
from anycore.kernels.parallel import available_threads
from anycore.ops import configure_tpu_embedding
from anycore.ops.system import engine_of
from anycore.optimizers import Adagrad
from anycore.tensorflow import register_kernels

BARE, RAW, OWN = "bare engine", "raw operations", "TensorFlow's own kernels"

_Step = Callable[[Sequence[tf.Tensor], Sequence[tf.Tensor], Sequence[tf.Tensor]], Any]


def raw_operations(config: bytes) -> _Step:
    """Returns a step through the raw operations: splits, ids and gradients in, activations out."""

    @tf.function  # type: ignore[untyped-decorator]
    def step(splits: Sequence[tf.Tensor], ids: Sequence[tf.Tensor], gradients: Sequence[tf.Tensor]) -> Any:
        tf.raw_ops.EnqueueTPUEmbeddingArbitraryTensorBatch(
            sample_indices_or_row_splits=splits,
            embedding_indices=ids,
            aggregation_weights=[tf.zeros([0])] * len(ids),
            mode_override="unspecified",
        )
        activations = tf.raw_ops.RecvTPUEmbeddingActivations(num_outputs=len(ids), config=config)
        tf.raw_ops.SendTPUEmbeddingGradients(inputs=gradients, learning_rates=[], config=config)
        return activations

    return step


def own_kernels(workload: Workload) -> _Step:
    """Returns the same step through `tf.nn.embedding_lookup_sparse` and `ResourceSparseApplyAdagrad`."""
    adagrad = workload.optimizer
    assert isinstance(adagrad, Adagrad)
    shape = (workload.vocabulary_size, workload.dimension)
    tables = [tf.Variable(tf.zeros(shape)) for _ in range(workload.num_tables)]
    accumulators = [tf.Variable(tf.fill(shape, 0.1)) for _ in tables]

    @tf.function  # type: ignore[untyped-decorator]
    def step(splits: Sequence[tf.Tensor], ids: Sequence[tf.Tensor], gradients: Sequence[tf.Tensor]) -> Any:
        inputs = [
            tf.RaggedTensor.from_row_splits(values, rows, validate=False).to_sparse()
            for values, rows in zip(ids, splits, strict=True)
        ]
        with tf.GradientTape() as tape:
            activations = [
                tf.nn.embedding_lookup_sparse(table, values, None, combiner="sum")
                for table, values in zip(tables, inputs, strict=True)
            ]
        slices = tape.gradient(activations, tables, output_gradients=gradients)
        for table, accumulator, gradient in zip(tables, accumulators, slices, strict=True):
            tf.raw_ops.ResourceSparseApplyAdagrad(
                var=table.handle,
                accum=accumulator.handle,
                lr=tf.constant(adagrad.learning_rate, tf.float32),
                grad=gradient.values,
                indices=gradient.indices,
            )
        return activations

    return step


def time_steps(workload: Workload, num_threads: int, repetitions: int) -> Stopwatch:
    """Returns the times of the three kinds of step."""
    config = workload.config().to_proto().SerializeToString()
    configure_tpu_embedding(config, num_threads=num_threads)
    engine = engine_of(config, "benchmark")
    random, watch = np.random.default_rng(0), Stopwatch()
    gradients = workload.gradients(random)
    gradient_tensors = [tf.constant(gradient) for gradient in gradients]

    def bare(batch: list[Ragged]) -> None:
        engine.enqueue(batch)
        engine.receive_activations()
        engine.send_gradients(gradients)

    steps = {RAW: raw_operations(config), OWN: own_kernels(workload)}
    names = [BARE, RAW, OWN]
    for repetition in range(repetitions + 2):
        for name in np.roll(names, repetition):
            # Ids of its own, or another's step would have brought the rows into the cache.
            batch = workload.batch(random)
            splits = [tf.constant(ragged.sample_splits) for ragged in batch]
            ids = [tf.constant(ragged.embedding_indices) for ragged in batch]
            if name == BARE:
                watch.time(BARE, bare, batch)
            else:
                watch.time(name, steps[name], splits, ids, gradient_tensors)
    return watch


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=available_threads())
    parser.add_argument("--repetitions", type=int, default=15)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    register_kernels()
    for ids_per_sample in (20, 1):
        workload = Workload(ids_per_sample=ids_per_sample)
        median = time_steps(workload, options.threads, options.repetitions).median
        print(f"\n{workload}, Adagrad, {options.threads} threads, median of {options.repetitions}\n")
        print("| training step | ms | to the bare engine |\n|---|---|---|")
        for step in (BARE, RAW, OWN):
            print(f"| {step} | {median(step):.2f} | {median(step) / median(BARE):.2f} |")
        print(f"\n{OWN} / {RAW}: {median(OWN) / median(RAW):.1f}", flush=True)


if __name__ == "__main__":
    main()
