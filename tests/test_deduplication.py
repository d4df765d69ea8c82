"""The operations around deduplication data, which is always empty here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import anycore.ops
from anycore import CallOrderError, ConfigError, InputError
from anycore.proto import TPUEmbeddingConfiguration

# The tests also call them as nobody should.
ops: Any = anycore.ops

NO_PARTS = tf.make_tensor_proto(np.empty((0, 2), np.int32)).SerializeToString()
PARTS = tf.make_tensor_proto([[0, 2], [1, 1], [0, 1]]).SerializeToString()
INT32, UINT32, BFLOAT16, FLOAT = (int(t.as_datatype_enum) for t in (tf.int32, tf.uint32, tf.bfloat16, tf.float32))


def configuration() -> bytes:
    message = TPUEmbeddingConfiguration(mode="TRAINING", num_hosts=1, num_tensor_cores=2)
    table = message.table_descriptor.add(name="t", vocabulary_size=8, dimension=2)
    table.optimization_parameters.adagrad.SetInParent()
    table.optimization_parameters.learning_rate.dynamic.tag = 0
    for name in "fg":
        message.feature_descriptor.add(name=name, input_shape=[3])
    return bytes(message.SerializeToString())


CONFIG = configuration()
VERSIONS = {"": (), "_v2": (b"partitions", b"buffers", b"topology")}
versions = pytest.mark.parametrize("version", VERSIONS)


def call(name: str, version: str, *arguments: Any, **keywords: Any) -> Any:
    return getattr(ops, name + version)(*arguments, *VERSIONS[version], **keywords)


def train(receive: Any, send: Any) -> list[Any]:
    """Returns all activations and the parameters after two steps on two cores."""
    ops.configure_tpu_embedding(CONFIG, seed=1)
    results = []
    for step in range(2):
        for core in (0, 1):
            ids = [[0, 1 + core, 1], [5, 7, step]]
            ops.enqueue_tpu_embedding_arbitrary_tensor_batch([[]] * 2, ids, [[]] * 2, "train", device_ordinal=core)
        for core in (0, 1):
            out = [np.empty((3, 2), np.float32) for _ in "fg"]
            activations = receive(core=core, out=out)
            assert all(a is b for a, b in zip(activations, out, strict=True))
            results += activations
            send([a + 1 for a in activations], [0.5], core=core)
    return [*results, *ops.retrieve_tpu_embedding_adagrad_parameters(1, 0, 0)]


@versions
def test_the_chain_gives_the_numbers_of_recv_and_send(version: str) -> None:
    assert call("compute_dedup_data_size", version, CONFIG) == 0
    mask = call("compute_dedup_data_tuple_mask", version, CONFIG)
    assert (mask.shape, mask.dtype) == ((0, 2), np.int32)

    def passed_on() -> Any:
        data = call("xla_recv_tpu_embedding_deduplication_data", version, CONFIG)
        parts = ops.split_dedup_data(data, UINT32, FLOAT, NO_PARTS, CONFIG)
        return ops.merge_dedup_data(*parts, NO_PARTS)

    def receive(**keywords: Any) -> Any:
        return call("xla_recv_tpu_embedding_activations", version, passed_on(), 2, CONFIG, **keywords)

    def send(gradients: Any, rates: Any, **keywords: Any) -> None:
        call("xla_send_tpu_embedding_gradients", version, gradients, rates, passed_on(), CONFIG, **keywords)

    ours = train(receive, send)
    plain = train(
        lambda **keywords: ops.recv_tpu_embedding_activations(2, CONFIG, **keywords),
        lambda gradients, rates, **keywords: ops.send_tpu_embedding_gradients(gradients, rates, CONFIG, **keywords),
    )
    for a, b in zip(ours, plain, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("mask", [NO_PARTS, b""])
@pytest.mark.parametrize("integer_type", [tf.int32, tf.int64, tf.uint32, tf.uint64])
@pytest.mark.parametrize("float_type", [tf.half, tf.bfloat16, tf.float32])
def test_the_parts_have_the_types_asked_for(integer_type: tf.DType, float_type: tf.DType, mask: bytes) -> None:
    integers, floats = ops.split_dedup_data(None, integer_type.as_datatype_enum, float_type.as_datatype_enum, mask)
    assert integers.shape == floats.shape == (0,)
    assert integers.dtype == integer_type.as_numpy_dtype
    assert floats.dtype == ("V2" if float_type == tf.bfloat16 else float_type.as_numpy_dtype)
    assert ops.merge_dedup_data(integers, floats, mask) is None


@versions
def test_data_of_an_unconfigured_system_or_another_one_is_refused(version: str) -> None:
    with pytest.raises(CallOrderError, match=f"xla_recv_tpu_embedding_deduplication_data{version}: .* not configured"):
        call("xla_recv_tpu_embedding_deduplication_data", version, CONFIG)
    ops.configure_tpu_embedding(CONFIG)
    other = TPUEmbeddingConfiguration.FromString(CONFIG)
    other.num_tensor_cores = 1
    with pytest.raises(ConfigError, match=f"xla_recv_tpu_embedding_deduplication_data{version}: config is not the one"):
        call("xla_recv_tpu_embedding_deduplication_data", version, other)


@versions
def test_errors_name_the_operation_that_was_called(version: str) -> None:
    ops.configure_tpu_embedding(CONFIG)
    with pytest.raises(InputError, match=f"^xla_recv_tpu_embedding_activations{version}: num_tables must be 2, got 3$"):
        call("xla_recv_tpu_embedding_activations", version, None, 3, CONFIG)
    other = TPUEmbeddingConfiguration.FromString(CONFIG)
    other.num_tensor_cores = 1
    with pytest.raises(ConfigError, match=f"^xla_send_tpu_embedding_gradients{version}: config is not the one"):
        call("xla_send_tpu_embedding_gradients", version, [], [], None, other)
    with pytest.raises(ConfigError, match=f"^xla_recv_tpu_embedding_activations{version}: config is not the one"):
        call("xla_recv_tpu_embedding_activations", version, None, 2, other)


@versions
@pytest.mark.parametrize("name", ["compute_dedup_data_size", "compute_dedup_data_tuple_mask"])
def test_a_malformed_config_is_refused(name: str, version: str) -> None:
    with pytest.raises(ConfigError, match="Malformed tpu_embedding_config"):
        call(name, version, b"\xff")


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: ops.split_dedup_data([1], INT32, FLOAT, NO_PARTS), r"split_dedup_data: input must be None, .* \[1\]"),
        (lambda: ops.split_dedup_data(None, INT32, FLOAT, PARTS), "split_dedup_data: tuple_mask describes 3 parts"),
        (lambda: ops.split_dedup_data(None, INT32, FLOAT, b"\xff"), "split_dedup_data: Malformed tuple_mask"),
        (
            lambda: ops.split_dedup_data(None, FLOAT, FLOAT, b""),
            r"integer_type must be one of \[3, 9, 22, 23\].* got 1",
        ),
        (lambda: ops.split_dedup_data(None, INT32, INT32, b""), r"float_type must be one of \[1, 14, 19\].* got 3"),
        (lambda: ops.merge_dedup_data([], [], PARTS), "merge_dedup_data: tuple_mask describes 3 parts"),
        (lambda: ops.merge_dedup_data([4], [], b""), r"integer_tensor must have shape \[0\], .* got \[1\]"),
        (lambda: ops.merge_dedup_data([], [[]], b""), r"float_tensor must have shape \[0\], .* got \[1, 0\]"),
        (lambda: ops.xla_recv_tpu_embedding_activations(0, 2, CONFIG), "deduplication_data must be None, .* got 0"),
        (lambda: ops.xla_send_tpu_embedding_gradients([], [], 0, CONFIG), "deduplication_data must be None, .* got 0"),
    ],
)
def test_what_is_not_empty_is_refused(refused: Any, message: str) -> None:
    ops.configure_tpu_embedding(CONFIG)
    with pytest.raises(InputError, match=message):
        refused()
