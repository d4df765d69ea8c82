from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from engines import assert_same_bits, state
from jax_steps import BATCH, explicit_step, make_batch, make_dense, make_engine, step

from anycore import Dense, EmbeddingConfig, EmbeddingEngine, FeatureConfig, Ragged, Sparse, TableConfig
from anycore.arrays import address
from anycore.jax import Tables, lookup, tables
from anycore.optimizers import Adagrad, StochasticGradientDescent
from anycore.optimizers.declarations import DynamicInput

STEPS = 20


def rates_of(step: int) -> list[Any]:
    return [np.float32(0.1 / (1 + step)), np.float32(0.01)]


def test_a_compiled_step_gives_the_bits_of_the_engine() -> None:
    ours, theirs = make_engine(), make_engine()
    random = np.random.default_rng(0)
    compiled = jax.jit(step)
    dense, their_dense, stand_in = make_dense(), make_dense(), tables(ours)
    programs = compiled._cache_size()
    for number in range(STEPS):
        batch = make_batch(random)
        loss, dense, stand_in = compiled(dense, stand_in, batch, rates_of(number))
        their_loss, their_dense = explicit_step(theirs, their_dense, batch, rates_of(number))
        np.testing.assert_allclose(loss, their_loss, rtol=1e-6)
    jax.block_until_ready(stand_in)
    assert_same_bits(state(ours), state(theirs))
    for name, values in dense.items():
        np.testing.assert_array_equal(values, their_dense[name])
    assert compiled._cache_size() == programs + 1


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_without_jit_and_with_ids_that_the_program_closes_over(transform: Any) -> None:
    ours, theirs = make_engine(), make_engine()
    random = np.random.default_rng(1)
    for number in range(3):
        batch = make_batch(random)
        one = transform(lambda dense, stand_in: step(dense, stand_in, batch, rates_of(number)))  # noqa: B023
        jax.block_until_ready(one(make_dense(), tables(ours)))
        explicit_step(theirs, make_dense(), batch, rates_of(number))
    assert_same_bits(state(ours), state(theirs))


def test_lookups_are_those_of_jax() -> None:
    engine = make_engine()
    batch = make_batch(np.random.default_rng(2))
    activations = jax.jit(lookup)(tables(engine), batch)
    movies, users = (engine.retrieve(name)["parameters"] for name in ("movies", "users"))
    ragged, sparse = batch["watched"], batch["liked"]
    rows = np.repeat(np.arange(BATCH), np.diff(ragged.sample_splits))
    for name, segments, ids, weights in (
        ("watched", rows, ragged.embedding_indices, ragged.aggregation_weights),
        ("liked", sparse.sample_indices[:, 0], sparse.embedding_indices, np.ones(9, np.float32)),
    ):
        sums = jax.ops.segment_sum(jnp.take(movies, ids, axis=0) * weights[:, None], segments, BATCH)
        counts = jax.ops.segment_sum(weights, segments, BATCH)
        expected = jnp.where(counts[:, None] == 0, 0, sums / jnp.where(counts == 0, 1, counts)[:, None])
        np.testing.assert_allclose(activations[name], expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(activations["user"], jnp.take(users, batch["user"], axis=0))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (StochasticGradientDescent(learning_rate=0.1), optax.sgd(0.1)),
        (Adagrad(learning_rate=0.1), optax.adagrad(0.1, initial_accumulator_value=0.1, eps=0.0)),
    ],
    ids=["sgd", "adagrad"],
)
def test_training_is_that_of_optax_on_a_dense_table(ours: Any, theirs: optax.GradientTransformation) -> None:
    engine = EmbeddingEngine(EmbeddingConfig([TableConfig("t", 30, 4, ours)], [FeatureConfig("f", "t", [8])]))
    target = jnp.linspace(-1, 1, 32).reshape(8, 4)
    parameters = {"table": jnp.asarray(engine.retrieve("t")["parameters"])}
    optimizer_state = theirs.init(parameters)

    @jax.jit  # type: ignore[untyped-decorator]
    def our_step(stand_in: Tables, ids: Any) -> Any:
        return jax.grad(lambda stand_in: jnp.sum((lookup(stand_in, [ids])[0] - target) ** 2))(stand_in)

    @jax.jit  # type: ignore[untyped-decorator]
    def their_step(parameters: Any, optimizer_state: Any, ids: Any) -> Any:
        gradients = jax.grad(lambda p: jnp.sum((jnp.take(p["table"], ids, axis=0) - target) ** 2))(parameters)
        updates, optimizer_state = theirs.update(gradients, optimizer_state, parameters)
        return optax.apply_updates(parameters, updates), optimizer_state

    random = np.random.default_rng(3)
    stand_in = tables(engine)
    for _ in range(STEPS):
        ids = random.integers(0, 30, 8)
        stand_in = our_step(stand_in, ids)
        parameters, optimizer_state = their_step(parameters, optimizer_state, ids)
    jax.block_until_ready(stand_in)
    np.testing.assert_allclose(engine.retrieve("t")["parameters"], parameters["table"], rtol=1e-4, atol=1e-6)


