"""The operations: TensorFlow's signatures, and the flow configure, load, enqueue, recv, send, retrieve."""

from __future__ import annotations

import inspect
import re
import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from golden import GOLDEN, Golden
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session

import anycore.ops
from anycore import CallOrderError, ConfigError, InputError
from anycore.optimizers import OPTIMIZERS
from anycore.proto import TPUEmbeddingConfiguration

# The tests also call them as nobody should.
ops: Any = anycore.ops

NONE = np.array([], np.float32)


def snake_case(name: str) -> str:
    return re.sub("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


REGISTRY = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
FAMILY = {
    snake_case(definition.name): definition
    for definition in REGISTRY.op
    if re.search("^(?!_).*(TPUEmbedding|DedupData|Xla(Split|Concat)ND|DistributedTPU$|TPUSystem$)", definition.name)
}
# TensorFlow registers the others for its graph passes alone.
WITH_WRAPPER = sorted(name for name, definition in FAMILY.items() if hasattr(tf.raw_ops, definition.name))


def test_the_whole_family_is_there_by_name() -> None:
    assert sorted(ops.__all__) == sorted(FAMILY)


def parameters(function: Any) -> list[tuple[str, Any]]:
    """Returns names and defaults of the arguments that may be given by position."""
    return [
        (p.name, list(p.default) if p.default == () else p.default)
        for p in inspect.signature(function).parameters.values()
        if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "name"
    ]


@pytest.mark.parametrize("name", WITH_WRAPPER)
def test_signatures_are_tensorflows(name: str) -> None:
    assert parameters(getattr(ops, name)) == parameters(getattr(tf.raw_ops, FAMILY[name].name))


def default(attribute: Any) -> Any:
    """Returns the default of an attribute as raw_ops shows it."""
    kind = attribute.default_value.WhichOneof("value")
    if kind is None:
        return inspect.Parameter.empty
    value = getattr(attribute.default_value, kind)
    return [] if kind == "list" else value.decode() if kind == "s" else value


@pytest.mark.parametrize("name", sorted(FAMILY))
def test_arguments_are_those_of_the_registry(name: str) -> None:
    inputs = FAMILY[name].input_arg
    inferred = {attribute for each in inputs for attribute in (each.number_attr, each.type_attr)}
    attributes = [(each.name, default(each)) for each in FAMILY[name].attr if each.name not in inferred]
    attributes.sort(key=lambda attribute: attribute[1] is not inspect.Parameter.empty)
    expected = [(each.name, inspect.Parameter.empty) for each in inputs] + attributes
    ours = parameters(getattr(ops, name))
    assert ours == [("num_tables" if each == "NumTables" else each, value) for each, value in expected]


def base_fixture() -> bytes:
    """Tables video 8 x 4 and user 16 x 2; features watched, favorited and friends; two samples."""
    message = TPUEmbeddingConfiguration(mode="TRAINING", num_hosts=1, num_tensor_cores=1)
    for name, rows, dimension in [("video", 8, 4), ("user", 16, 2)]:
        table = message.table_descriptor.add(name=name, vocabulary_size=rows, dimension=dimension)
        table.optimization_parameters.adagrad.SetInParent()
        table.optimization_parameters.learning_rate.constant = 0.1
    for name, table_id in [("watched", 0), ("favorited", 0), ("friends", 1)]:
        message.feature_descriptor.add(name=name, table_id=table_id, input_shape=[2])
    return bytes(message.SerializeToString())


def load_counting_up() -> None:
    for name, shape in [("video", (8, 4)), ("user", (16, 2))]:
        values = np.arange(32, dtype=np.float32).reshape(shape)
        ops.load_tpu_embedding_adagrad_parameters(values, np.full(shape, 0.1), 1, 0, table_name=name)


WATCHED = ([[0, 0], [1, 0], [1, 1]], [0, 1, 3], [0, 0, 1])
FAVORITED = ([[0, 0], [0, 1], [1, 0]], [0, 2, 3], [0, 1, 1])
FRIENDS = ([[0, 0], [1, 0], [1, 1], [1, 2]], [0, 1, 4], [3, 0, 1, 2])


def columns(*places: int) -> Any:
    return [[feature[place] for feature in (WATCHED, FAVORITED, FRIENDS)] for place in places]


ENQUEUES: dict[str, Any] = {
    "sparse_tensor": lambda: ops.enqueue_tpu_embedding_sparse_tensor_batch(
        *columns(0, 2), [NONE] * 3, "training", [0, 0, 1], combiners=["sum", "mean"]
    ),
    "ragged_tensor": lambda: ops.enqueue_tpu_embedding_ragged_tensor_batch(
        *columns(1, 2), [NONE] * 3, "train", [0, 0, 1], combiners=["sum", "sum", "mean"]
    ),
    "arbitrary_tensor": lambda: ops.enqueue_tpu_embedding_arbitrary_tensor_batch(
        [WATCHED[0], FAVORITED[1], FRIENDS[0]], *columns(2), [NONE, NONE, np.ones(4)], "unspecified", 0, ["sum", "mean"]
    ),
    "dynamic ragged_tensor": lambda: ops.dynamic_enqueue_tpu_embedding_ragged_tensor_batch(
        *columns(1, 2), [NONE] * 3, np.array("train"), np.int32(0), [0, 0, 1], [b"sum", b"mean"]
    ),
    "dynamic arbitrary_tensor": lambda: ops.dynamic_enqueue_tpu_embedding_arbitrary_tensor_batch(
        *columns(1, 2), [NONE] * 3, b"training", [0], ["sum", "mean"]
    ),
    "tensors": lambda: ops.enqueue_tpu_embedding_arbitrary_tensor_batch(
        *[[tf.constant(x, tf.int64) for x in column] for column in columns(0, 2)],
        [tf.zeros([0])] * 3,
        tf.constant("train"),
        combiners=["sum", "mean"],
    ),
}


@pytest.mark.parametrize("kind", ENQUEUES)
def test_the_base_fixture_of_tensorflows_own_tests(kind: str) -> None:
    config = base_fixture()
    ops.configure_tpu_embedding(config)
    load_counting_up()
    ENQUEUES[kind]()
    activations = ops.recv_tpu_embedding_activations(3, config)
    assert activations[0].tolist() == [[0, 1, 2, 3], [4, 6, 8, 10]]
    assert activations[1].tolist() == [[4, 6, 8, 10], [4, 5, 6, 7]]
    assert activations[2].tolist() == [[6, 7], [2, 3]]

    # The loss is the sum over features of the mean over the batch of the squared activations.
    ops.send_tpu_embedding_gradients(activations, [], config)
    sums = {"video": np.zeros((8, 4)), "user": np.zeros((16, 2))}
    for name, (_, splits, ids), gradient, mean in [
        ("video", WATCHED, activations[0], False),
        ("video", FAVORITED, activations[1], False),
        ("user", FRIENDS, activations[2], True),
    ]:
        for sample in (0, 1):
            row = ids[splits[sample] : splits[sample + 1]]
            for i in row:
                sums[name][i] += gradient[sample] / (len(row) if mean else 1)
    for name, g in sums.items():
        parameters, accumulators = ops.retrieve_tpu_embedding_adagrad_parameters(1, 0, table_name=name)
        np.testing.assert_allclose(accumulators, 0.1 + g**2, rtol=1e-6)
        before = np.arange(32).reshape(g.shape)
        np.testing.assert_allclose(parameters, before - 0.1 * g / np.sqrt(0.1 + g**2), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("golden", [case for case in GOLDEN if OPTIMIZERS[case.optimizer].op_name], ids=str)
def test_the_whole_flow_gives_the_golden_numbers(golden: Golden) -> None:
    message = TPUEmbeddingConfiguration(mode="TRAINING", num_hosts=1, num_tensor_cores=1, batch_size_per_tensor_core=2)
    table = message.table_descriptor.add(name="t", vocabulary_size=2, dimension=3, num_features=1)
    parameters = getattr(table.optimization_parameters, golden.optimizer)
    parameters.SetInParent()
    for name, value in golden.hyper_parameters.items():
        setattr(parameters, name, value)
    table.optimization_parameters.learning_rate.dynamic.tag = 0
    config = message.SerializeToString()

    ops.configure_tpu_embedding(config)
    load = getattr(ops, f"load_tpu_embedding_{golden.optimizer}_parameters")
    load(golden.parameters, *golden.slots.values(), num_shards=1, shard_id=0, table_id=0, config=config)
    ops.enqueue_tpu_embedding_integer_batch([np.array([0, 1], np.int32)], "training")
    (activations,) = ops.recv_tpu_embedding_activations(1, config)
    np.testing.assert_array_equal(activations, golden.parameters.astype(np.float32))
    ops.send_tpu_embedding_gradients([golden.gradient], [np.float32(golden.learning_rate)], config)
    found = getattr(ops, f"retrieve_tpu_embedding_{golden.optimizer}_parameters")(1, 0, 0)
    for ours, theirs in zip(found if golden.slots else [found], golden.out, strict=True):
        # Six roundings to float32 of numbers below 4, whatever the order of a kernel's operations.
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-7)


def test_sparse_batch_interleaves_the_features_of_a_sample() -> None:
    message = TPUEmbeddingConfiguration(mode="TRAINING", num_hosts=1, num_tensor_cores=1, batch_size_per_tensor_core=2)
    table = message.table_descriptor.add(name="t", vocabulary_size=4, dimension=1, num_features=2)
    table.optimization_parameters.stochastic_gradient_descent.SetInParent()
    table.optimization_parameters.learning_rate.constant = 1
    ops.configure_tpu_embedding(message)
    ops.load_tpu_embedding_stochastic_gradient_descent_parameters([[1], [2], [3], [4]], 1, 0, table_id=0)
    ops.enqueue_tpu_embedding_sparse_batch([[0, 0, 3]], [[0, 1, 3]], [[1, 2, 3]], "inference")
    (activations,) = ops.recv_tpu_embedding_activations(1, message)
    assert activations.tolist() == [[5], [0], [0], [12]]


def load_all(*lists: Any, config: bytes, num_shards: int = 1, shard_id: int = 0) -> None:
    ops.load_all_tpu_embedding_parameters(*lists, config=config, num_shards=num_shards, shard_id=shard_id)


def test_all_tables_are_loaded_and_retrieved_at_once() -> None:
    config = base_fixture()
    ops.configure_tpu_embedding(config)
    random = np.random.default_rng(0)
    shards = []
    for shard_id in (0, 1):
        given = [random.random((4, 4), np.float32), random.random((8, 2), np.float32)]
        slots = [random.random((4, 4), np.float32), random.random((8, 2), np.float32)]
        load_all(given, slots, *[[NONE, NONE]] * 6, config=config, num_shards=2, shard_id=shard_id)
        shards.append((given, slots))
    for shard_id, (given, slots) in enumerate(shards):
        lists = ops.retrieve_all_tpu_embedding_parameters(2, config, 2, shard_id)
        assert len(lists) == 8
        for found, expected in zip(lists[0] + lists[1], given + slots, strict=True):
            np.testing.assert_array_equal(found, expected)
        # With gradient accumulation the next position holds its accumulators, filled with the smallest denormal.
        assert [a.shape for a in lists[2]] == [(4, 4), (8, 2)]
        assert {int(bits) for a in lists[2] for bits in np.unique(a.view(np.uint32))} == {1}
        assert all(a.shape == (0, 0) for auxiliary in lists[3:] for a in auxiliary)
        load_all(*lists, config=config, num_shards=2, shard_id=shard_id)


def test_retrieve_all_has_the_shapes_that_tensorflow_infers() -> None:
    config = base_fixture()
    ops.configure_tpu_embedding(config)
    attributes = {"NumTables": 2, "num_shards": 3, "shard_id": 2}
    values = {name: tf.compat.v1.AttrValue(i=value) for name, value in attributes.items()}
    values["config"] = tf.compat.v1.AttrValue(s=config)
    theirs = tf.Graph().create_op("RetrieveAllTPUEmbeddingParameters", [], [tf.float32] * 16, attrs=values)
    ours = ops.retrieve_all_tpu_embedding_parameters(2, config, 3, 2)
    assert [list(a.shape) for arrays in ours for a in arrays] == [b.shape.as_list() for b in theirs.outputs]


def test_activations_have_the_shapes_that_tensorflow_infers() -> None:
    config = base_fixture()
    ops.configure_tpu_embedding(config)
    ENQUEUES["ragged_tensor"]()
    with tf.Graph().as_default():
        theirs = tf.raw_ops.RecvTPUEmbeddingActivations(num_outputs=3, config=config)
    ours = ops.recv_tpu_embedding_activations(3, config)
    assert [list(a.shape) for a in ours] == [b.shape.as_list() for b in theirs]


def test_configuring_replaces_the_system_unless_it_fails() -> None:
    config = base_fixture()
    assert not ops.is_tpu_embedding_initialized()
    ops.configure_tpu_embedding(config, seed=3)
    assert ops.is_tpu_embedding_initialized()
    assert ops.is_tpu_embedding_initialized(config)
    with pytest.raises(ConfigError, match="TPU embedding config is empty"):
        ops.configure_tpu_embedding(b"")
    assert ops.is_tpu_embedding_initialized(config)
    other = TPUEmbeddingConfiguration.FromString(config)
    other.table_descriptor[0].name = "other"
    ops.configure_tpu_embedding(other.SerializeToString())
    assert not ops.is_tpu_embedding_initialized(config)
    with pytest.raises(ConfigError, match="config is not the one"):
        ops.recv_tpu_embedding_activations(3, config)
    assert ops.shutdown_tpu_system()
    assert not ops.shutdown_tpu_system()


@pytest.mark.parametrize("again", [False, True])
def test_a_call_that_waits_ends_with_its_system(again: bool) -> None:
    config = base_fixture()
    ops.configure_tpu_embedding(config, timeout=60)
    end = partial(ops.configure_tpu_embedding, config) if again else ops.shutdown_tpu_system
    timer = threading.Timer(0.1, end)
    timer.start()
    begin = time.monotonic()
    with pytest.raises(CallOrderError, match=r"step 0 was never enqueued.* \(this engine was closed\)"):
        ops.recv_tpu_embedding_activations(3, config)
    assert time.monotonic() - begin < 30
    timer.join()


def test_an_unconfigured_system_says_so() -> None:
    with pytest.raises(CallOrderError, match=r"enqueue_tpu_embedding_integer_batch: .* call configure_tpu_embedding"):
        ops.enqueue_tpu_embedding_integer_batch([], "train")


def test_another_core_is_chosen_by_keyword() -> None:
    message = TPUEmbeddingConfiguration.FromString(base_fixture())
    message.num_tensor_cores = 2
    ops.configure_tpu_embedding(message, timeout=0.01)
    for core in (0, 1):
        ops.enqueue_tpu_embedding_ragged_tensor_batch(
            *columns(1, 2), [NONE] * 3, "train", [0, 0, 1], device_ordinal=core
        )
    before = ops.retrieve_tpu_embedding_adagrad_parameters(1, 0, table_id=0)[0]
    for core in (1, 0):
        activations = ops.recv_tpu_embedding_activations(3, message, core=core)
        np.testing.assert_array_equal(before, ops.retrieve_tpu_embedding_adagrad_parameters(1, 0, table_id=0)[0])
        ops.send_tpu_embedding_gradients(activations, [], message, core=core)
    assert (before != ops.retrieve_tpu_embedding_adagrad_parameters(1, 0, table_id=0)[0]).any()


def shard(**arguments: Any) -> dict[str, Any]:
    return {"num_shards": 1, "shard_id": 0, **arguments}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: ops.recv_tpu_embedding_activations(2, c), "num_outputs must be 3, got 2"),
        (lambda c: ops.retrieve_tpu_embedding_adagrad_parameters(1, 0), "exactly one of table_id or table_name"),
        (lambda c: ops.retrieve_tpu_embedding_adagrad_parameters(1, 0, 0, "video"), "exactly one of table_id"),
        (lambda c: ops.retrieve_tpu_embedding_adagrad_parameters(1, 0, 2), "there is no table 2, the tables are"),
        (lambda c: ops.retrieve_tpu_embedding_adagrad_parameters(**shard(table_name="x")), "there is no table 'x'"),
        (lambda c: ops.retrieve_tpu_embedding_adam_parameters(1, 0, 0), "'video' is trained by adagrad, not adam"),
        (lambda c: ops.retrieve_tpu_embedding_adagrad_parameters(0, 0, 0), "num_shards must be at least 1, got 0"),
        (lambda c: ops.retrieve_all_tpu_embedding_parameters(1, c, 1, 0), "num_tables must be 2, got 1"),
        (lambda c: ops.retrieve_all_tpu_embedding_parameters(2, c, 9, 8), "table 'video': every shard must hold a row"),
        (
            lambda c: load_all([NONE], *[[NONE] * 2] * 7, config=c),
            "parameters must hold 2 arrays, one per table, got 1",
        ),
        (
            lambda c: load_all(*[[np.ones((8, 4)), np.ones((16, 2))]] * 8, config=c),
            r"table 'video' has 1 slots, auxiliary3\[0\] must be empty, got 32 elements",
        ),
        (
            lambda c: ops.enqueue_tpu_embedding_integer_batch([[0, 0], [0], [0, 0]], "train"),
            "'favorited': an integer batch needs exactly 2 ids, got 1",
        ),
        (
            lambda c: ops.enqueue_tpu_embedding_arbitrary_tensor_batch([[0]], [[0], [0]], [NONE], "train"),
            "must be lists of one length, got 1, 2 and 1",
        ),
        (
            lambda c: ops.dynamic_enqueue_tpu_embedding_arbitrary_tensor_batch([], [], [], "train", [0, 1]),
            r"device_ordinal must be a scalar, got shape \[2\]",
        ),
    ],
)
def test_bad_arguments_are_named(call: Any, message: str) -> None:
    config = base_fixture()
    ops.configure_tpu_embedding(config)
    with pytest.raises(InputError, match=message):
        call(config)


