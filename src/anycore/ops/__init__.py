"""TensorFlow's TPU embedding operations by name, with their arguments, on NumPy arrays.

Names are TensorFlow's in snake case; argument names, order and defaults are those of TensorFlow 2.21. Tensors may be
anything with `__array__`, DLPack or plain sequences. Where TensorFlow places an operation on a device, a keyword `core`
names the core. `load_tpu_embedding_<algorithm>_parameters` and its `retrieve` twin exist for every algorithm that
has them there.
"""

from collections.abc import Callable
from typing import Any

from anycore.ops.enqueue import (
    dynamic_enqueue_tpu_embedding_arbitrary_tensor_batch,
    dynamic_enqueue_tpu_embedding_ragged_tensor_batch,
    enqueue_tpu_embedding_arbitrary_tensor_batch,
    enqueue_tpu_embedding_integer_batch,
    enqueue_tpu_embedding_ragged_tensor_batch,
    enqueue_tpu_embedding_sparse_batch,
    enqueue_tpu_embedding_sparse_tensor_batch,
)
from anycore.ops.parameters import (
    PARAMETER_OPS,
    load_all_tpu_embedding_parameters,
    retrieve_all_tpu_embedding_parameters,
)
from anycore.ops.recv_send import recv_tpu_embedding_activations, send_tpu_embedding_gradients
from anycore.ops.system import configure_tpu_embedding, is_tpu_embedding_initialized, shutdown_tpu_system

__all__ = [
    "configure_tpu_embedding",
    "dynamic_enqueue_tpu_embedding_arbitrary_tensor_batch",
    "dynamic_enqueue_tpu_embedding_ragged_tensor_batch",
    "enqueue_tpu_embedding_arbitrary_tensor_batch",
    "enqueue_tpu_embedding_integer_batch",
    "enqueue_tpu_embedding_ragged_tensor_batch",
    "enqueue_tpu_embedding_sparse_batch",
    "enqueue_tpu_embedding_sparse_tensor_batch",
    "is_tpu_embedding_initialized",
    "load_all_tpu_embedding_parameters",
    "recv_tpu_embedding_activations",
    "retrieve_all_tpu_embedding_parameters",
    "send_tpu_embedding_gradients",
    "shutdown_tpu_system",
    *PARAMETER_OPS,
]


def __getattr__(name: str) -> Callable[..., Any]:
    # Made from OPTIMIZERS; a type checker learns here that they exist.
    if name not in PARAMETER_OPS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return PARAMETER_OPS[name]


def __dir__() -> list[str]:
    return __all__
