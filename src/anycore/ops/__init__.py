"""TensorFlow's TPU embedding operations by name, with their arguments, on NumPy arrays.

Names are TensorFlow's in snake case; argument names, order and defaults are those of TensorFlow 2.21. Tensors may be
anything with `__array__`, DLPack or plain sequences. Where TensorFlow places an operation on a device, a keyword `core`
names the core. `load_tpu_embedding_<algorithm>_parameters` and its `retrieve` twin exist for every algorithm that
has them there.
"""

from collections.abc import Callable
from typing import Any

from anycore.ops.deduplication import (
    compute_dedup_data_size,
    compute_dedup_data_size_v2,
    compute_dedup_data_tuple_mask,
    compute_dedup_data_tuple_mask_v2,
    merge_dedup_data,
    split_dedup_data,
    xla_recv_tpu_embedding_activations,
    xla_recv_tpu_embedding_activations_v2,
    xla_recv_tpu_embedding_deduplication_data,
    xla_recv_tpu_embedding_deduplication_data_v2,
    xla_send_tpu_embedding_gradients,
    xla_send_tpu_embedding_gradients_v2,
)
from anycore.ops.enqueue import (
    dynamic_enqueue_tpu_embedding_arbitrary_tensor_batch,
    dynamic_enqueue_tpu_embedding_ragged_tensor_batch,
    enqueue_tpu_embedding_arbitrary_tensor_batch,
    enqueue_tpu_embedding_batch,
    enqueue_tpu_embedding_integer_batch,
    enqueue_tpu_embedding_ragged_tensor_batch,
    enqueue_tpu_embedding_sparse_batch,
    enqueue_tpu_embedding_sparse_tensor_batch,
)
from anycore.ops.initialization import (
    collate_tpu_embedding_memory,
    configure_distributed_tpu,
    configure_tpu_embedding_host,
    configure_tpu_embedding_memory,
    connect_tpu_embedding_hosts,
    execute_tpu_embedding_partitioner,
    finalize_tpu_embedding,
    finalize_tpu_embedding_v2,
    shutdown_distributed_tpu,
)
from anycore.ops.parameters import (
    PARAMETER_OPS,
    load_all_tpu_embedding_parameters,
    retrieve_all_tpu_embedding_parameters,
)
from anycore.ops.recv_send import (
    recv_tpu_embedding_activations,
    send_tpu_embedding_gradients,
    tpu_embedding_activations,
)
from anycore.ops.split_concat import (
    assign_variable_xla_concat_nd,
    read_variable_xla_split_nd,
    xla_concat_nd,
    xla_split_nd,
)
from anycore.ops.system import configure_tpu_embedding, is_tpu_embedding_initialized, shutdown_tpu_system

__all__ = [
    "assign_variable_xla_concat_nd",
    "collate_tpu_embedding_memory",
    "compute_dedup_data_size",
    "compute_dedup_data_size_v2",
    "compute_dedup_data_tuple_mask",
    "compute_dedup_data_tuple_mask_v2",
    "configure_distributed_tpu",
    "configure_tpu_embedding",
    "configure_tpu_embedding_host",
    "configure_tpu_embedding_memory",
    "connect_tpu_embedding_hosts",
    "dynamic_enqueue_tpu_embedding_arbitrary_tensor_batch",
    "dynamic_enqueue_tpu_embedding_ragged_tensor_batch",
    "enqueue_tpu_embedding_arbitrary_tensor_batch",
    "enqueue_tpu_embedding_batch",
    "enqueue_tpu_embedding_integer_batch",
    "enqueue_tpu_embedding_ragged_tensor_batch",
    "enqueue_tpu_embedding_sparse_batch",
    "enqueue_tpu_embedding_sparse_tensor_batch",
    "execute_tpu_embedding_partitioner",
    "finalize_tpu_embedding",
    "finalize_tpu_embedding_v2",
    "is_tpu_embedding_initialized",
    "load_all_tpu_embedding_parameters",
    "merge_dedup_data",
    "read_variable_xla_split_nd",
    "recv_tpu_embedding_activations",
    "retrieve_all_tpu_embedding_parameters",
    "send_tpu_embedding_gradients",
    "shutdown_distributed_tpu",
    "shutdown_tpu_system",
    "split_dedup_data",
    "tpu_embedding_activations",
    "xla_concat_nd",
    "xla_recv_tpu_embedding_activations",
    "xla_recv_tpu_embedding_activations_v2",
    "xla_recv_tpu_embedding_deduplication_data",
    "xla_recv_tpu_embedding_deduplication_data_v2",
    "xla_send_tpu_embedding_gradients",
    "xla_send_tpu_embedding_gradients_v2",
    "xla_split_nd",
    *PARAMETER_OPS,
]


def __getattr__(name: str) -> Callable[..., Any]:
    # Made from OPTIMIZERS; a type checker learns here that they exist.
    if name not in PARAMETER_OPS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return PARAMETER_OPS[name]


def __dir__() -> list[str]:
    return __all__
