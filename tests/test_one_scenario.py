"""The same training in every way that there is gives the same bits: tables, slots, and the dense part beside them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tensorflow as tf
import torch
from engines import State, assert_same_bits, state
from one_scenario import (
    CONFIG,
    LENGTH,
    RATE,
    SEED,
    Arrays,
    Step,
    dense_start,
    descend,
    gradients,
    losses,
    named,
    outcome,
    steps,
)

import anycore.jax
import anycore.ops
from anycore import EmbeddingEngine
from anycore.tensorflow import TPUEmbedding, register_kernels
from anycore.torch import EmbeddingTables

ops: Any = anycore.ops
tpu: Any = tf.tpu.experimental.embedding

MESSAGE = CONFIG.to_proto().SerializeToString()
COMBINERS = [table.combiner for table in CONFIG.tables]
BACKENDS = ["jax", "tensorflow", "torch"]


# The engine and the operations, beside a dense part in NumPy


def by_engine() -> State:
    engine, dense = EmbeddingEngine(CONFIG, seed=SEED, num_threads=1), dense_start()
    for step in steps():
        engine.enqueue(step.inputs())
        of_dense, of_activations = gradients(dense, named(engine.receive_activations()), step.targets)
        engine.send_gradients(of_activations, [step.rate])
        dense = descend(dense, of_dense)
    return outcome(state(engine), dense)


def arbitrary_tensors(step: Step) -> dict[str, Any]:
    """Returns the arguments of EnqueueTPUEmbeddingArbitraryTensorBatch: bags, and one id a sample."""
    none = np.zeros(0, np.float32)
    return {
        "sample_indices_or_row_splits": [*(bag.splits for bag in step.bags.values()), np.zeros(0, np.int64)],
        "embedding_indices": [*(bag.ids for bag in step.bags.values()), step.who],
        "aggregation_weights": [*(none if bag.weights is None else bag.weights for bag in step.bags.values()), none],
    }


def by_operations() -> State:
    ops.configure_tpu_embedding(MESSAGE, seed=SEED)
    dense = dense_start()
    for step in steps():
        ops.enqueue_tpu_embedding_arbitrary_tensor_batch(
            **arbitrary_tensors(step), mode_override="train", combiners=COMBINERS
        )
        activations = named(ops.recv_tpu_embedding_activations(len(CONFIG.features), MESSAGE))
        of_dense, of_activations = gradients(dense, activations, step.targets)
        sent = [of_activations[feature.name] for feature in CONFIG.features]
        ops.send_tpu_embedding_gradients(sent, [step.rate], MESSAGE)
        dense = descend(dense, of_dense)
    return outcome(retrieved(), dense)


def retrieved() -> State:
    """Returns the tables of the process' embedding system."""
    words = {"movies": "adagrad", "people": "adam", "words": "ftrl"}
    found = {}
    for table in CONFIG.tables:
        retrieve = getattr(ops, f"retrieve_tpu_embedding_{words[table.name]}_parameters")
        names = ["parameters", *(slot.name for slot in table.optimizer.slots)]
        found[table.name] = dict(zip(names, retrieve(1, 0, table_name=table.name), strict=True))
    return found


# TensorFlow


def by_tensorflow_operations() -> State:
    register_kernels(seed=SEED)
    tf.raw_ops.ConfigureTPUEmbedding(config=MESSAGE)
    dense = {name: tf.Variable(values) for name, values in dense_start().items()}

    @tf.function  # type: ignore[untyped-decorator]
    def train(tensors: Any, targets: Any, rate: Any) -> None:
        tf.raw_ops.EnqueueTPUEmbeddingArbitraryTensorBatch(**tensors, mode_override="train", combiners=COMBINERS)
        activations = tf.raw_ops.RecvTPUEmbeddingActivations(num_outputs=len(CONFIG.features), config=MESSAGE)
        of_activations = descend_in_tensorflow(dense, named(activations), targets)
        sent = [of_activations[feature.name] for feature in CONFIG.features]
        tf.raw_ops.SendTPUEmbeddingGradients(inputs=sent, learning_rates=[rate], config=MESSAGE)

    for step in steps():
        train(*tf.nest.map_structure(tf.constant, (arbitrary_tensors(step), step.targets, step.rate)))
    return outcome(retrieved(), dense)


def descend_in_tensorflow(dense: dict[str, Any], activations: dict[str, Any], targets: Any) -> dict[str, Any]:
    """Trains the dense part and returns the gradients of the activations."""
    with tf.GradientTape() as tape:
        tape.watch(activations)
        loss = tf.add_n([tf.reduce_sum(part) for part in losses(dense, activations, targets)])
    of_activations, of_dense = tape.gradient(loss, (activations, dense))
    for name, variable in dense.items():
        variable.assign_sub(RATE * of_dense[name])
    return dict(of_activations)


