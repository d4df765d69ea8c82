from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_same_bits, state
from jax_steps import BATCH, descend, explicit_step, make_batch, make_dense, make_engine, step

from anycore.errors import CallOrderError, ConfigError
from anycore.jax import lookup, tables

RATES = [0.1, 0.01]
STEPS = 6


def batches(seed: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    return [make_batch(random) for _ in range(STEPS)]


def stacked(given: list[dict[str, Any]]) -> Any:
    return jax.tree.map(lambda *arrays: np.stack(arrays), *given)


def in_a_scan(dense: Any, stand_in: Any, given: Any) -> Any:
    def body(carry: Any, batch: Any) -> Any:
        return step(carry[0], carry[1], batch, RATES)[1:], None

    return jax.lax.scan(body, (dense, stand_in), given)[0]


def in_a_loop(dense: Any, stand_in: Any, given: Any) -> Any:
    def body(number: Any, carry: Any) -> Any:
        return step(carry[0], carry[1], jax.tree.map(lambda arrays: arrays[number], given), RATES)[1:]

    return jax.lax.fori_loop(0, STEPS, body, (dense, stand_in))


def unrolled(dense: Any, stand_in: Any, given: Any) -> Any:
    for number in range(STEPS):
        _, dense, stand_in = step(dense, stand_in, jax.tree.map(lambda arrays: arrays[number], given), RATES)  # noqa: B023
    return dense, stand_in


def unrolled_but_for_the_dense_part(dense: Any, stand_in: Any, given: Any) -> Any:
    """Nothing but the tables' stand-in orders these steps."""
    made = []
    for number in range(STEPS):
        batch = jax.tree.map(lambda arrays: arrays[number], given)  # noqa: B023
        _, updated, stand_in = step(dense, stand_in, batch, RATES)
        made.append(updated)
    return made[-1], stand_in


@pytest.mark.parametrize("program", [in_a_scan, in_a_loop, unrolled])
def test_steps_of_one_program_come_in_order(program: Any) -> None:
    ours, theirs = make_engine(), make_engine()
    given = batches(0)
    their_dense = make_dense()
    for batch in given:
        _, their_dense = explicit_step(theirs, their_dense, batch, RATES)
    dense, _ = jax.block_until_ready(jax.jit(program)(make_dense(), tables(ours), stacked(given)))
    assert_same_bits(state(ours), state(theirs))
    for name, values in dense.items():
        np.testing.assert_allclose(values, their_dense[name], rtol=1e-5)


def test_the_stand_in_alone_orders_steps() -> None:
    ours, theirs = make_engine(), make_engine()
    given = batches(1)
    for batch in given:
        explicit_step(theirs, make_dense(), batch, RATES)
    program = jax.jit(unrolled_but_for_the_dense_part)
    jax.block_until_ready(program(make_dense(), tables(ours), stacked(given)))
    assert_same_bits(state(ours), state(theirs))


def test_programs_that_are_not_waited_for_come_in_order() -> None:
    """JAX returns before a program has run; the next one waits for what it is given."""
    ours, theirs = make_engine(), make_engine()

    @jax.jit  # type: ignore[untyped-decorator]
    def slow_step(dense: Any, stand_in: Any, batch: Any) -> Any:
        busy = jax.lax.fori_loop(0, 20, lambda _, x: jnp.tanh(x) @ x, jnp.eye(200))
        dense = jax.tree.map(lambda value: value + 0 * jnp.sum(busy), dense)
        return step(dense, stand_in, batch, RATES)

    dense, their_dense, stand_in = make_dense(), make_dense(), tables(ours)
    for batch in batches(2):
        _, dense, stand_in = slow_step(dense, stand_in, batch)
        _, their_dense = explicit_step(theirs, their_dense, batch, RATES)
    jax.block_until_ready(stand_in)
    assert_same_bits(state(ours), state(theirs))


def test_a_condition_may_skip_a_step() -> None:
    ours, theirs = make_engine(), make_engine()
    given = batches(3)
    program = jax.jit(
        lambda train, dense, stand_in, batch: jax.lax.cond(
            train, lambda d, s: step(d, s, batch, RATES)[1:], lambda d, s: (d, s), dense, stand_in
        )
    )
    dense, their_dense, stand_in = make_dense(), make_dense(), tables(ours)
    for number, batch in enumerate(given):
        dense, stand_in = program(number % 2 == 0, dense, stand_in, batch)
        if number % 2 == 0:
            _, their_dense = explicit_step(theirs, their_dense, batch, RATES)
    jax.block_until_ready(stand_in)
    assert_same_bits(state(ours), state(theirs))


def test_two_engines_of_one_program() -> None:
    first, second = make_engine(), make_engine()
    batch = make_batch(np.random.default_rng(4))

    @jax.jit  # type: ignore[untyped-decorator]
    def program(stand_ins: Any) -> Any:
        def loss(stand_ins: Any) -> Any:
            one, other = (lookup(stand_in, batch, learning_rates=RATES)["user"] for stand_in in stand_ins)
            return jnp.sum(one * other)

        return jax.grad(loss)(stand_ins)

    expected = first.look_up(batch)[2]
    jax.block_until_ready(program((tables(first), tables(second))))
    assert_same_bits(state(first), state(second))
    assert not np.array_equal(first.look_up(batch)[2], expected)


def test_lookups_of_several_threads_while_one_trains() -> None:
    engine, alone = make_engine(), make_engine()
    given = batches(5)
    infer = jax.jit(lookup)
    problems: list[BaseException] = []
    done = threading.Event()

    def look_up() -> None:
        try:
            while not done.is_set():
                jax.block_until_ready(infer(tables(engine), given[0]))
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=look_up) for _ in range(3)]
    for thread in threads:
        thread.start()
    compiled = jax.jit(step)
    for stand_in, trained in ((tables(engine), True), (tables(alone), False)):
        dense = make_dense()
        for batch in given * 5:
            _, dense, stand_in = compiled(dense, stand_in, batch, RATES)
        jax.block_until_ready(stand_in)
        if trained:
            done.set()
    for thread in threads:
        thread.join()
    assert not problems
    assert_same_bits(state(engine), state(alone))


def test_programs_keep_no_engine_alive() -> None:
    engine = make_engine()
    batch = make_batch(np.random.default_rng(6))
    program = jax.jit(step)
    stand_in = tables(engine)
    jax.block_until_ready(program(make_dense(), stand_in, batch, RATES))
    reference = weakref.ref(engine)
    del engine
    gc.collect()
    assert reference() is None
    with pytest.raises(CallOrderError, match="engine of these tables is gone; keep a reference"):
        _ = stand_in.engine
    with pytest.raises(jax.errors.JaxRuntimeError, match="engine of these tables is gone"):
        jax.block_until_ready(program(make_dense(), stand_in, batch, RATES))


def test_a_stand_in_is_a_pytree_of_one_scalar() -> None:
    engine = make_engine()
    stand_in = tables(engine)
    (leaf,), structure = jax.tree_util.tree_flatten(stand_in)
    assert (leaf.shape, leaf.dtype) == ((), jnp.float32)
    assert structure == jax.tree_util.tree_structure(tables(engine))
    assert structure != jax.tree_util.tree_structure(tables(make_engine()))
    assert stand_in.engine is engine
    assert descend(stand_in, stand_in).engine is engine
    assert len(lookup(stand_in, list(make_batch(np.random.default_rng(7)).values()))[0]) == BATCH


def test_something_else_than_an_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="tables of an EmbeddingEngine can be looked up, got EmbeddingConfig"):
        tables(make_engine().config)  # type: ignore[arg-type]
