"""A program: what needs a process of its own, with two CPU devices; it prints its findings as JSON."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from typing import Any

import tensorflow as tf
from tensorflow_scenarios import integers, serialized

from anycore import FeatureConfig, TableConfig, ops
from anycore.optimizers import Adagrad
from anycore.tensorflow import register_kernels

TIMEOUT = 0.5
INTERRUPTS = 40


def configuration(cores: int) -> bytes:
    """Returns one table and a feature of two samples."""
    table = TableConfig("t", 5, 2, Adagrad(learning_rate=0.1))
    return serialized([table], [FeatureConfig("f", "t", [2])], num_tensor_cores=cores)


def enqueue(*ids: Any, **where: int) -> Any:
    """Enqueues one id per sample."""
    return tf.raw_ops.EnqueueTPUEmbeddingArbitraryTensorBatch(
        sample_indices_or_row_splits=integers([]),
        embedding_indices=[tf.stack(ids)],
        aggregation_weights=[tf.zeros([0])],
        mode_override="unspecified",
        **where,
    )


def receive_and_send(config: bytes) -> Any:
    """Finishes a step, whose gradients are its activations, and returns them."""
    activations = tf.raw_ops.RecvTPUEmbeddingActivations(num_outputs=1, config=config)
    sent = tf.raw_ops.SendTPUEmbeddingGradients(inputs=activations, learning_rates=[], config=config)
    with tf.control_dependencies([] if sent is None else [sent]):
        return tf.identity(activations[0])


def one_thread(*, enqueued: bool) -> str:
    """Runs a graph that receives before it enqueues, if at all, with one thread for all operations."""
    config = configuration(1)
    ops.configure_tpu_embedding(config, timeout=TIMEOUT)
    threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, use_per_session_threads=True)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=threads) as session:
        fetched = [receive_and_send(config), enqueue(1, 2) if enqueued else tf.no_op()]
        try:
            session.run(fetched)
        except tf.errors.OpError as error:
            return type(error).__name__
        return "success"


def on_two_devices(way: str) -> list[float]:
    """Returns the activations of two steps on two cores, each on its device."""
    config = configuration(2)
    ops.configure_tpu_embedding(config, timeout=10, seed=1)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def replica() -> Any:
        enqueue(1, 1 + tf.distribute.get_replica_context().replica_id_in_sync_group)
        return receive_and_send(config)

    def by_hand() -> list[Any]:
        enqueue(1, 1, device_ordinal=0)
        enqueue(1, 2, device_ordinal=1)
        found = []
        for core in (0, 1):
            with tf.device(f"CPU:{core}"):
                found.append(receive_and_send(config))
        return found

    def replicated() -> Any:
        return strategy.experimental_local_results(strategy.run(replica))

    step = {"by hand": by_hand, "strategy": tf.function(replicated)}[way]
    return [float(value) for _ in range(2) for tensor in step() for value in tensor.numpy().ravel()]


def interrupts() -> dict[str, Any]:
    """Presses Ctrl-C at random moments of eager steps; returns how often Python handled it, and what was raised."""
    config = configuration(1)
    moments = random.Random(0)
    handled: list[int] = []
    raised: set[str] = set()

    def handle(number: int, frame: Any) -> None:
        handled.append(number)
        raise KeyboardInterrupt

    def press(delay: float) -> None:
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, handle)
    for count in range(INTERRUPTS):
        ops.configure_tpu_embedding(config, timeout=TIMEOUT)
        thread = threading.Thread(target=press, args=(moments.random() * 0.004,))
        try:
            thread.start()
            while len(handled) == count:
                enqueue(1, 2)
                receive_and_send(config)
        except BaseException as error:
            raised.add(type(error).__name__)
        thread.join()
    return {"handled": len(handled), "raised": sorted(raised)}


def main() -> None:
    """Prints all findings."""
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    register_kernels()
    findings = {
        "one thread, enqueued": one_thread(enqueued=True),
        "one thread, not enqueued": one_thread(enqueued=False),
        "cores by hand": on_two_devices("by hand"),
        "cores of a strategy": on_two_devices("strategy"),
        "interrupts": interrupts(),
    }
    json.dump(findings, sys.stdout)


if __name__ == "__main__":
    main()
