"""Initialising the system: the topology, and the pipeline that a graph rewrite makes of ConfigureTPUEmbedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu.tpu_hardware_feature import HardwareFeature

import anycore.ops
from anycore import ConfigError, InputError
from anycore.proto import TopologyProto, TPUEmbeddingConfiguration

# The tests also call them as nobody should.
ops: Any = anycore.ops


def configuration(mode: str = "TRAINING", cores: int = 1, rows: int = 4) -> bytes:
    message = TPUEmbeddingConfiguration(mode=mode, num_hosts=2, num_tensor_cores=cores, batch_size_per_tensor_core=2)
    table = message.table_descriptor.add(name="t", vocabulary_size=rows, dimension=2, num_features=1)
    table.optimization_parameters.adagrad.SetInParent()
    table.optimization_parameters.learning_rate.constant = 0.1
    return bytes(message.SerializeToString())


CONFIG = configuration()
OTHER = configuration(rows=5)


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
def test_tensorflow_reads_the_topology(cores: int) -> None:
    config = configuration(cores=cores)
    serialized = ops.configure_distributed_tpu(tpu_embedding_config=config)
    assert ops.is_tpu_embedding_initialized(config)
    topology = tf.tpu.experimental.Topology(serialized)
    assert (topology.num_tasks, topology.num_tpus_per_task) == (1, cores)
    assert not topology.missing_devices.size
    assignment = tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=cores)
    assert [assignment.tpu_ordinal(replica) for replica in range(cores)] == list(range(cores))


def test_the_topology_says_that_embeddings_are_looked_up_at_once() -> None:
    topology = TopologyProto.FromString(ops.configure_distributed_tpu())
    assert topology.num_tpu_devices_per_task == 1
    feature = HardwareFeature(topology.tpu_hardware_feature).embedding_feature
    assert feature == HardwareFeature.EmbeddingFeature.V1


def test_initialising_again_forgets_the_embedding_system() -> None:
    ops.configure_tpu_embedding(CONFIG)
    with pytest.raises(ConfigError, match="Malformed"):
        ops.configure_distributed_tpu(tpu_embedding_config=b"\xff")
    assert ops.is_tpu_embedding_initialized(CONFIG)
    ops.configure_distributed_tpu(embedding_config=CONFIG, is_global_init=True)
    assert not ops.is_tpu_embedding_initialized()
    ops.configure_tpu_embedding(CONFIG)
    assert ops.shutdown_distributed_tpu() is None
    assert not ops.is_tpu_embedding_initialized()
    ops.shutdown_distributed_tpu()


@pytest.mark.parametrize("finalize", ["finalize_tpu_embedding", "finalize_tpu_embedding_v2"])
def test_the_pipeline_ends_in_a_configured_system(finalize: str) -> None:
    common = ops.execute_tpu_embedding_partitioner(CONFIG)
    memory = ops.collate_tpu_embedding_memory([ops.configure_tpu_embedding_memory(common) for _ in range(2)])
    networks = [ops.configure_tpu_embedding_host(common, memory, CONFIG) for _ in range(2)]
    assert ops.connect_tpu_embedding_hosts(networks) is None
    assert all(type(opaque) is bytes for opaque in (common, memory, *networks))
    assert not ops.is_tpu_embedding_initialized()
    assert getattr(ops, finalize)(common, memory) == {"finalize_tpu_embedding_v2": (b"", b"")}.get(finalize)
    assert ops.is_tpu_embedding_initialized(CONFIG)

    ops.enqueue_tpu_embedding_integer_batch([[0, 1]], "train")
    (activations,) = ops.recv_tpu_embedding_activations(1, CONFIG)
    np.testing.assert_array_equal(activations, ops.retrieve_tpu_embedding_adagrad_parameters(1, 0, 0)[0][:2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.execute_tpu_embedding_partitioner(b""), "TPU embedding config is empty"),
        (lambda: ops.execute_tpu_embedding_partitioner(b"\xff"), "Malformed tpu_embedding_config"),
        (
            lambda: ops.execute_tpu_embedding_partitioner(configuration("UNSPECIFIED")),
            "mode is INVALID.  Must be INFERENCE, TRAINING, or BACKWARD_PASS_ONLY",
        ),
        (lambda: ops.execute_tpu_embedding_partitioner(configuration(rows=0)), "vocabulary_size must be at least 1"),
        (lambda: ops.configure_tpu_embedding_memory(b""), "TPU embedding config is empty"),
        (
            lambda: ops.collate_tpu_embedding_memory([CONFIG, CONFIG, OTHER]),
            r"collate_tpu_embedding_memory: memory_configs\[2\] is of another configuration than memory_configs\[0\]",
        ),
        (
            lambda: ops.configure_tpu_embedding_host(OTHER, CONFIG, CONFIG),
            "configure_tpu_embedding_host: common_config is of another configuration than config",
        ),
        (lambda: ops.configure_tpu_embedding_host(CONFIG, OTHER, CONFIG), "memory_config is of another"),
        (
            lambda: ops.configure_tpu_embedding_host(CONFIG, CONFIG, configuration("UNSPECIFIED")),
            "mode is INVALID.  Must be",
        ),
        (lambda: ops.connect_tpu_embedding_hosts([CONFIG, OTHER]), r"network_configs\[1\] is of another"),
        (lambda: ops.connect_tpu_embedding_hosts([CONFIG, b"\xff"]), "Malformed"),
        (lambda: ops.finalize_tpu_embedding(CONFIG, OTHER), "memory_config is of another configuration than common"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()
    assert not ops.is_tpu_embedding_initialized()


def test_a_pipeline_has_hosts() -> None:
    with pytest.raises(InputError, match="collate_tpu_embedding_memory: memory_configs must hold one string per host"):
        ops.collate_tpu_embedding_memory([])