def by_tensorflow_class() -> State:
    rate = tf.Variable(0.0)
    optimizers = {
        "movies": tpu.Adagrad(0.25, clipvalue=0.5),
        "people": tpu.Adam(lambda: rate.read_value(), weight_decay_factor=0.01),
        "words": tpu.FTRL(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.001),
    }
    start = EmbeddingEngine(CONFIG, seed=SEED)
    tables = {
        table.name: tpu.TableConfig(
            table.vocabulary_size,
            table.dimension,
            tf.constant_initializer(start.retrieve(table.name)["parameters"]),
            optimizers[table.name],
            table.combiner,
            table.name,
        )
        for table in CONFIG.tables
    }
    lengths = {"recent": LENGTH}
    features = {
        feature.name: tpu.FeatureConfig(tables[feature.table], lengths.get(feature.name, 0), name=feature.name)
        for feature in CONFIG.features
    }
    embedding = TPUEmbedding(features, None)
    dense = {name: tf.Variable(values) for name, values in dense_start().items()}

    @tf.function  # type: ignore[untyped-decorator]
    def train(ids: Any, weights: Any, targets: Any) -> None:
        embedding.enqueue(ids, weights, training=True)
        embedding.apply_gradients(descend_in_tensorflow(dense, embedding.dequeue(), targets))

    for step in steps():
        rate.assign(step.rate)
        ids = {name: tf.RaggedTensor.from_row_splits(bag.ids, bag.splits) for name, bag in step.bags.items()}
        weights = {
            name: None if bag.weights is None else tf.RaggedTensor.from_row_splits(bag.weights, bag.splits)
            for name, bag in step.bags.items()
        }
        targets = tf.nest.map_structure(tf.constant, step.targets)
        train({**ids, "who": tf.constant(step.who)}, {**weights, "who": None}, targets)
    return outcome(retrieved(), dense)


# PyTorch and JAX


def by_torch() -> State:
    tables = EmbeddingTables(CONFIG, seed=SEED)
    dense = {name: torch.nn.Parameter(torch.from_numpy(values)) for name, values in dense_start().items()}
    optimizer = torch.optim.SGD(dense.values(), lr=RATE)
    for step in steps():
        tables.set_learning_rate("people", float(step.rate))
        bags = {
            name: (torch.from_numpy(ids), torch.from_numpy(splits), None if w is None else torch.from_numpy(w))
            for name, (splits, ids, w) in step.bags.items()
        }
        targets = {name: torch.from_numpy(target) for name, target in step.targets.items()}
        activations = tables({**bags, "who": torch.from_numpy(step.who)})
        optimizer.zero_grad()
        sum(part.sum() for part in losses(dense, activations, targets)).backward()
        optimizer.step()
    return outcome(state(tables.engine), {name: values.detach() for name, values in dense.items()})


def total(dense: Any, activations: Any, targets: Any) -> Any:
    return sum(jnp.sum(part) for part in losses(dense, activations, targets))


def by_jax_in_jit() -> State:
    engine = EmbeddingEngine(CONFIG, seed=SEED)
    optimizer = optax.sgd(RATE)

    @jax.jit  # type: ignore[untyped-decorator]
    def train(dense: Any, optimizer_state: Any, tables: Any, step: Any) -> Any:
        inputs, targets, rate = step

        def loss_of(dense: Any, tables: Any) -> Any:
            return total(dense, anycore.jax.lookup(tables, inputs, learning_rates=[rate]), targets)

        of_dense, tables = jax.grad(loss_of, argnums=(0, 1))(dense, tables)
        updates, optimizer_state = optimizer.update(of_dense, optimizer_state)
        return optax.apply_updates(dense, updates), optimizer_state, tables

    dense: Any = dense_start()
    trained = (dense, optimizer.init(dense), anycore.jax.tables(engine))
    for step in steps():
        trained = train(*trained, (step.inputs(), step.targets, step.rate))
    dense, _, _ = jax.block_until_ready(trained)
    return outcome(state(engine), dense)


def by_jax_around_the_program() -> State:
    engine, dense = EmbeddingEngine(CONFIG, seed=SEED), dense_start()

    @jax.jit  # type: ignore[untyped-decorator]
    def train(dense: Any, activations: Any, targets: Any) -> Any:
        of_dense, of_activations = jax.grad(total, argnums=(0, 1))(dense, named(activations), targets)
        return jax.tree.map(lambda values, gradient: values - RATE * gradient, dense, of_dense), of_activations

    for step in steps():
        engine.enqueue(step.inputs())
        dense, of_activations = train(dense, engine.receive_activations(), step.targets)
        engine.send_gradients(of_activations, [step.rate])
    return outcome(state(engine), dense)


@pytest.fixture(scope="module")
def expected() -> State:
    return by_engine()


WAYS = [
    by_operations,
    by_tensorflow_operations,
    by_tensorflow_class,
    by_torch,
    by_jax_in_jit,
    by_jax_around_the_program,
]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_bits_of_the_engine(way: Callable[[], State], expected: State) -> None:
    assert_same(way(), expected)


def test_keras_gives_the_bits_of_the_engine_on_every_backend(expected: State, tmp_path: Path) -> None:
    program = Path(__file__).with_name("one_scenario_keras.py")
    paths = ":".join(filter(None, sys.path))
    processes = {
        backend: subprocess.Popen(
            [sys.executable, program, tmp_path / f"{backend}.npz"],
            env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": paths},
        )
        for backend in BACKENDS
    }
    assert {backend: process.wait() for backend, process in processes.items()} == dict.fromkeys(BACKENDS, 0)
    for backend in BACKENDS:
        found: dict[str, Arrays] = {}
        with np.load(tmp_path / f"{backend}.npz") as file:
            for key, values in file.items():
                table, name = key.split("/")
                found.setdefault(table, {})[name] = values
        assert_same(found, expected)


def assert_same(found: State, expected: State) -> None:
    assert {table: list(part) for table, part in found.items()} == {t: list(part) for t, part in expected.items()}
    assert_same_bits(found, expected)


def test_every_row_that_was_looked_up_has_learnt(expected: State) -> None:
    start = EmbeddingEngine(CONFIG, seed=SEED)
    for table in CONFIG.tables:
        for name, values in expected[table.name].items():
            assert np.isfinite(values).all()
            assert (values != start.retrieve(table.name)[name]).mean() > 0.9
    assert all((values != dense_start()[name]).all() for name, values in expected["dense"].items())
