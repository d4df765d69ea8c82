"""Initialisation as TensorFlow's graphs spell it: of the TPU system, and of the embedding system host by host.

On TPUs a graph rewrite expands ConfigureTPUEmbedding into the pipeline partitioner, memory, collate, host, connect,
finalize. What its operations hand on is opaque to a graph. Here it is the configuration, by which each of them sees
that its inputs belong together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anycore.config import EmbeddingConfig, Mode, parse
from anycore.errors import ConfigError, InputError
from anycore.ops.system import configure_tpu_embedding, shutdown_tpu_system
from anycore.proto import TopologyProto


def configure_distributed_tpu(
    embedding_config: Any = "",
    tpu_embedding_config: Any = "",
    is_global_init: bool = False,
    enable_whole_mesh_compilations: bool = False,
    compilation_failure_closes_chips: bool = True,
    tpu_cancellation_closes_chips: int = 0,
    **settings: Any,
) -> bytes:
    """Returns a serialized TopologyProto: one task, with as many cores as `tpu_embedding_config` has, or one.

    The embedding system becomes that of `tpu_embedding_config`; without one it is forgotten, as a TPU forgets it when
    it is initialised again. `embedding_config` is reserved and the other arguments steer TPUs: they have no effect.
    `settings` are the keywords of `configure_tpu_embedding`.

    Raises: ConfigError; then the present system stays.
    Source: `ConfigureDistributedTPU`, `TopologyProto`, TensorFlow 2.21.
    """
    cores = 1
    if tpu_embedding_config:
        configure_tpu_embedding(tpu_embedding_config, **settings)
        cores = parse(tpu_embedding_config).num_tensor_cores
    else:
        shutdown_tpu_system()
    topology = TopologyProto(
        mesh_shape=[cores, 1, 1, 1],
        num_tasks=1,
        num_tpu_devices_per_task=cores,
        device_coordinates=[axis for core in range(cores) for axis in (core, 0, 0, 0)],
    )
    topology.tpu_hardware_feature.embedding_feature = topology.tpu_hardware_feature.V1
    return topology.SerializeToString()


def shutdown_distributed_tpu() -> None:
    """Forgets the embedding system, if there is one, and frees its tables."""
    shutdown_tpu_system()


def execute_tpu_embedding_partitioner(config: Any) -> bytes:
    """Returns the pipeline's `common_config`.

    Raises: ConfigError when `config` cannot be used.
    """
    message = parse(config)
    if message.mode == Mode.UNSPECIFIED:
        raise ConfigError(
            "TPUEmbeddingConfiguration.mode is INVALID.  Must be INFERENCE, TRAINING, or BACKWARD_PASS_ONLY"
        )
    EmbeddingConfig.from_proto(message)
    return _serialized(message)


def configure_tpu_embedding_memory(common_config: Any) -> bytes:
    """Returns the `memory_config` of one host."""
    return _serialized(parse(common_config))


def collate_tpu_embedding_memory(memory_configs: Sequence[Any]) -> bytes:
    """Returns the `memory_config` of all hosts.

    Raises: ConfigError when the hosts have different ones.
    """
    return _common("collate_tpu_embedding_memory", memory_configs=memory_configs)


def configure_tpu_embedding_host(common_config: Any, memory_config: Any, config: Any) -> bytes:
    """Returns the `network_config` of one host.

    Raises: ConfigError when `config` cannot be used or the pipeline began with another one.
    """
    return _common(
        "configure_tpu_embedding_host",
        config=[execute_tpu_embedding_partitioner(config)],
        common_config=[common_config],
        memory_config=[memory_config],
    )


def connect_tpu_embedding_hosts(network_configs: Sequence[Any]) -> None:
    """Connects nothing, for all hosts are this process.

    Raises: ConfigError when the hosts have different configurations.
    """
    _common("connect_tpu_embedding_hosts", network_configs=network_configs)


def finalize_tpu_embedding(common_config: Any, memory_config: Any, **settings: Any) -> None:
    """Makes the embedding system of the pipeline's configuration, as `configure_tpu_embedding` does with `settings`.

    Raises: ConfigError; then the present system stays.
    """
    configure_tpu_embedding(
        _common("finalize_tpu_embedding", common_config=[common_config], memory_config=[memory_config]), **settings
    )


def finalize_tpu_embedding_v2(common_config: Any, memory_config: Any, **settings: Any) -> tuple[bytes, bytes]:
    """Does as `finalize_tpu_embedding`; returns `embedding_partitions` and `hbm_buffers_config`, empty messages."""
    finalize_tpu_embedding(common_config, memory_config, **settings)
    return b"", b""


def _serialized(message: Any) -> bytes:
    return message.SerializeToString(deterministic=True)


def _common(op: str, **inputs: Sequence[Any]) -> bytes:
    """Returns the one configuration that all inputs are."""
    serialized = {
        f"{name}[{index}]" if len(configs) > 1 else name: _serialized(parse(config))
        for name, configs in inputs.items()
        for index, config in enumerate(configs)
    }
    if not serialized:
        raise InputError(f"{op}: {', '.join(inputs)} must hold one string per host, got none")
    first, *others = serialized
    for other in others:
        if serialized[other] != serialized[first]:
            raise ConfigError(
                f"{op}: {other} is of another configuration than {first}; give all operations of the pipeline the same"
            )
    return serialized[first]