def test_the_tables_may_stand_among_the_parameters_of_an_optimizer_and_be_donated() -> None:
    ours, theirs = make_engine(), make_engine()
    optimizer = optax.chain(optax.clip_by_global_norm(10.0), optax.adamw(0.01))
    parameters: dict[str, Any] = {"dense": make_dense(), "tables": tables(ours)}
    optimizer_state = optimizer.init(parameters)
    their_dense = make_dense()
    their_state = optimizer.init(their_dense)

    def train(parameters: Any, optimizer_state: Any, batch: Any, rates: Any) -> Any:
        def loss_by(parameters: Any) -> Any:
            return _square_loss(parameters["dense"], lookup(parameters["tables"], batch, learning_rates=rates))

        loss, gradients = jax.value_and_grad(loss_by)(parameters)
        updates, optimizer_state = optimizer.update(gradients, optimizer_state, parameters)
        return optax.apply_updates(parameters, updates), optimizer_state, loss

    compiled = jax.jit(train, donate_argnums=(0, 1))
    gradients_of = jax.jit(jax.grad(_square_loss, argnums=(0, 1)))
    random = np.random.default_rng(4)
    for number in range(STEPS):
        batch, rates = make_batch(random), rates_of(number)
        parameters, optimizer_state, _ = compiled(parameters, optimizer_state, batch, rates)
        theirs.enqueue(batch)
        activations = dict(zip(["watched", "liked", "user"], theirs.receive_activations(), strict=True))
        gradients, of_activations = gradients_of(their_dense, activations)
        theirs.send_gradients(of_activations, rates)
        updates, their_state = optimizer.update(gradients, their_state, their_dense)
        their_dense = optax.apply_updates(their_dense, updates)
    jax.block_until_ready(parameters)
    for table, variables in state(theirs).items():
        for name, values in variables.items():
            np.testing.assert_allclose(ours.retrieve(table)[name], values, rtol=1e-4, atol=1e-6)
    for name, values in their_dense.items():
        np.testing.assert_allclose(parameters["dense"][name], values, rtol=1e-4, atol=1e-6)


def _square_loss(dense: Any, activations: Any) -> Any:
    movies = jnp.sum(dense["movies"] * activations["watched"] + activations["liked"], 1)
    return jnp.mean((movies - jnp.sum(dense["users"] * activations["user"], 1) - 1) ** 2)


def test_a_function_of_several_features_sends_all_of_them() -> None:
    """A feature that the loss leaves out has a gradient of zeros: its rows count as touched."""
    ours, theirs = make_engine(), make_engine()
    batch = make_batch(np.random.default_rng(5))
    gradient = jax.jit(jax.grad(lambda stand_in: jnp.sum(lookup(stand_in, batch, learning_rates=[1.0, 0.5])["user"])))
    for _ in range(2):
        jax.block_until_ready(gradient(tables(ours)))
        theirs.enqueue(batch)
        theirs.receive_activations()
        theirs.send_gradients([None, None, np.ones((BATCH, 3), np.float32)], [1.0, 0.5])
    assert_same_bits(state(ours), state(theirs))


def test_a_lookup_that_is_not_differentiated_changes_nothing() -> None:
    engine = make_engine()
    before = state(engine)
    batch = make_batch(np.random.default_rng(6))

    @jax.jit  # type: ignore[untyped-decorator]
    def gradient_of_the_dense_part(dense: Any, stand_in: Tables) -> Any:
        return jax.grad(lambda dense: jnp.sum(lookup(stand_in, batch)["user"] * dense["users"]))(dense)

    for _ in range(3):
        gradients = gradient_of_the_dense_part(make_dense(), tables(engine))
    expected = jnp.take(engine.retrieve("users")["parameters"], batch["user"], axis=0).sum(0)
    np.testing.assert_allclose(gradients["users"], expected, rtol=1e-5)
    assert_same_bits(state(engine), before)


