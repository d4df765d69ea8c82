from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_same_bits, state
from jax_steps import BATCH, explicit_step, loss_of, make_batch, make_dense, make_engine, step

from anycore import Dense, EmbeddingConfig, EmbeddingEngine, FeatureConfig, Mode, TableConfig
from anycore.errors import ConfigError, InputError
from anycore.jax import lookup, tables
from anycore.optimizers import Adagrad
from anycore.optimizers.declarations import DynamicInput

RATES = [0.1, 0.01]
BATCHES = [make_batch(np.random.default_rng(seed)) for seed in range(6)]


def loss(stand_in: Any, batch: Any = BATCHES[0], rates: Any = RATES) -> Any:
    return jnp.sum(lookup(stand_in, batch, learning_rates=rates)["user"] ** 2)


def test_what_is_wrong_with_the_ids_is_told_and_nothing_has_changed() -> None:
    ours, theirs = make_engine(), make_engine()
    compiled = jax.jit(step)
    bad = {**BATCHES[0], "user": np.array([0, 1, 2, 20, 4, 5])}
    stand_in = tables(ours)
    for _ in range(2):
        with pytest.raises(
            jax.errors.JaxRuntimeError,
            match=r"INVALID_ARGUMENT: InputError: feature 'user': embedding_indices\[3\] must be an id in \[0, 20\) "
            r"of table 'users', got 20",
        ):
            jax.block_until_ready(compiled(make_dense(), stand_in, bad, RATES))
    assert_same_bits(state(ours), state(theirs))
    _, _, stand_in = compiled(make_dense(), stand_in, BATCHES[0], RATES)
    jax.block_until_ready(stand_in)
    explicit_step(theirs, make_dense(), BATCHES[0], RATES)
    assert_same_bits(state(ours), state(theirs))


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ([0.1], "expected 2 learning_rates, .* got 1"),
        ([0.1, float("nan")], r"learning_rates\[1\] must be finite, got nan"),
        ([0.1, np.ones(3)], r"learning_rates\[1\] must be a scalar, got shape \[3\]"),
    ],
)
def test_what_is_wrong_with_the_rates_is_told_and_nothing_has_changed(rates: Any, text: str) -> None:
    engine = make_engine()
    before = state(engine)
    compiled = jax.jit(jax.grad(loss))
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match=text):
            jax.block_until_ready(compiled(tables(engine), BATCHES[0], rates))
    assert_same_bits(state(engine), before)
    jax.block_until_ready(compiled(tables(engine), BATCHES[0], RATES))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"user": np.zeros(3)}, "'user': embedding_indices must be integers, got float32"),
        ({"user": np.zeros(BATCH + 1, int)}, "'user': embedding_indices without an index must be at most 6"),
        ({"liked": Dense(np.zeros(2, int), np.zeros(3))}, r"'liked': aggregation_weights must be as many .* got \[3\]"),
        ({"users": np.zeros(3, int)}, "inputs must be named .*'watched', 'liked', 'user'"),
    ],
)
def test_what_is_wrong_with_the_shapes_is_told_while_the_program_is_traced(changed: Any, text: str) -> None:
    engine = make_engine()
    with pytest.raises(InputError, match=text):
        jax.jit(loss).lower(tables(engine), {**BATCHES[0], **changed})


def test_arguments_that_do_not_go_together_are_refused() -> None:
    engine = make_engine()
    with pytest.raises(InputError, match=r"core is for what engine\.enqueue queued"):
        lookup(tables(engine), BATCHES[0], core=0)
    with pytest.raises(InputError, match=r"combiners, .* are for inputs given here"):
        lookup(tables(engine), combiners=["sum", "sum"])
    with pytest.raises(
        InputError, match=r"needs the Tables that anycore\.jax\.tables\(engine\) returns, got EmbeddingEng"
    ):
        lookup(engine, BATCHES[0])  # type: ignore[arg-type]


VMAPPED = [
    lambda stand_in: jax.vmap(lambda ids: lookup(stand_in, {**BATCHES[0], "user": ids}))(jnp.zeros((3, BATCH), int)),
    lambda stand_in: jax.vmap(jax.jit(lambda scale: jax.grad(lambda s: scale * loss(s))(stand_in)))(jnp.ones(3)),
    lambda stand_in: jax.jacrev(lambda s: lookup(s, BATCHES[0], learning_rates=RATES)["user"])(stand_in),
]


@pytest.mark.parametrize("program", VMAPPED, ids=["ids", "gradients", "jacobian"])
@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_vmap_is_refused(program: Any, transform: Any) -> None:
    engine = make_engine()
    before = state(engine)
    with pytest.raises(InputError, match="a lookup cannot be batched by vmap"):
        transform(program)(tables(engine))
    assert_same_bits(state(engine), before)