def test_missing_arguments_are_a_type_error() -> None:
    ops.configure_tpu_embedding(base_fixture())
    with pytest.raises(TypeError, match="accumulators"):
        ops.load_tpu_embedding_adagrad_parameters(np.ones((8, 4)), num_shards=1, shard_id=0, table_id=0)


def test_operations_and_engine_give_the_same_bits() -> None:
    config = base_fixture()
    ops.configure_tpu_embedding(config, seed=5)
    engine = anycore.EmbeddingEngine(anycore.EmbeddingConfig.from_proto(config), seed=5)
    for _ in range(3):
        ENQUEUES["sparse_tensor"]()
        engine.enqueue(
            [anycore.Ragged(*feature[1:]) for feature in (WATCHED, FAVORITED, FRIENDS)], combiners=["sum", "mean"]
        )
        activations = ops.recv_tpu_embedding_activations(3, config)
        for ours, theirs in zip(activations, engine.receive_activations(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        ops.send_tpu_embedding_gradients(activations, [], config)
        engine.send_gradients(activations)
    for table_id in (0, 1):
        for ours, theirs in zip(
            ops.retrieve_tpu_embedding_adagrad_parameters(1, 0, table_id),
            engine.retrieve(table_id).values(),
            strict=True,
        ):
            np.testing.assert_array_equal(ours, theirs)


def test_activations_pass_through() -> None:
    sliced = np.ones((2, 3), np.float32)
    assert ops.tpu_embedding_activations(np.zeros(1), sliced, table_id=0, lookup_id=0) is sliced


def test_serialized_batches_are_refused_with_a_way_out() -> None:
    with pytest.raises(NotImplementedError, match=r"not published; .* enqueue_tpu_embedding_arbitrary_tensor_batch"):
        ops.enqueue_tpu_embedding_batch([b""], "train")
