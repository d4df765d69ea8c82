"""The ways to train TensorFlow's tables here, behind one interface: the class, and operations by feature or by table.

The operations are called with what TensorFlow's own objects say, through no code of ours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import TPUEmbeddingConfiguration
from tensorflow_embeddings import embedding

from anycore.tensorflow import TPUEmbedding, register_kernels

Features = Mapping[str, Any]
"""FeatureConfig objects by name, on tables that have names and optimizers."""
Shapes = Mapping[str, Sequence[int]]
"""Output shapes by the name of the feature."""
Tensors = Mapping[str, Any]

ALGORITHMS = {
    embedding.SGD: "StochasticGradientDescent",
    embedding.Adagrad: "Adagrad",
    embedding.AdagradMomentum: "AdagradMomentum",
    embedding.FTRL: "FTRL",
    embedding.Adam: "ADAM",
}
"""The names of optimizers in those of the operations that load and retrieve their variables."""

TRAINING = 2


def tables_of(features: Features) -> list[Any]:
    """Returns the tables in the order of their first use by the features, which are in the order of their names."""
    return list(dict.fromkeys(features[name].table for name in sorted(features)))


def learning_rates_of(features: Features) -> list[Callable[[], Any]]:
    """Returns the learning rates that are functions; the position of one is its tag."""
    rates = [table.optimizer.learning_rate for table in tables_of(features)]
    return list(dict.fromkeys(rate for rate in rates if callable(rate)))


def initial_variables(table: Any) -> dict[str, np.ndarray]:
    """Returns parameters and slots as TensorFlow would start them."""
    shape = (table.vocabulary_size, table.dim)
    names = ["parameters", *table.optimizer._slot_names()]
    initializers = [table.initializer, *table.optimizer._slot_initializers()]
    return {
        name: np.asarray(initializer(shape, tf.float32)) for name, initializer in zip(names, initializers, strict=True)
    }


def configuration(features: Features, shapes: Shapes, cores: int = 1) -> TPUEmbeddingConfiguration:
    """Returns the message that TensorFlow makes of its objects, for features in the order of their names."""
    tables, rates = tables_of(features), learning_rates_of(features)
    message = TPUEmbeddingConfiguration(mode=TRAINING, num_hosts=1, num_tensor_cores=cores)
    for table in tables:
        table.optimizer.low_dimensional_packing_status = 0  # False, which protobuf 7 refuses for an enum
        table._set_table_descriptor(message.table_descriptor.add(), 1, {rate: tag for tag, rate in enumerate(rates)})
    for name in sorted(features):
        message.feature_descriptor.add(
            name=name, table_id=tables.index(features[name].table), input_shape=list(shapes[name])
        )
    return message


class Interface(ABC):
    """Makes, looks up and trains the tables of some features."""

    def __init__(self, features: Features, shapes: Shapes) -> None:
        self.features, self.shapes = features, shapes
        self.names, self.tables = sorted(features), tables_of(features)

    @abstractmethod
    def enqueue(self, inputs: Tensors, weights: Tensors | None = None, training: bool = True) -> None:
        """Queues tensors of any kind by the name of their feature."""

    @abstractmethod
    def dequeue(self) -> dict[str, tf.Tensor]:
        """Returns the activations by the name of their feature, each of its output shape and its table's dimension."""

    @abstractmethod
    def apply_gradients(self, gradients: Tensors) -> None:
        """Sends the gradients of the activations."""

    def variables(self) -> dict[str, dict[str, np.ndarray]]:
        """Returns parameters and slots by the name of the table."""
        found = {}
        for table in self.tables:
            names = ["parameters", *table.optimizer._slot_names()]
            retrieve = getattr(tf.raw_ops, f"RetrieveTPUEmbedding{ALGORITHMS[type(table.optimizer)]}Parameters")
            values = retrieve(table_name=table.name, num_shards=1, shard_id=0)
            values = [values] if len(names) == 1 else values
            found[table.name] = {name: value.numpy() for name, value in zip(names, values, strict=True)}
        return found


