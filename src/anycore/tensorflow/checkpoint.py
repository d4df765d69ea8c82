"""State variables as TensorFlow's checkpoints see them: read from the engine when one is written, and never kept.

Source: `Trackable._serialize_to_tensors`, `_restore_from_tensors` and `_copy_trackable_to_cpu`, TensorFlow 2.21; the
names and keys are those of `tf.tpu.experimental.embedding.TPUEmbedding`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint.tensor_callable import Callable as DeferredTensor
from tensorflow.python.ops.resource_variable_ops import ResourceVariable
from tensorflow.python.saved_model.save_context import in_save_context
from tensorflow.python.trackable.base import VARIABLE_VALUE_KEY

from anycore.tensorflow.configuration import Table
from anycore.tensorflow.ownership import OwnedSystem


class TableState:
    """The state variables of one table, read together so that they are of one step."""

    def __init__(self, table: Table, system: OwnedSystem) -> None:
        self.table = table
        self._system = system
        self._retrieved: dict[str, tf.Tensor] = {}
        self._snapshot: tf.Variable | None = None

    def read(self, variable: str) -> tf.Tensor:
        """Returns the present value; in a graph, the value at the time when the graph runs.

        The first call retrieves all variables, which the next calls return, each once.
        """
        if not tf.executing_eagerly():
            return self._retrieve()[variable]
        if variable not in self._retrieved:
            self._retrieved = self._retrieve()
        return self._retrieved.pop(variable)

    def forget(self) -> None:
        """Drops what was retrieved and not read, so that the next read is of a later step."""
        self._retrieved = {}

    def write(self, variable: str, value: tf.Tensor) -> None:
        """Overwrites a variable. Raises: ValueError for another shape, or inside a graph."""
        if value.shape != self.table.shape:
            raise ValueError(
                f"Received incompatible tensor with shape {value.shape} when attempting to restore variable with shape "
                f"{self.table.shape} and name {variable} of table {self.table.name!r}"
            )
        if not tf.executing_eagerly():
            raise ValueError(f"table {self.table.name!r}: {variable} can be restored in eager mode alone")
        self._system.engine.load(self.table.name, {variable: np.asarray(value)})

    def snapshot(self) -> tf.Variable:
        """Returns a variable with the present parameters.

        In eager mode it is a new one; in a graph one that the graph brings up to date when it runs, or in a graph that
        is exported one with the parameters of now.
        """
        if tf.executing_eagerly() and not in_save_context():
            return self._new_snapshot()
        with tf.init_scope():
            if self._snapshot is None:
                self._snapshot = self._new_snapshot()
            elif in_save_context():
                self._snapshot.assign(self._retrieve()["parameters"])
        if not in_save_context():
            self._snapshot.assign(self._retrieve()["parameters"])
        return self._snapshot

    def _new_snapshot(self) -> tf.Variable:
        # Not tf.Variable, which a strategy would mirror, and of which a tf.function allows no new ones.
        return ResourceVariable(self._retrieve()["parameters"], name=self.table.name, trainable=False)

    def _retrieve(self) -> dict[str, tf.Tensor]:
        self._system.check()
        # The operation and not the engine, whose arrays TensorFlow would copy, and keep for a while.
        op = getattr(tf.raw_ops, f"RetrieveTPUEmbedding{self.table.kind.op_name}Parameters")
        values = op(table_name=self.table.name, num_shards=1, shard_id=0, config=self._system.config)
        names = ["parameters", *self.table.initial_slots]
        return dict(zip(names, values if len(names) > 1 else [values], strict=True))


class StateVariable(tf.__internal__.tracking.Trackable):
    """One state variable of a table as a part of a checkpoint."""

    def __init__(self, state: TableState, name: str) -> None:
        self._state = state
        self._name = name
        with tf.init_scope(), tf.device("CPU:0"):
            self._device = tf.zeros(()).device  # spelled as those of variables, so that one file holds them all

    def __repr__(self) -> str:
        # TensorFlow shows it where it is missing in a checkpoint.
        return f"<{self._name} of table {self._state.table.name!r}>"

    @property
    def shape(self) -> tf.TensorShape:
        """Rows and dimension of the table."""
        return tf.TensorShape(self._state.table.shape)

    def _serialize_to_tensors(self) -> dict[str, Any]:
        # Deferred, for restoring asks for the description alone.
        return {VARIABLE_VALUE_KEY: DeferredTensor(lambda: self._state.read(self._name), tf.float32, self._device)}

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]) -> None:
        self._state.write(self._name, restored_tensors[VARIABLE_VALUE_KEY])

    def _copy_trackable_to_cpu(self, object_map: Any) -> None:
        # For asynchronous checkpoints: while one is written, training goes on.
        if self not in object_map:
            with tf.init_scope():
                object_map[self] = tf.Variable(tf.zeros(self.shape), trainable=False)
        object_map[self].assign(self._state.read(self._name))