def test_vmap_over_something_else_than_the_lookup() -> None:
    engine = make_engine()
    users = jax.jit(jax.vmap(lambda scale: scale * lookup(tables(engine), BATCHES[0])["user"]))(jnp.arange(3.0))
    np.testing.assert_array_equal(users[2], 2 * engine.look_up(BATCHES[0])[2])


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("argument", [0, 1])
def test_gradients_of_gradients_are_refused(transform: Any, argument: int) -> None:
    engine = make_engine()
    before = state(engine)

    def gradient(stand_in: Any, scale: Any) -> Any:
        return transform(jax.grad(lambda stand_in: loss(stand_in) * scale))(stand_in).token

    with pytest.raises(InputError, match="lookups have a gradient, but no gradient of the gradient"):
        transform(jax.grad(gradient, argnums=argument))(tables(engine), 2.0)
    assert_same_bits(state(engine), before)


def test_forward_mode_is_refused() -> None:
    engine = make_engine()
    stand_in = tables(engine)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(loss, (stand_in,), (stand_in,))


def test_recomputation_is_refused_or_right() -> None:
    """Newer versions of JAX refuse it; older ones look up twice, before the one update."""
    ours, theirs = make_engine(), make_engine()
    before = state(ours)
    explicit_step(theirs, make_dense(), BATCHES[0], RATES)
    recomputed = jax.checkpoint(
        lambda stand_in: loss_of(make_dense(), lookup(stand_in, BATCHES[0], learning_rates=RATES))
    )
    try:
        jax.block_until_ready(jax.jit(jax.grad(recomputed))(tables(ours)))
    except NotImplementedError as error:
        assert "Effects not supported in partial-eval of `checkpoint`" in str(error)  # noqa: PT017
        assert_same_bits(state(ours), before)
    else:
        assert_same_bits(state(ours), state(theirs))


def test_what_comes_after_a_lookup_may_be_recomputed() -> None:
    ours, theirs = make_engine(), make_engine()
    dense_part = jax.checkpoint(loss_of)
    train = jax.grad(lambda stand_in: dense_part(make_dense(), lookup(stand_in, BATCHES[0], learning_rates=RATES)))
    jax.block_until_ready(jax.jit(train)(tables(ours)))
    explicit_step(theirs, make_dense(), BATCHES[0], RATES)
    assert_same_bits(state(ours), state(theirs))


@pytest.mark.parametrize("what", ["weights", "rates"])
def test_gradients_of_weights_and_rates_are_refused(what: str) -> None:
    engine = make_engine()
    before = state(engine)

    def by(stand_in: Any, value: Any) -> Any:
        user = Dense(BATCHES[0]["user"], value if what == "weights" else None)
        rates = [value[0], 0.1] if what == "rates" else RATES
        return loss(stand_in, {**BATCHES[0], "user": user}, rates)

    for argnums in (1, (0, 1)):
        with pytest.raises(InputError, match=r"no gradients of weights or learning rates; use jax\.lax\.stop_gradient"):
            jax.jit(jax.grad(by, argnums=argnums)).lower(tables(engine), jnp.ones(BATCH))
    stopped = jax.grad(lambda stand_in, value: by(stand_in, jax.lax.stop_gradient(value)), argnums=(0, 1))
    jax.block_until_ready(jax.jit(stopped)(tables(engine), jnp.ones(BATCH)))
    assert not np.array_equal(before["users"]["parameters"], state(engine)["users"]["parameters"])


def test_an_update_between_a_lookup_and_its_gradients_is_refused() -> None:
    engine = make_engine()
    text = "FAILED_PRECONDITION: CallOrderError: the tables were updated between a lookup and its gradients"
    twice = jax.jit(jax.grad(lambda stand_in: loss(stand_in, BATCHES[0]) + loss(stand_in, BATCHES[1])))
    with pytest.raises(jax.errors.JaxRuntimeError, match=text):
        jax.block_until_ready(twice(tables(engine)))
    _, pull_back = jax.vjp(loss, tables(engine))
    jax.block_until_ready(pull_back(1.0))
    once = state(engine)
    with pytest.raises(jax.errors.JaxRuntimeError, match=text):
        jax.block_until_ready(pull_back(1.0))
    assert_same_bits(state(engine), once)


