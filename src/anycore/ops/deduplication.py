"""The operations with which TPU programs look up each id of a step once.

There the deduplicated ids travel to the program, beside the activations. Here they stay in the engine, which needs no
such help. So deduplication data is an empty tuple, written None (TensorFlow's kernels: an empty variant), and what
works with it gives the numbers of `recv_tpu_embedding_activations` and `send_tpu_embedding_gradients`. The arguments
that the operations of version 2 have besides say where a TPU keeps things; they are not looked at.

Source: the operations' definitions, TensorFlow 2.21.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import DTypeLike, NDArray

from anycore.arrays import as_array
from anycore.config import parse
from anycore.errors import InputError
from anycore.ops.recv_send import receive
from anycore.ops.system import engine_of
from anycore.proto import TensorProto

# Numbers of `DataType`, types.proto, TensorFlow 2.21. NumPy has no bfloat16: two bytes stand for it.
INTEGER_TYPES: dict[int, DTypeLike] = {3: np.int32, 9: np.int64, 22: np.uint32, 23: np.uint64}
FLOAT_TYPES: dict[int, DTypeLike] = {19: np.float16, 14: np.dtype("V2"), 1: np.float32}


def compute_dedup_data_size(config: Any) -> np.int32:
    """Returns 0, the number of elements of the tuple. Raises: ConfigError when `config` is empty or malformed."""
    parse(config)
    return np.int32(0)


def compute_dedup_data_size_v2(
    config: Any, embedding_partitions: Any, hbm_buffers_config: Any, tpu_topology: Any
) -> np.int32:
    """Does as `compute_dedup_data_size`."""
    return compute_dedup_data_size(config)


def compute_dedup_data_tuple_mask(config: Any) -> NDArray[np.int32]:
    """Returns type and length of the tuple's parts, int32 [0, 2]. Raises: ConfigError as above."""
    parse(config)
    return np.empty((0, 2), np.int32)


def compute_dedup_data_tuple_mask_v2(
    config: Any, embedding_partitions: Any, hbm_buffers_config: Any, tpu_topology: Any
) -> NDArray[np.int32]:
    """Does as `compute_dedup_data_tuple_mask`."""
    return compute_dedup_data_tuple_mask(config)


def xla_recv_tpu_embedding_deduplication_data(config: Any) -> None:
    """Returns the empty tuple.

    Raises: CallOrderError when nothing is configured; ConfigError when `config` is another one.
    """
    engine_of(config, "xla_recv_tpu_embedding_deduplication_data")


def xla_recv_tpu_embedding_deduplication_data_v2(
    config: Any, embedding_partitions: Any, hbm_buffers_config: Any, tpu_topology: Any
) -> None:
    """Does as `xla_recv_tpu_embedding_deduplication_data`."""
    engine_of(config, "xla_recv_tpu_embedding_deduplication_data_v2")


def xla_recv_tpu_embedding_activations(
    deduplication_data: None,
    num_tables: int,
    config: Any,
    *,
    core: int = 0,
    out: Sequence[NDArray[np.float32]] | None = None,
) -> Sequence[NDArray[np.float32]]:
    """Does as `recv_tpu_embedding_activations`; `num_tables` is the number of features where the config has some."""
    return _receive("xla_recv_tpu_embedding_activations", deduplication_data, num_tables, config, core, out)


def xla_recv_tpu_embedding_activations_v2(
    deduplication_data: None,
    num_tables: int,
    config: Any,
    embedding_partitions: Any,
    hbm_buffers_config: Any,
    tpu_topology: Any,
    *,
    core: int = 0,
    out: Sequence[NDArray[np.float32]] | None = None,
) -> Sequence[NDArray[np.float32]]:
    """Does as `xla_recv_tpu_embedding_activations`."""
    return _receive("xla_recv_tpu_embedding_activations_v2", deduplication_data, num_tables, config, core, out)


def xla_send_tpu_embedding_gradients(
    gradients: Sequence[Any], learning_rates: Sequence[Any], deduplication_data: None, config: Any, *, core: int = 0
) -> None:
    """Does as `send_tpu_embedding_gradients`."""
    _send("xla_send_tpu_embedding_gradients", gradients, learning_rates, deduplication_data, config, core)


def xla_send_tpu_embedding_gradients_v2(
    gradients: Sequence[Any],
    learning_rates: Sequence[Any],
    deduplication_data: None,
    config: Any,
    embedding_partitions: Any,
    hbm_buffers_config: Any,
    tpu_topology: Any,
    *,
    core: int = 0,
) -> None:
    """Does as `xla_send_tpu_embedding_gradients`."""
    _send("xla_send_tpu_embedding_gradients_v2", gradients, learning_rates, deduplication_data, config, core)


def split_dedup_data(
    input: None, integer_type: int, float_type: int, tuple_mask: bytes, config: Any = ""
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the tuple's integers and floats: two empty arrays [0] of the types, given as numbers of `DataType`.

    Raises: InputError for another type, for data, or for a mask of parts.
    """
    _check_empty("split_dedup_data: input", input)
    _check_no_parts("split_dedup_data", tuple_mask)
    return _empty("integer_type", integer_type, INTEGER_TYPES), _empty("float_type", float_type, FLOAT_TYPES)


def merge_dedup_data(integer_tensor: Any, float_tensor: Any, tuple_mask: bytes, config: Any = "") -> None:
    """Returns the tuple of the integers and floats, of which there must be none.

    Raises: InputError for data or for a mask of parts.
    """
    _check_no_parts("merge_dedup_data", tuple_mask)
    for name, tensor in (("integer_tensor", integer_tensor), ("float_tensor", float_tensor)):
        shape = list(as_array(tensor, name).shape)
        if shape != [0]:
            raise InputError(
                f"merge_dedup_data: {name} must have shape [0], for tuple_mask indicates an empty tuple, got {shape}"
            )


def _receive(
    op: str,
    deduplication_data: None,
    num_tables: int,
    config: Any,
    core: int,
    out: Sequence[NDArray[np.float32]] | None,
) -> Sequence[NDArray[np.float32]]:
    _check_empty(f"{op}: deduplication_data", deduplication_data)
    return receive(op, "num_tables", num_tables, config, core, out)


def _send(
    op: str, gradients: Sequence[Any], learning_rates: Sequence[Any], deduplication_data: None, config: Any, core: int
) -> None:
    _check_empty(f"{op}: deduplication_data", deduplication_data)
    engine_of(config, op).send_gradients(gradients, learning_rates, core)


def _empty(name: str, data_type: int, dtypes: dict[int, DTypeLike]) -> NDArray[Any]:
    if data_type not in dtypes:
        raise InputError(f"split_dedup_data: {name} must be one of {sorted(dtypes)} (DataType), got {data_type!r}")
    return np.empty(0, dtypes[data_type])


def _check_empty(what: str, data: None) -> None:
    if data is not None:
        raise InputError(f"{what} must be None, what xla_recv_tpu_embedding_deduplication_data returns, got {data!r}")


def _check_no_parts(op: str, tuple_mask: bytes) -> None:
    try:
        axes = TensorProto.FromString(tuple_mask).tensor_shape.dim
    except DecodeError as error:
        raise InputError(f"{op}: Malformed tuple_mask: {error}") from error
    if axes and axes[0].size:
        raise InputError(
            f"{op}: tuple_mask describes {axes[0].size} parts, but deduplication data is always empty here; "
            "use the mask that compute_dedup_data_tuple_mask returns"
        )
