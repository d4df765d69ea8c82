"""Programs over two devices, run in a process of their own: `python jax_devices.py NAME`."""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
from engines import assert_same_bits, state
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, TableConfig
from anycore.errors import ConfigError
from anycore.jax import lookup, tables
from anycore.optimizers import Adagrad

MESH = jax.make_mesh((2,), ("x",))
RANDOM = np.random.default_rng(0)


def make_engine(num_tensor_cores: int, batch_size: int) -> EmbeddingEngine:
    table, feature = TableConfig("t", 40, 4, Adagrad()), FeatureConfig("f", "t", [batch_size])
    return EmbeddingEngine(EmbeddingConfig([table], [feature], num_tensor_cores=num_tensor_cores), timeout=10)


def put(value: Any, spec: Any = P("x")) -> Any:  # noqa: B008
    return jax.device_put(value, NamedSharding(MESH, spec))


def sharded_arrays_around_a_program() -> None:
    ours, theirs = make_engine(1, 8), make_engine(1, 8)
    weights = RANDOM.random((8, 4), np.float32)
    program = jax.jit(jax.grad(lambda activations, weights: jnp.sum(activations**2 * weights)))
    for _ in range(5):
        ids = RANDOM.integers(0, 40, 8)
        for engine in (ours, theirs):
            engine.enqueue([ids])
        gradient = program(put(ours.receive_activations()[0]), put(weights))
        assert len(gradient.sharding.device_set) == 2
        assert not gradient.is_fully_replicated
        ours.send_gradients([gradient])
        theirs.send_gradients([2 * theirs.receive_activations()[0] * weights])
    assert_same_bits(state(ours), state(theirs))


def a_core_for_each_device() -> None:
    for check_vma in (False, True):
        _a_core_for_each_device(check_vma)


def _a_core_for_each_device(check_vma: bool) -> None:
    ours, theirs = make_engine(2, 4), make_engine(2, 4)
    weights = RANDOM.random((8, 4), np.float32)

    def on_a_device(stand_in: Any, weights: Any) -> Any:
        core = jax.lax.axis_index("x")
        gradient = jax.grad(lambda stand_in: jnp.sum(lookup(stand_in, core=core)[0] * weights))(stand_in)
        return jax.tree.map(lambda token: jax.lax.psum(token, "x"), gradient)

    program = jax.jit(jax.shard_map(on_a_device, mesh=MESH, in_specs=(P(), P("x")), out_specs=P(), check_vma=check_vma))
    stand_in = tables(ours)
    for _ in range(5):
        for core in range(2):
            ids = RANDOM.integers(0, 40, 4)
            ours.enqueue([ids], core=core)
            theirs.enqueue([ids], core=core)
        stand_in = program(stand_in, put(weights))
        for core in range(2):
            theirs.receive_activations(core)
        for core in range(2):
            theirs.send_gradients([weights[4 * core : 4 * core + 4]], core=core)
    jax.block_until_ready(stand_in)
    assert_same_bits(state(ours), state(theirs))


def every_device_looks_up_its_own_ids() -> None:
    engine = make_engine(1, 4)
    ids = RANDOM.integers(0, 40, 8)
    for check_vma in (False, True):
        program = jax.shard_map(
            lambda stand_in, ids: lookup(stand_in, [ids])[0],
            mesh=MESH,
            in_specs=(P(), P("x")),
            out_specs=P("x"),
            check_vma=check_vma,
        )
        activations = jax.jit(program)(tables(engine), put(ids))
        np.testing.assert_array_equal(activations, engine.retrieve("t")["parameters"][ids])


def no_device_trains_by_itself() -> None:
    engine = make_engine(1, 4)
    before = state(engine)
    train = jax.grad(lambda stand_in, ids: jnp.sum(lookup(stand_in, [ids])[0]))
    text = "every device would train"
    for check_vma in (False, True):
        mapped = jax.shard_map(train, mesh=MESH, in_specs=(P(), P("x")), out_specs=P(), check_vma=check_vma)
        _assert_refused(ConfigError, text, jax.jit(mapped), tables(engine), put(np.arange(8)))
    _assert_refused(ConfigError, text, jax.pmap(train, in_axes=(None, 0)), tables(engine), np.arange(8).reshape(2, 4))
    _assert_refused(
        jax.errors.JaxRuntimeError,
        "must have sharding",
        jax.jit(train),
        put(tables(engine), P()),
        put(np.arange(4), P()),
    )
    assert_same_bits(state(engine), before)


def _assert_refused(kind: type[Exception], text: str, program: Any, *arguments: Any) -> None:
    try:
        jax.block_until_ready(program(*arguments))
    except kind as error:
        if text in str(error):
            return
        raise
    raise AssertionError(f"{program} was not refused")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