def test_a_lookup_may_be_given_up() -> None:
    ours, theirs = make_engine(timeout=0.0), make_engine()
    jax.block_until_ready(jax.vjp(loss, tables(ours))[0])
    jax.block_until_ready(jax.jit(step)(make_dense(), tables(ours), BATCHES[1], RATES))
    explicit_step(theirs, make_dense(), BATCHES[1], RATES)
    assert_same_bits(state(ours), state(theirs))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"pipeline_execution_with_tensor_core": True}, "pipeline_execution_with_tensor_core = True makes steps"),
        ({"num_tensor_cores": 2}, "num_tensor_cores = 2 makes steps"),
        ({"mode": Mode.INFERENCE}, "mode INFERENCE has no gradients"),
    ],
)
def test_a_config_that_only_the_engine_can_train_is_refused(options: Any, text: str) -> None:
    engine = make_engine(**options)
    with pytest.raises(ConfigError, match=text):
        jax.jit(jax.grad(loss)).lower(tables(engine))
    np.testing.assert_array_equal(jax.jit(lookup)(tables(engine), BATCHES[0])["user"], engine.look_up(BATCHES[0])[2])


def queued_step(stand_in: Any, scale: Any, core: Any = None) -> Any:
    def loss(stand_in: Any) -> Any:
        activations = lookup(stand_in, learning_rates=RATES, core=core)
        return jnp.sum(scale * activations[0] * activations[1]) + jnp.sum(activations[2] ** 2)

    return jax.grad(loss)(stand_in)


def their_step(engine: EmbeddingEngine, scale: float, core: int = 0) -> None:
    watched, liked, user = engine.receive_activations(core)
    scale = np.float32(scale)  # type: ignore[assignment]
    engine.send_gradients([scale * liked, scale * watched, 2 * user], RATES, core)


@pytest.mark.parametrize("pipelined", [False, True])
def test_batches_that_are_queued_outside_are_steps_of_the_engine(pipelined: bool) -> None:
    """The next batch is queued while the program of the one before runs."""
    ours, theirs = (make_engine(pipeline_execution_with_tensor_core=pipelined) for _ in range(2))
    compiled = jax.jit(queued_step)
    stand_in = tables(ours)
    ours.enqueue(BATCHES[0])
    for number, batch in enumerate(BATCHES):
        stand_in = compiled(stand_in, 0.5)
        if number + 1 < len(BATCHES):
            ours.enqueue(BATCHES[number + 1])
        theirs.enqueue(batch)
        their_step(theirs, 0.5)
    jax.block_until_ready(stand_in)
    assert_same_bits(state(ours), state(theirs))


def test_batches_of_any_size_may_be_queued_for_one_program() -> None:
    engine = make_engine()
    compiled = jax.jit(lambda stand_in: queued_step(stand_in, 0.5))
    stand_in = tables(engine)
    for size in (1, 5, 6):
        engine.enqueue({**BATCHES[0], "user": np.zeros(size, int)})
        stand_in = jax.block_until_ready(compiled(stand_in))
    assert compiled._cache_size() == 1


def test_the_cores_of_a_step_in_one_program() -> None:
    ours, theirs = (make_engine(num_tensor_cores=2) for _ in range(2))

    @jax.jit  # type: ignore[untyped-decorator]
    def both(stand_in: Any) -> Any:
        for core in range(2):
            stand_in = jax.tree.map(jnp.add, stand_in, queued_step(stand_in, 0.5, core))
        return stand_in

    stand_in = tables(ours)
    for first in (0, 2, 4):
        for core in range(2):
            for engine in (ours, theirs):
                engine.enqueue(BATCHES[first + core], core=core)
        stand_in = both(stand_in)
        for core in range(2):
            their_step(theirs, 0.5, core)
    jax.block_until_ready(stand_in)
    assert_same_bits(state(ours), state(theirs))


def test_a_queued_batch_that_is_only_looked_up() -> None:
    engine = make_engine()
    engine.enqueue(BATCHES[0], mode="inference")
    expected = engine.look_up(BATCHES[0])
    for ours, theirs in zip(jax.jit(lookup)(tables(engine)), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_batch_that_is_missing_is_named_after_the_timeout() -> None:
    engine = make_engine(timeout=0.1)
    compiled = jax.jit(queued_step)
    text = r"DEADLINE_EXCEEDED: CallTimeoutError: receive_activations\(core=0\): step 0 was never enqueued"
    with pytest.raises(jax.errors.JaxRuntimeError, match=text):
        jax.block_until_ready(compiled(tables(engine), 0.5))
    engine.enqueue(BATCHES[0])
    jax.block_until_ready(compiled(tables(engine), 0.5))


def test_an_engine_that_has_changed_its_shapes_is_noticed() -> None:
    config = EmbeddingConfig(
        [TableConfig("t", 9, 2, Adagrad(learning_rate=DynamicInput(0)))], [FeatureConfig("f", "t", [4])]
    )
    engine = EmbeddingEngine(config)
    compiled = jax.jit(lookup)
    ids = np.arange(4)
    assert compiled(tables(engine), [ids])[0].shape == (4, 2)
    engine.reshape([[5]])
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"out of 'f' must be .* of shape \[5, 2\]"):
        jax.block_until_ready(compiled(tables(engine), [ids]))
