"""The enqueue operations: the ids of one step of one core.

Each hands its inputs to `EmbeddingEngine.enqueue`; what a tensor may hold is said there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from anycore.arrays import as_array
from anycore.batch import Dense, Ragged, Sparse
from anycore.engine import EmbeddingEngine
from anycore.errors import InputError
from anycore.ops.system import engine_of, text


def enqueue_tpu_embedding_batch(
    batch: Sequence[Any], mode_override: Any, device_ordinal: int = -1, combiners: Sequence[Any] = ()
) -> NoReturn:
    """Raises NotImplementedError: the format of serialized batches is not published."""
    raise NotImplementedError(
        "enqueue_tpu_embedding_batch: the format of its serialized batches is not published; enqueue the tensors "
        "themselves, with enqueue_tpu_embedding_arbitrary_tensor_batch or another enqueue operation"
    )


def enqueue_tpu_embedding_integer_batch(batch: Sequence[Any], mode_override: Any, device_ordinal: int = -1) -> None:
    """Queues one id per activation row, int32 [B · num_features] per table.

    Raises: InputError; then nothing is queued.
    """
    engine = _engine("enqueue_tpu_embedding_integer_batch")
    for activation, ids in zip(engine.activations, batch, strict=False):
        count = as_array(ids, activation.name).size
        if count != activation.num_samples:
            raise InputError(
                f"table {activation.name!r}: an integer batch needs exactly {activation.num_samples} ids, got {count}"
            )
    _enqueue(engine, [Dense(ids) for ids in batch], mode_override, device_ordinal)


def enqueue_tpu_embedding_sparse_batch(
    sample_indices: Sequence[Any],
    embedding_indices: Sequence[Any],
    aggregation_weights: Sequence[Any],
    mode_override: Any,
    device_ordinal: int = -1,
    combiners: Sequence[Any] = (),
) -> None:
    """Queues ids with the activation row of each, b · num_features + f, one entry per table.

    Raises: InputError; then nothing is queued.
    """
    engine = _engine("enqueue_tpu_embedding_sparse_batch")
    inputs = _inputs(Sparse, "sample_indices", sample_indices, embedding_indices, aggregation_weights)
    _enqueue(engine, inputs, mode_override, device_ordinal, combiners=combiners)


def enqueue_tpu_embedding_sparse_tensor_batch(
    sample_indices: Sequence[Any],
    embedding_indices: Sequence[Any],
    aggregation_weights: Sequence[Any],
    mode_override: Any,
    table_ids: Sequence[int],
    device_ordinal: int = -1,
    combiners: Sequence[Any] = (),
    max_sequence_lengths: Sequence[int] = (),
    num_features: Sequence[int] = (),
) -> None:
    """Queues the parts of SparseTensors, one per feature.

    Raises: InputError; then nothing is queued.
    """
    engine = _engine("enqueue_tpu_embedding_sparse_tensor_batch")
    inputs = _inputs(Sparse, "sample_indices", sample_indices, embedding_indices, aggregation_weights)
    _enqueue(
        engine,
        inputs,
        mode_override,
        device_ordinal,
        combiners=combiners,
        table_ids=table_ids,
        max_sequence_lengths=max_sequence_lengths,
        num_features=num_features,
    )


def enqueue_tpu_embedding_ragged_tensor_batch(
    sample_splits: Sequence[Any],
    embedding_indices: Sequence[Any],
    aggregation_weights: Sequence[Any],
    mode_override: Any,
    table_ids: Sequence[int],
    device_ordinal: int = -1,
    combiners: Sequence[Any] = (),
    max_sequence_lengths: Sequence[int] = (),
    num_features: Sequence[int] = (),
) -> None:
    """Queues the parts of RaggedTensors, one per feature.

    Raises: InputError; then nothing is queued.
    """
    engine = _engine("enqueue_tpu_embedding_ragged_tensor_batch")
    inputs = _inputs(Ragged, "sample_splits", sample_splits, embedding_indices, aggregation_weights)
    _enqueue(
        engine,
        inputs,
        mode_override,
        device_ordinal,
        combiners=combiners,
        table_ids=table_ids,
        max_sequence_lengths=max_sequence_lengths,
        num_features=num_features,
    )


def enqueue_tpu_embedding_arbitrary_tensor_batch(
    sample_indices_or_row_splits: Sequence[Any],
    embedding_indices: Sequence[Any],
    aggregation_weights: Sequence[Any],
    mode_override: Any,
    device_ordinal: int = -1,
    combiners: Sequence[Any] = (),
) -> None:
    """Queues one input per feature: sparse where the first tensor has rank 2, ragged at 1, dense where it is empty.

    Raises: InputError; then nothing is queued.
    """
    engine = _engine("enqueue_tpu_embedding_arbitrary_tensor_batch")
    inputs = _inputs(
        _by_rank, "sample_indices_or_row_splits", sample_indices_or_row_splits, embedding_indices, aggregation_weights
    )
    _enqueue(engine, inputs, mode_override, device_ordinal, combiners=combiners)


def dynamic_enqueue_tpu_embedding_ragged_tensor_batch(
    sample_splits: Sequence[Any],
    embedding_indices: Sequence[Any],
    aggregation_weights: Sequence[Any],
    mode_override: Any,
    device_ordinal: Any,
    table_ids: Sequence[int],
    combiners: Sequence[Any] = (),
    max_sequence_lengths: Sequence[int] = (),
    num_features: Sequence[int] = (),
) -> None:
    """Does as `enqueue_tpu_embedding_ragged_tensor_batch`, on a core given as a tensor."""
    enqueue_tpu_embedding_ragged_tensor_batch(
        sample_splits,
        embedding_indices,
        aggregation_weights,
        mode_override,
        table_ids,
        _scalar("device_ordinal", device_ordinal),
        combiners,
        max_sequence_lengths,
        num_features,
    )


def dynamic_enqueue_tpu_embedding_arbitrary_tensor_batch(
    sample_indices_or_row_splits: Sequence[Any],
    embedding_indices: Sequence[Any],
    aggregation_weights: Sequence[Any],
    mode_override: Any,
    device_ordinal: Any,
    combiners: Sequence[Any] = (),
) -> None:
    """Does as `enqueue_tpu_embedding_arbitrary_tensor_batch`, on a core given as a tensor."""
    enqueue_tpu_embedding_arbitrary_tensor_batch(
        sample_indices_or_row_splits,
        embedding_indices,
        aggregation_weights,
        mode_override,
        _scalar("device_ordinal", device_ordinal),
        combiners,
    )


def _engine(op: str) -> EmbeddingEngine:
    return engine_of("", op, config_may_be_empty=True)


def _inputs(
    kind: Callable[..., Any], index_name: str, indices: Sequence[Any], ids: Sequence[Any], weights: Sequence[Any]
) -> list[Any]:
    if not len(indices) == len(ids) == len(weights):
        raise InputError(
            f"{index_name}, embedding_indices and aggregation_weights must be lists of one length, "
            f"got {len(indices)}, {len(ids)} and {len(weights)}"
        )
    return [
        kind(index, entry_ids, entry_weights)
        for index, entry_ids, entry_weights in zip(indices, ids, weights, strict=True)
    ]


def _by_rank(index: Any, ids: Any, weights: Any) -> Sparse | Ragged:
    return (Sparse if as_array(index, "sample_indices_or_row_splits").ndim > 1 else Ragged)(index, ids, weights)


def _enqueue(
    engine: EmbeddingEngine,
    inputs: list[Any],
    mode_override: Any,
    device_ordinal: int,
    *,
    combiners: Sequence[Any] = (),
    table_ids: Sequence[int] | None = None,
    max_sequence_lengths: Sequence[int] = (),
    num_features: Sequence[int] = (),
) -> None:
    engine.enqueue(
        inputs,
        combiners=[text(combiner) for combiner in combiners],
        table_ids=table_ids,
        max_sequence_lengths=max_sequence_lengths,
        num_features=num_features,
        # TensorFlow replaces -1 by the core of the replica; one machine starts at the first.
        core=0 if device_ordinal == -1 else device_ordinal,
        mode=None if mode_override is None else text(_scalar("mode_override", mode_override)),
    )


def _scalar(name: str, value: Any) -> Any:
    array = as_array(value, name)
    if array.size != 1:
        raise InputError(f"{name} must be a scalar, got shape {list(array.shape)}")
    return array.reshape(()).item()