def test_every_kind_of_input_in_order_and_by_name() -> None:
    engine = EmbeddingEngine(
        EmbeddingConfig([TableConfig("t", 9, 2, Adagrad())], [FeatureConfig(name, "t", [2, 2]) for name in "abc"])
    )
    inputs = [
        Dense(np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]], np.float32)),
        Sparse(np.array([[0, 1, 0], [1, 0, 0], [1, 0, 1]]), np.array([5, 6, 7], np.int8)),
        Ragged(np.array([0, 2, 3], np.uint16), np.array([8, 0, 1], np.uint32)),
    ]
    expected = engine.look_up(inputs)
    in_order = jax.jit(lookup)(tables(engine), inputs)
    by_name = jax.jit(lookup)(tables(engine), dict(zip("abc", inputs, strict=True)))
    assert list(by_name) == ["a", "b", "c"]
    for ours, named, theirs in zip(in_order, by_name.values(), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(named, theirs)


def test_the_attributes_of_enqueue() -> None:
    optimizer = StochasticGradientDescent(learning_rate=1.0)
    config = EmbeddingConfig([TableConfig("t", 9, 2, optimizer, num_features=3)], batch_size_per_tensor_core=2)
    ours, theirs = EmbeddingEngine(config, seed=3), EmbeddingEngine(config, seed=3)
    inputs = [Ragged(np.array([0, 2, 3]), np.array([1, 2, 3])), Ragged(np.array([0, 1, 3]), np.array([4, 5, 6]))]
    attributes: dict[str, Any] = {
        "table_ids": [0, 0],
        "combiners": ["sqrtn"],
        "max_sequence_lengths": [0, 2],
        "num_features": [1, 1],
    }
    gradient = jax.grad(lambda stand_in: jnp.sum(lookup(stand_in, inputs, **attributes)[0]))
    jax.block_until_ready(jax.jit(gradient)(tables(ours)))
    theirs.enqueue(inputs, **attributes)
    theirs.send_gradients([np.ones_like(theirs.receive_activations()[0])])
    assert_same_bits(state(ours), state(theirs))


def test_ids_of_eight_bytes() -> None:
    engine = make_engine()
    batch = make_batch(np.random.default_rng(7))
    expected = engine.look_up(batch)
    with jax.enable_x64(True):
        on_device = jax.device_put(batch)
        assert on_device["user"].dtype == np.int64
        activations = jax.jit(lookup)(tables(engine), on_device)
        loss, _, _ = jax.jit(step)(make_dense(), tables(engine), on_device, rates_of(0))
    assert np.isfinite(loss)
    for activation, theirs in zip(engine.activations, expected, strict=True):
        assert activations[activation.name].dtype == np.float32
        np.testing.assert_array_equal(activations[activation.name], theirs)


def test_the_explicit_style_copies_nothing_on_its_way() -> None:
    shape = (256, 64)
    config = EmbeddingConfig(
        [TableConfig("t", 1000, shape[1], StochasticGradientDescent(learning_rate=DynamicInput(0)))],
        [FeatureConfig("f", "t", shape[:1])],
    )
    engine = EmbeddingEngine(config)
    engine.enqueue([np.arange(256)])
    (activations,) = engine.receive_activations()
    on_device = jax.device_put(activations)
    assert on_device.unsafe_buffer_pointer() == address(activations)
    gradient = jax.jit(lambda x: 2 * x)(on_device)
    assert address(np.asarray(gradient)) == gradient.unsafe_buffer_pointer()
    before = engine.retrieve("t")["parameters"]
    engine.send_gradients([gradient], [jnp.float32(0.5)])
    np.testing.assert_array_equal(engine.retrieve("t")["parameters"][:256], before[:256] - gradient * np.float32(0.5))


@pytest.mark.parametrize(
    "program",
    [
        "sharded_arrays_around_a_program",
        "a_core_for_each_device",
        "every_device_looks_up_its_own_ids",
        "no_device_trains_by_itself",
    ],
)
def test_several_devices(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    subprocess.run([sys.executable, Path(__file__).with_name("jax_devices.py"), program], check=True)