class OfClass(Interface):
    """anycore.tensorflow.TPUEmbedding."""

    def __init__(self, features: Features, shapes: Shapes) -> None:
        super().__init__(features, shapes)
        self.embedding = TPUEmbedding(dict(features), None)
        if any(len(shape) > 1 for shape in shapes.values()):  # else the first inputs say it all
            self.embedding.build({name: tf.TensorShape([*shape, None]) for name, shape in shapes.items()})

    def enqueue(self, inputs: Tensors, weights: Tensors | None = None, training: bool = True) -> None:
        self.embedding.enqueue(inputs, weights, training=training)

    def dequeue(self) -> dict[str, tf.Tensor]:
        return self.embedding.dequeue()

    def apply_gradients(self, gradients: Tensors) -> None:
        self.embedding.apply_gradients(gradients)


class RawOps(Interface):
    """The operations of tf.raw_ops."""

    integers: ClassVar[Any] = tf.int64
    cores: ClassVar[int] = 1
    core = 0
    """The core that enqueues next; those that receive and send are devices."""

    def __init__(self, features: Features, shapes: Shapes) -> None:
        super().__init__(features, shapes)
        self.config = self._configuration().SerializeToString()
        self.outputs = len(self.names)
        self.combiners = [table.combiner for table in self.tables]
        register_kernels()
        tf.raw_ops.ConfigureTPUEmbedding(config=self.config)
        for table in self.tables:
            load = getattr(tf.raw_ops, f"LoadTPUEmbedding{ALGORITHMS[type(table.optimizer)]}Parameters")
            load(table_name=table.name, num_shards=1, shard_id=0, config=self.config, **initial_variables(table))

    def enqueue(self, inputs: Tensors, weights: Tensors | None = None, training: bool = True) -> None:
        weights = weights or {}
        self._enqueue(
            [inputs[name] for name in self.names],
            [weights.get(name) for name in self.names],
            "train" if training else "inference",
        )

    def dequeue(self) -> dict[str, tf.Tensor]:
        received = tf.raw_ops.RecvTPUEmbeddingActivations(num_outputs=self.outputs, config=self.config)
        return dict(zip(self.names, self._by_name(received), strict=True))

    def apply_gradients(self, gradients: Tensors) -> None:
        tf.raw_ops.SendTPUEmbeddingGradients(
            inputs=self._as_received([gradients[name] for name in self.names]),
            learning_rates=[tf.cast(rate(), tf.float32) for rate in learning_rates_of(self.features)],
            config=self.config,
        )

    def _configuration(self) -> TPUEmbeddingConfiguration:
        return configuration(self.features, self.shapes, self.cores)

    @abstractmethod
    def _enqueue(self, inputs: list[Any], weights: list[Any], mode: str) -> None:
        """Calls an operation with inputs, and weights or None, in the order of their names."""

    def _by_name(self, received: list[tf.Tensor]) -> list[tf.Tensor]:
        return received

    def _as_received(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        return gradients

    def _lists(self, triples: list[tuple[Any, Any, Any]]) -> list[list[tf.Tensor]]:
        """Returns indices, ids and weights of all inputs, each as a list of tensors of one type."""
        types = (self.integers, self.integers, tf.float32)
        lists = zip(*triples, strict=True)
        return [[tf.cast(part, kind) for part in parts] for parts, kind in zip(lists, types, strict=True)]


def ids_of(tensor: Any) -> tf.Tensor:
    """Returns the ids of an input of any kind, flat."""
    return tf.reshape(tensor, [-1]) if isinstance(tensor, tf.Tensor) else tensor.values


def weights_of(weight: Any) -> Any:
    """Returns the weights, flat; empty where all are 1."""
    return [] if weight is None else weight.values


class ByFeature(RawOps):
    """Operations with a configuration of features: EnqueueTPUEmbeddingArbitraryTensorBatch takes all kinds."""

    def _enqueue(self, inputs: list[Any], weights: list[Any], mode: str) -> None:
        indices, ids, aggregation_weights = self._lists(
            [
                (self._index(name, tensor), ids_of(tensor), weights_of(weight))
                for name, tensor, weight in zip(self.names, map(self._cut, self.names, inputs), weights, strict=True)
            ]
        )
        tf.raw_ops.EnqueueTPUEmbeddingArbitraryTensorBatch(
            sample_indices_or_row_splits=indices,
            embedding_indices=ids,
            aggregation_weights=aggregation_weights,
            mode_override=mode,
            device_ordinal=self.core,
            combiners=self.combiners,
        )

    def _cut(self, name: str, tensor: Any) -> Any:
        if isinstance(tensor, tf.RaggedTensor) and self.features[name].max_sequence_length == 1:
            return tensor[:, :1]  # a ragged row for each row of the output is combined
        return tensor

    def _index(self, name: str, tensor: Any) -> Any:
        if isinstance(tensor, tf.RaggedTensor):
            return tensor.row_splits
        if isinstance(tensor, tf.Tensor):
            return []
        # The position in a sequence becomes an axis of the output; another one has to be there to be reduced.
        return tf.pad(tensor.indices, [[0, 0], [0, int(self.features[name].max_sequence_length > 0)]])


def places(tensor: Any, shape: Sequence[int]) -> tf.Tensor:
    """Returns [n, 2]: the row, in all axes but the last, and the position in it of each id that is not dense."""
    if isinstance(tensor, tf.RaggedTensor):
        rows = tensor.value_rowids()
        return tf.stack([rows, tf.range(tf.size(rows, tf.int64)) - tf.gather(tensor.row_starts(), rows)], axis=1)
    axes = shape[: tensor.shape.rank - 1]
    strides = [prod(axes[axis + 1 :]) for axis in range(len(axes))]
    rows = tf.reduce_sum(tensor.indices[:, :-1] * strides, axis=1)
    return tf.stack([rows, tensor.indices[:, -1]], axis=1)


class ByTable(RawOps):
    """Operations with a configuration of tables alone, which share out their rows among the features."""

    integers = tf.int32

    def __init__(self, features: Features, shapes: Shapes) -> None:
        self.batch_size = max(shape[0] for shape in shapes.values())
        self.widths = {name: prod(shape) // self.batch_size for name, shape in shapes.items()}
        super().__init__(features, shapes)
        self.outputs = len(self.tables)
        self.table_ids = [self.tables.index(features[name].table) for name in self.names]

    def _configuration(self) -> TPUEmbeddingConfiguration:
        message = super()._configuration()
        message.batch_size_per_tensor_core = self.batch_size
        for feature in message.feature_descriptor:
            message.table_descriptor[feature.table_id].num_features += self.widths[feature.name]
        del message.feature_descriptor[:]
        return message

    def _of_table(self, table: int) -> list[int]:
        """Returns the numbers of its features."""
        return [number for number, table_id in enumerate(self.table_ids) if table_id == table]

    def _enqueue(self, inputs: list[Any], weights: list[Any], mode: str) -> None:
        if all(isinstance(tensor, tf.Tensor) for tensor in inputs):
            rows = [tf.reshape(tensor, [self.batch_size, -1]) for tensor in inputs]
            tf.raw_ops.EnqueueTPUEmbeddingIntegerBatch(
                batch=[
                    tf.cast(tf.reshape(tf.concat([rows[k] for k in self._of_table(table)], 1), [-1]), tf.int32)
                    for table in range(self.outputs)
                ],
                mode_override=mode,
                device_ordinal=self.core,
            )
            return
        entries = zip(self.names, inputs, weights, strict=True)
        if all(isinstance(tensor, tf.RaggedTensor) for tensor in inputs):
            operation, index = tf.raw_ops.EnqueueTPUEmbeddingRaggedTensorBatch, "sample_splits"
            triples = [(tensor.row_splits, tensor.values, weights_of(weight)) for _, tensor, weight in entries]
        else:
            operation, index = tf.raw_ops.EnqueueTPUEmbeddingSparseTensorBatch, "sample_indices"
            triples = [
                (
                    [] if isinstance(tensor, tf.Tensor) else places(tensor, self.shapes[name]),
                    ids_of(tensor),
                    weights_of(weight),
                )
                for name, tensor, weight in entries
            ]
        indices, ids, aggregation_weights = self._lists(triples)
        lengths = [self.features[name].max_sequence_length for name in self.names]
        operation(
            **{index: indices},
            embedding_indices=ids,
            aggregation_weights=aggregation_weights,
            mode_override=mode,
            device_ordinal=self.core,
            combiners=self.combiners,
            table_ids=self.table_ids,
            max_sequence_lengths=lengths,
            num_features=[
                self.widths[name] // max(1, length) for name, length in zip(self.names, lengths, strict=True)
            ],
        )

    def _by_name(self, received: list[tf.Tensor]) -> list[tf.Tensor]:
        found: dict[int, tf.Tensor] = {}
        for table, activations in enumerate(received):
            numbers = self._of_table(table)
            sizes = [self.widths[self.names[number]] for number in numbers]
            dimension = self.tables[table].dim
            parts = tf.split(tf.reshape(activations, [self.batch_size, -1, dimension]), sizes, axis=1)
            for number, part in zip(numbers, parts, strict=True):
                found[number] = tf.reshape(part, [*self.shapes[self.names[number]], dimension])
        return [found[number] for number in range(len(self.names))]

    def _as_received(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        dimensions = [table.dim for table in self.tables]
        return [
            tf.reshape(
                tf.concat(
                    [tf.reshape(gradients[k], [self.batch_size, -1, dimension]) for k in self._of_table(table)], 1
                ),
                [-1, dimension],
            )
            for table, dimension in enumerate(dimensions)
        ]


class ByRow(ByTable):
    """As ByTable; EnqueueTPUEmbeddingSparseBatch takes all kinds, as ids and the rows of activations they add to."""

    def _enqueue(self, inputs: list[Any], weights: list[Any], mode: str) -> None:
        cells, ids, aggregation_weights = [], [], []
        for table in range(self.outputs):
            numbers = self._of_table(table)
            starts = np.cumsum([0, *(self.widths[self.names[number]] for number in numbers)])
            parts = [
                self._part(self.names[number], inputs[number], weights[number], int(start), int(starts[-1]))
                for number, start in zip(numbers, starts[:-1], strict=True)
            ]
            table_cells, table_ids, table_weights = (tf.concat(each, 0) for each in zip(*parts, strict=True))
            order = tf.argsort(table_cells, stable=True)
            cells.append(tf.gather(table_cells, order))
            ids.append(tf.gather(table_ids, order))
            aggregation_weights.append(tf.gather(table_weights, order))
        tf.raw_ops.EnqueueTPUEmbeddingSparseBatch(
            sample_indices=cells,
            embedding_indices=ids,
            aggregation_weights=aggregation_weights,
            mode_override=mode,
            device_ordinal=self.core,
            combiners=self.combiners,
        )

    def _part(self, name: str, tensor: Any, weight: Any, start: int, num_features: int) -> tuple[Any, Any, Any]:
        """Returns cells, ids and weights of a feature that begins at a row of the table's in each sample."""
        ids = tf.cast(ids_of(tensor), tf.int64)
        weights = tf.ones_like(ids, tf.float32) if weight is None else tf.cast(weight.values, tf.float32)
        width, length = self.widths[name], self.features[name].max_sequence_length
        if isinstance(tensor, tf.Tensor):
            rows = tf.range(tf.size(ids, tf.int64))
        else:
            rows, positions = tf.unstack(places(tensor, self.shapes[name]), axis=1)
            if length:
                rows = rows * length + positions
                rows, ids, weights = (tf.boolean_mask(each, positions < length) for each in (rows, ids, weights))
        return rows // width * num_features + start + rows % width, ids, weights


INTERFACES: list[type[Interface]] = [OfClass, ByFeature, ByTable, ByRow]
