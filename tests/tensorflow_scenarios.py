"""Scenarios that together call every operation, with every kind of input and attribute.

A scenario gets a way to call operations, and returns what they returned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from anycore import EmbeddingConfig, FeatureConfig, TableConfig
from anycore.optimizers import OPTIMIZERS, Adagrad, DynamicInput, StochasticGradientDescent

Call = Callable[..., Any]
"""Calls the operation of a name with its inputs and attributes; returns its outputs as tf.raw_ops does."""
Scenario = Callable[[Call], Any]

NO_PARTS = tf.make_tensor_proto(np.empty((0, 2), np.int32)).SerializeToString()
UINT32, FLOAT = int(tf.uint32.as_datatype_enum), int(tf.float32.as_datatype_enum)


def serialized(*arguments: Any, **options: Any) -> bytes:
    """Returns an EmbeddingConfig as operations take it."""
    return EmbeddingConfig(*arguments, **options).to_proto().SerializeToString()


TABLES = [
    TableConfig("video", 10, 4, Adagrad(learning_rate=0.1)),
    TableConfig("user", 7, 2, StochasticGradientDescent(learning_rate=DynamicInput(0))),
]
BY_TABLE = serialized(
    [replace(table, num_features=count) for table, count in zip(TABLES, (2, 1), strict=True)],
    batch_size_per_tensor_core=3,
)
BY_FEATURE = serialized(TABLES, [FeatureConfig("watched", "video", [3]), FeatureConfig("friends", "user", [3])])


def integers(*values: Any, dtype: Any = np.int32) -> list[Any]:
    """Returns an array of integers for each value."""
    return [np.array(value, dtype) for value in values]


def floats(*values: Any) -> list[Any]:
    """Returns an array of float32 for each value."""
    return [np.array(value, np.float32) for value in values]


def initialisation(call: Call) -> Any:
    """The TPU system with and without embeddings, and the pipeline host by host."""
    found = [call("ConfigureDistributedTPU"), call("IsTPUEmbeddingInitialized")]
    call("ConfigureTPUEmbedding", config=BY_TABLE)
    found += [call("IsTPUEmbeddingInitialized", config=config) for config in (b"", BY_TABLE, BY_FEATURE)]
    call("ShutdownDistributedTPU")
    found += [call("ConfigureDistributedTPU", tpu_embedding_config=BY_FEATURE), call("ShutdownTPUSystem")]
    common = call("ExecuteTPUEmbeddingPartitioner", config=BY_FEATURE)
    memory = [call("ConfigureTPUEmbeddingMemory", common_config=common) for _ in range(2)]
    merged = call("CollateTPUEmbeddingMemory", memory_configs=memory)
    host = partial(call, "ConfigureTPUEmbeddingHost", common_config=common, memory_config=merged, config=BY_FEATURE)
    call("ConnectTPUEmbeddingHosts", network_configs=[host() for _ in range(2)])
    call("FinalizeTPUEmbedding", common_config=common, memory_config=merged)
    found.append(call("IsTPUEmbeddingInitialized", config=BY_FEATURE))
    found += call("FinalizeTPUEmbeddingV2", common_config=common, memory_config=merged)
    return found


def steps_by_table(call: Call) -> Any:
    """A step after each kind of enqueue whose inputs name tables."""
    call("ConfigureTPUEmbedding", config=BY_TABLE)
    found = []

    def step(enqueue: str, **arguments: Any) -> None:
        call(enqueue, mode_override="training", **arguments)
        activations = call("RecvTPUEmbeddingActivations", num_outputs=2, config=BY_TABLE)
        call("SendTPUEmbeddingGradients", inputs=activations, learning_rates=floats(0.25), config=BY_TABLE)
        found.append(activations)

    step("EnqueueTPUEmbeddingIntegerBatch", batch=integers([1, 2, 3, 4, 5, 6], [6, 0, 6]), device_ordinal=0)
    step(
        "EnqueueTPUEmbeddingSparseBatch",
        sample_indices=integers([0, 0, 5], [1, 1], dtype=np.int64),
        embedding_indices=integers([9, 9, 0], [3, 4], dtype=np.int64),
        aggregation_weights=floats([1, 2, 0.5], [1, 3]),
        combiners=["sum", "mean"],
    )
    three = {
        "embedding_indices": integers([1, 2, 3], [4], [6, 5], dtype=np.int64),
        "aggregation_weights": [np.array(w, np.float64) for w in ([1, 2, 3], [0.5], [1, -2])],
        "table_ids": [0, 0, 1],
        "combiners": [b"sum", b"sqrtn"],
    }
    indices = integers([[0, 0], [0, 1], [2, 0]], [[1, 0]], [[0, 0], [1, 0]])
    step("EnqueueTPUEmbeddingSparseTensorBatch", sample_indices=indices, num_features=[1, 1, 1], **three)
    splits = integers([0, 2, 2, 3], [0, 0, 1, 1], [0, 1, 1, 2])
    step("EnqueueTPUEmbeddingRaggedTensorBatch", sample_splits=splits, **three)
    three["aggregation_weights"] = floats([], [], [1, 2])
    step(
        "DynamicEnqueueTPUEmbeddingRaggedTensorBatch",
        sample_splits=splits,
        max_sequence_lengths=[1, 1, 0],
        num_features=[1, 1, 1],
        device_ordinal=np.int32(0),
        **three,
    )
    return found


def steps_by_feature(call: Call) -> Any:
    """A step after each kind of enqueue whose inputs name features, some with deduplicated ids."""
    call("ConfigureTPUEmbedding", config=BY_FEATURE)
    inputs = {
        "sample_indices_or_row_splits": integers([[0, 0], [2, 0], [2, 1]], [[0, 0], [1, 0]]),
        "embedding_indices": integers([1, 2, 9], [6, 5]),
        "aggregation_weights": floats([1, 2, 0.5], []),
        "mode_override": "unspecified",
    }
    found = []

    def step(version: str | None = None) -> None:
        if version is None:
            activations = call("RecvTPUEmbeddingActivations", num_outputs=2, config=BY_FEATURE)
            call("SendTPUEmbeddingGradients", inputs=activations, learning_rates=floats(0.25), config=BY_FEATURE)
            found.append(activations)
            return
        places = ("embedding_partitions", "hbm_buffers_config", "tpu_topology") if version else ()
        given = {"config": BY_FEATURE, **dict.fromkeys(places, b"")}
        found.append(call(f"ComputeDedupDataSize{version}", **given))
        found.append(call(f"ComputeDedupDataTupleMask{version}", **given))
        data = call(f"XlaRecvTPUEmbeddingDeduplicationData{version}", **given)
        parts = call(
            "SplitDedupData", input=data, integer_type=UINT32, float_type=FLOAT, tuple_mask=NO_PARTS, config=b""
        )
        found.extend(parts)
        data = call(
            "MergeDedupData", integer_tensor=parts[0], float_tensor=parts[1], tuple_mask=NO_PARTS, config=BY_FEATURE
        )
        xla = {"deduplication_data": data, **given}
        activations = call(f"XlaRecvTPUEmbeddingActivations{version}", num_tables=2, **xla)
        call(f"XlaSendTPUEmbeddingGradients{version}", gradients=activations, learning_rates=floats(0.5), **xla)
        found.append(activations)

    call("EnqueueTPUEmbeddingArbitraryTensorBatch", **inputs)
    step()
    inputs["sample_indices_or_row_splits"] = integers([0, 1, 1, 3], [0, 1, 1, 2])
    call("EnqueueTPUEmbeddingArbitraryTensorBatch", combiners=["sum", "mean"], device_ordinal=0, **inputs)
    step("")
    inputs["sample_indices_or_row_splits"] = integers([], [])
    call("DynamicEnqueueTPUEmbeddingArbitraryTensorBatch", device_ordinal=np.int32(0), **inputs)
    step("V2")
    return found


def parameters_of(algorithm: str) -> Scenario:
    """Returns the scenario that loads and retrieves the state variables of an algorithm, shard by shard."""
    optimizer = OPTIMIZERS[algorithm]
    table = TableConfig("t", 5, optimizer.only_dimension or 3, optimizer(), num_features=1)
    config = serialized([table], batch_size_per_tensor_core=1)

    def scenario(call: Call) -> Any:
        call("ConfigureTPUEmbedding", config=config)
        found = []
        for shard_id, rows in enumerate((3, 2)):
            names = ("parameters", *(slot.name for slot in optimizer.slots))
            values = np.random.default_rng(shard_id).random((len(names), rows, table.dimension), np.float32)
            given = dict(zip(names, values, strict=True))
            shard = {"num_shards": 2, "shard_id": shard_id, "config": config}
            call(f"LoadTPUEmbedding{optimizer.op_name}Parameters", table_name="t", **given, **shard)
            found.append(call(f"RetrieveTPUEmbedding{optimizer.op_name}Parameters", table_id=0, **shard))
        return found

    return scenario


def parameters_of_all_tables(call: Call) -> Any:
    """Loads and retrieves the state variables of all tables at once."""
    call("ConfigureTPUEmbedding", config=BY_TABLE)
    shard = {"config": BY_TABLE, "num_shards": 1, "shard_id": 0}
    lists = call("RetrieveAllTPUEmbeddingParameters", NumTables=2, **shard)
    names = ("parameters", *(f"auxiliary{k}" for k in range(1, 8)))
    given = dict(zip(names, lists, strict=True))
    given["parameters"] = floats(np.arange(40).reshape(10, 4), np.arange(14).reshape(7, 2))
    call("LoadAllTPUEmbeddingParameters", **given, **shard)
    return [lists, call("RetrieveAllTPUEmbeddingParameters", NumTables=2, **shard)]


def slices(call: Call) -> Any:
    """Splits and concatenates, and passes activations on."""
    whole = np.arange(9, dtype=np.float32).reshape(3, 3)
    parts = call("XlaSplitND", input=whole, N=4, num_splits=[2, 2], paddings=[1, 1])
    strings = call("XlaSplitND", input=np.array([b"a", b"\0b", b""], object), N=3, num_splits=[3])
    return [
        parts,
        call("XlaConcatND", inputs=parts, num_concats=[2, 2], paddings=[1, 1]),
        strings,
        call("XlaConcatND", inputs=strings, num_concats=[3]),
        call(
            "TPUEmbeddingActivations", embedding_variable=whole, sliced_activations=2 * whole, table_id=1, lookup_id=2
        ),
    ]


SCENARIOS: dict[str, Scenario] = {
    "initialisation": initialisation,
    "steps by table": steps_by_table,
    "steps by feature": steps_by_feature,
    "parameters of all tables": parameters_of_all_tables,
    "slices": slices,
    **{name: parameters_of(name) for name, optimizer in OPTIMIZERS.items() if optimizer.op_name},
}
