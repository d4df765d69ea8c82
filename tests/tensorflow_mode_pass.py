"""A program: trains and evaluates by name under a strategy, on two logical CPU devices.

It is one of its own because TensorFlow's devices cannot be changed once it is in use.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_embeddings import one_feature, parameters

from anycore import ops
from anycore.tensorflow.embedding import TPUEmbedding

NAME = "step"


def made() -> tuple[tf.distribute.Strategy, TPUEmbedding]:
    """Returns a strategy of two replicas, and tables in its scope."""
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        tables = one_feature()
        tables.build(2)
    return strategy, tables


def check(enqueue: str, nested: bool) -> None:
    """Trains and evaluates, enqueued `enqueue` strategy.run, perhaps in a function that both use."""
    strategy, tables = made()
    ids = tf.constant([3, 5])

    def look_up() -> Any:
        if enqueue == "inside":
            tables.enqueue(ids, name=NAME)
        return tables.dequeue(name=NAME)

    forward = tf.function(look_up) if nested else look_up

    def train_replica() -> None:
        forward()
        tables.apply_gradients(tf.ones([2, 2]), name=NAME)

    def step(replica: Any) -> None:
        if enqueue == "outside":
            tables.enqueue(ids, name=NAME)
        strategy.run(replica)

    train, evaluate = tf.function(lambda: step(train_replica)), tf.function(lambda: step(forward))
    for function, trained in ((evaluate, 0), (train, 1), (evaluate, 1), (evaluate, 1), (train, 2)):
        function()
        # The gradients of two replicas are summed.
        np.testing.assert_allclose(parameters(tables)["video"][3, 0], 6 - 0.2 * trained, rtol=1e-6)
    ops.shutdown_tpu_system()


def main() -> None:
    """Checks all ways."""
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    for enqueue in ("inside", "outside"):
        for nested in (False, True):
            check(enqueue, nested)


if __name__ == "__main__":
    main()
