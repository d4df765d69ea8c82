"""A program: trains on two cores, and compares with one that has the batches of both.

It is one of its own because TensorFlow's devices cannot be changed once it is in use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import tensorflow as tf
from tensorflow_interfaces import ByFeature, ByRow, ByTable, Interface, OfClass, RawOps
from tensorflow_recipes import BATCH, OPTIMIZERS, Expected, assert_close, assert_variables_close, recipe, train_step

from anycore import ops
from anycore.tensorflow import TPUEmbedding

CORES, STEPS = 2, 3
PAIRS = [*(("sparse", name) for name in OPTIMIZERS), ("ragged", "adagrad"), ("dense", "adam")]


class OnTwo(ByFeature):
    cores = CORES


class OnTwoByTable(ByTable):
    cores = CORES


class OnTwoByRow(ByRow):
    cores = CORES


def replicated(features: Any, shapes: Any, inputs: Any) -> tuple[OfClass, Any]:
    """Returns tables in the scope of a strategy, and a step that returns each core's activations."""
    strategy = tf.distribute.MirroredStrategy([f"CPU:{core}" for core in range(CORES)])
    with strategy.scope():
        tables = OfClass(features, shapes)
    dataset = tf.data.Dataset.from_tensors(inputs).unbatch().batch(CORES * BATCH, drop_remainder=True)
    (batch,) = strategy.experimental_distribute_dataset(dataset)

    def step() -> Any:
        results = strategy.run(lambda inputs: train_step(tables, inputs, replicas=CORES), args=(batch,))
        return [
            {name: strategy.experimental_local_results(each)[core] for name, each in results.items()}
            for core in range(CORES)
        ]

    return tables, tf.function(step, autograph=False)


def by_operations(kind: type[RawOps], features: Any, shapes: Any, parts: list[Any]) -> tuple[RawOps, Any]:
    """Returns tables, and a step that runs the operations of each core on the device of its number."""
    tables = kind(features, shapes)

    def step() -> Any:
        found = []
        for core, part in enumerate(parts):
            tables.core = core
            with tf.device(f"CPU:{core}"):
                found.append(train_step(tables, part, replicas=CORES))
        return found

    return tables, step


def assert_no_batches_mix(in_function: bool) -> None:
    """Enqueues a batch whose second part is refused, then a good one of which each replica must get its part."""
    strategy = tf.distribute.MirroredStrategy([f"CPU:{core}" for core in range(CORES)])
    embedding = tf.tpu.experimental.embedding
    with strategy.scope():
        table = embedding.TableConfig(10, 2, name="t", combiner="sum")
        tables = TPUEmbedding({"a": embedding.FeatureConfig(table)}, embedding.SGD(0.1))
    tables.build(1)

    def enqueue(ids: tf.Tensor) -> None:
        def part(context: Any) -> tf.Tensor:
            return ids[context.replica_id_in_sync_group][None]

        tables.enqueue({"a": strategy.experimental_distribute_values_from_function(part)}, training=False)

    if in_function:
        enqueue = tf.function(enqueue)
    with pytest.raises(tf.errors.InvalidArgumentError, match="got 99"):
        enqueue(tf.constant([3, 99]))
    enqueue(tf.constant([5, 6]))
    activations = strategy.run(tf.function(lambda: tables.dequeue()["a"]))
    rows = tf.concat(strategy.experimental_local_results(activations), 0)
    assert_close({"a": rows}, {"a": tf.gather(tables.embedding_tables[table], [5, 6])})
    ops.shutdown_tpu_system()


def main() -> None:
    """Compares the class and the operations with float64."""
    devices = [tf.config.LogicalDeviceConfiguration()] * CORES
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    for in_function in (False, True):
        assert_no_batches_mix(in_function)
    for kind, optimizer in PAIRS:
        whole = recipe(kind, [CORES * BATCH])
        parts = [whole.part(core * BATCH, (core + 1) * BATCH) for core in range(CORES)]
        features, shapes = whole.features(OPTIMIZERS[optimizer]()), parts[0].shapes
        inputs = [part.inputs() for part in parts]
        ways: list[Callable[[], tuple[Interface, Any]]] = [
            partial(replicated, features, shapes, whole.inputs()),
            *(partial(by_operations, each, features, shapes, inputs) for each in (OnTwo, OnTwoByTable, OnTwoByRow)),
        ]
        for way in ways:
            tables, step = way()
            expected = Expected(features, whole.shapes)
            for _ in range(STEPS):
                found = step()
                joined = {name: tf.concat([each[name] for each in found], 0) for name in features}
                assert_close(joined, expected.train_step(whole.rows))
            assert_variables_close(tables.variables(), expected.variables())
            ops.shutdown_tpu_system()


if __name__ == "__main__":
    main()
