"""A program: trains under several strategies, on two logical CPU devices, and compares.

It is one of its own because TensorFlow's devices cannot be changed once it is in use.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_embeddings import embedding, feature_config, ragged, sparse

from anycore import ops
from anycore.tensorflow.embedding import TPUEmbedding

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


def dataset() -> tf.data.Dataset:
    """Returns three batches of four samples."""
    inputs = {
        "watched": sparse([[0], [0, 1], [], [5]]),
        "favorited": ragged([[0, 1], [1], [], [5, 5, 1]]),
        "friends": tf.constant([[3], [1], [3], [9]]),
    }
    return tf.data.Dataset.from_tensors(inputs).unbatch().batch(4, drop_remainder=True).repeat(3)


def trained(strategy: tf.distribute.Strategy, *, enqueue: str) -> list[np.ndarray]:
    """Returns the tables after two steps in a tf.function and one in eager mode, enqueued `enqueue` strategy.run."""
    with strategy.scope():
        tables = TPUEmbedding(feature_config(), embedding.Adagrad(0.1))

    def step(inputs: Any = None) -> None:
        if inputs is not None:
            tables.enqueue(inputs)
        with tf.GradientTape() as tape:
            activations = tables.dequeue()
            tape.watch(activations)
            loss = tf.add_n([tf.reduce_sum(each**2) for each in activations.values()])
        tables.apply_gradients(tape.gradient(loss, activations))

    def enqueue_per_device(context: Any) -> int:
        core = context.replica_id_in_sync_group
        device = strategy.extended.worker_devices[core]
        tables.enqueue(
            {name: strategy.experimental_local_results(batch)[core] for name, batch in current.items()}, device=device
        )
        return 0

    def run(inputs: Any) -> None:
        current.update(inputs)
        if enqueue == "inside":
            strategy.run(step, args=(inputs,))
            return
        if enqueue == "per device":
            strategy.experimental_distribute_values_from_function(enqueue_per_device)
        else:
            tables.enqueue(inputs)
        strategy.run(step)

    def two_steps(batches: Any) -> None:
        for _ in tf.range(2):
            run(next(batches))

    current: dict[str, Any] = {}
    batches = iter(strategy.experimental_distribute_dataset(dataset()))
    if enqueue == "per device":
        for inputs in batches:
            run(inputs)
    else:
        tf.function(two_steps)(batches)
        run(next(batches))
    result = [variable.numpy() for variable in tables.embedding_tables.values()]
    if strategy.num_replicas_in_sync > 1:
        refuses(RuntimeError, "inside strategy.run, by each of the 2 replicas", tables.dequeue)
        refuses(ValueError, "its number must be that of a core", tables.enqueue, current, device="/device:CPU:2")
        refuses(ValueError, "Non-TPU device /device:GPU:0 passed", tables.enqueue, current, device="/device:GPU:0")
    ops.shutdown_tpu_system()
    return result


def refuses(kind: type[Exception], problem: str, call: Any, *args: Any, **kwargs: Any) -> None:
    """Checks that the call raises `kind` with a text that holds `problem`."""
    with pytest.raises(kind, match=re.escape(problem)):
        call(*args, **kwargs)


def main() -> None:
    """Compares the strategies with the default one."""
    expected = trained(tf.distribute.get_strategy(), enqueue="outside")
    assert not np.array_equal(expected[0], np.arange(32).reshape(8, 4))
    two = ["/cpu:0", "/cpu:1"]
    for strategy, ways in (
        (tf.distribute.get_strategy(), ["inside"]),
        (tf.distribute.OneDeviceStrategy("/cpu:0"), ["outside", "inside", "per device"]),
        (tf.distribute.OneDeviceStrategy("/cpu:1"), ["outside", "inside"]),
        (tf.distribute.MirroredStrategy(["/cpu:0"]), ["outside", "inside"]),
        (tf.distribute.MirroredStrategy(two), ["outside", "inside", "per device"]),
        (tf.distribute.MirroredStrategy(two[::-1]), ["outside"]),
    ):
        for enqueue in ways:
            for ours, theirs in zip(trained(strategy, enqueue=enqueue), expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-6, err_msg=f"{strategy} {enqueue}")
    tables = TPUEmbedding(feature_config(), embedding.Adagrad(0.1))
    tables.build(2)
    refuses(
        RuntimeError, "Create it in the scope of that strategy", tf.distribute.MirroredStrategy(two).run, tables.dequeue
    )


if __name__ == "__main__":
    main()
