"""`TPUEmbedding` of TensorFlow, training without a TPU."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from tensorflow.python.util.nest import flatten_with_joined_string_paths

from anycore.tensorflow.checkpoint import StateVariable, TableState
from anycore.tensorflow.configuration import dynamic_learning_rates, embedding_config, table_configs, tables_of
from anycore.tensorflow.initial_values import load_initial_values
from anycore.tensorflow.inputs import op_inputs
from anycore.tensorflow.mode_pass import mark, mode_of_call
from anycore.tensorflow.ownership import OwnedSystem
from anycore.tensorflow.replicas import Replicas
from anycore.tensorflow.shapes import (
    check_consistent,
    check_fully_defined,
    input_shape,
    merged,
    output_shapes,
    output_shapes_of_batch_size,
)

_Method = TypeVar("_Method", bound=Callable[..., Any])
_as_written: Callable[[_Method], _Method] = tf.autograph.experimental.do_not_convert
_untracked: Callable[[_Method], _Method] = tf.__internal__.tracking.no_automatic_dependency_tracking

_log = logging.getLogger("anycore")

_ENQUEUED = "anycore_enqueued"
"""The collection of a graph that holds its enqueue operations."""


# A subclass, for TensorFlow's checkpoints know their embeddings by class: a TPU loads its tables from a checkpoint that
# was written here because the checkpoint says so. Nothing of the base class but that is used.
class TPUEmbedding(tf.tpu.experimental.embedding.TPUEmbedding):
    """Embedding tables that are looked up and trained on CPUs, with the interface of TensorFlow's class of that name.

    `feature_config` is any nest of tf.tpu.experimental.embedding.FeatureConfig, `optimizer` one of the optimizers there
    (SGD, Adagrad, AdagradMomentum, FTRL, Adam), for all tables without one of their own. None of these objects is
    changed. With `pipeline_execution_with_tensor_core` an update takes effect after the next step's lookup.

    A training step calls `enqueue`, `dequeue` and `apply_gradients`, in eager mode or in a tf.function. It works
    without a strategy and in the scope of OneDeviceStrategy and MirroredStrategy on CPU devices. There each replica is
    a core: `dequeue` and `apply_gradients` are called inside `strategy.run`, `enqueue` there or outside. Gradients of
    all replicas are summed and never averaged.

    A tf.train.Checkpoint saves and restores tables and slots under the keys of TensorFlow's class.

    Different from a TPU:
    - A call out of order raises after a timeout, where a TPU hangs; an id out of range raises.
    - In one tf.function operations run in the order in which they stand: a `dequeue` before its `enqueue` times out.
    - In eager mode and in a function that is saved and loaded `training` of `enqueue` decides, whatever `name` says.
    - `embedding_tables` can be read while training; it returns copies.
    - `enqueue` may be called in eager mode, in control flow and in nested functions, with any tensors.
    - `device` of `enqueue` may name a CPU too.

    Raises: ValueError for an optimizer, a combiner or a data type that is not supported, for tables of one name, and
    for a strategy whose devices are not CPUs; ConfigError for a hyper-parameter out of range.
    Source: `tf.tpu.experimental.embedding.TPUEmbedding`, TensorFlow 2.21.
    """

    @_untracked
    def __init__(self, feature_config: Any, optimizer: Any, pipeline_execution_with_tensor_core: bool = False) -> None:
        self._feature_config = feature_config
        self._optimizer = optimizer
        self._pipeline_execution_with_tensor_core = pipeline_execution_with_tensor_core
        self._paths, self._features = _flattened(feature_config)
        self._tables = tables_of(self._features, optimizer)
        self._table_config = [table.config for table in self._tables]
        table_configs(self._tables)  # refuses hyper-parameters now and not at the first batch
        self._learning_rates = dynamic_learning_rates(self._tables)
        self._output_shapes = [feature.output_shape for feature in self._features]
        self._replicas = Replicas(tf.distribute.get_strategy())
        self._states: dict[str, TableState] = {}
        self._own_slots: dict[str, dict[str, tf.Variable]] = {}
        self._built = False

    @_as_written
    def build(self, per_replica_input_shapes: Any = None, per_replica_batch_size: int | None = None) -> None:
        """Makes the tables; the first `enqueue` does it with the shapes of its inputs.

        `per_replica_input_shapes` is a nest of tf.TensorShape like `feature_config`, or a batch size. The
        `output_shape` of a FeatureConfig goes before them. The shapes hold from then on, in training and evaluation.

        Raises: ValueError for shapes that contradict each other or leave something open; RuntimeError while another
        TPUEmbedding has the embedding system, or without eager execution.
        """
        if self._built:
            return
        with tf.init_scope():
            if not tf.executing_eagerly():
                raise RuntimeError("TPUEmbedding needs eager execution; use the operations of tf.raw_ops without it.")
            shapes = self._shapes_to_build(per_replica_input_shapes, per_replica_batch_size)
            config = embedding_config(
                self._tables,
                self._features,
                self._paths,
                shapes,
                num_tensor_cores=len(self._replicas.cores),
                pipeline_execution_with_tensor_core=self._pipeline_execution_with_tensor_core,
            )
            self._system = OwnedSystem(self, config.to_proto().SerializeToString())
            try:
                self._make_state_variables()
            except BaseException:
                self._system.shut_down()
                raise
            self._output_shapes[:] = shapes
            self._built = True

    @_as_written
    def enqueue(
        self,
        features: Any,
        weights: Any = None,
        training: Any = True,
        name: str | None = None,
        device: str | None = None,
    ) -> None:
        """Queues the ids of one step.

        `features` is a nest like `feature_config` of tf.Tensor, tf.SparseTensor and tf.RaggedTensor; `weights` one of
        the same kinds, with None where all weights are 1. Outside `strategy.run` it may hold distributed values, of
        which each replica's are queued for its core. With `device` it is queued for the core of that number alone.
        `training`, a bool or a bool tensor, says whether `apply_gradients` will follow. In a tf.function a `name` says
        it instead: the step trains if the outermost function has an `apply_gradients` of that name, and else it does
        not.

        Raises: TypeError or ValueError for another structure, kind or shape; RuntimeError as `build` does. Ids and
        weights are checked by the operation, which raises tf.errors.InvalidArgumentError. A function that enqueues
        twice under one name raises ValueError when it is called.
        """
        tf.nest.assert_same_structure(self._feature_config, features)
        inputs = tf.nest.flatten(features)
        flat_weights = [None] * len(inputs)
        if weights is not None:
            tf.nest.assert_same_structure(self._feature_config, weights)
            flat_weights = tf.nest.flatten(weights)
        parts = self._parts(inputs, flat_weights, device)
        _, first_inputs, _ = parts[0]
        shapes = [input_shape(*each) for each in zip(self._paths, self._features, first_inputs, strict=True)]
        if not self._built:
            self.build(shapes)
        self._system.check()
        check_consistent(self._paths, self._output_shapes, output_shapes(self._features, shapes))
        mode = _mode(training, name)
        tensors = [(core, self._op_inputs(core_inputs, core_weights)) for core, core_inputs, core_weights in parts]
        for core, op_tensors in tensors:  # all are made before the first is queued
            self._enqueue(core, op_tensors, mode, name)

    @_as_written
    def dequeue(self, name: str | None = None) -> Any:
        """Returns the activations of the step, a nest like `feature_config` of float32 [*output shape, dimension].

        Raises: RuntimeError before `build`, or outside `strategy.run` with several replicas. The operation raises
        tf.errors.DeadlineExceededError where nothing is enqueued in time.
        """
        core = self._core_to("dequeue")
        with tf.device(f"CPU:{core}"), _after_enqueues():
            activations = tf.raw_ops.RecvTPUEmbeddingActivations(
                num_outputs=len(self._features), config=self._system.config, name=name
            )
        if name is not None and not tf.executing_eagerly():
            mark(activations[0].op, name)
        return tf.nest.pack_sequence_as(self._feature_config, activations)

    @_as_written
    def apply_gradients(self, gradients: Any, name: str | None = None) -> None:
        """Updates the tables once the gradients of all replicas are there.

        `gradients` is a nest like `feature_config` of the gradients of the activations. None stands for zeros, which
        for optimizers with momentum or decay is not the same as no update.

        Raises: TypeError or ValueError for another structure, type or shape; RuntimeError as `dequeue` does. The
        operation raises tf.errors.FailedPreconditionError where no training step waits for gradients.
        """
        core = self._core_to("apply_gradients")
        tf.nest.assert_same_structure(self._feature_config, gradients)
        shapes = [
            [*shape.as_list(), feature.table.dim]
            for shape, feature in zip(self._output_shapes, self._features, strict=True)
        ]
        inputs = [
            _gradient(path, gradient, shape)
            for path, gradient, shape in zip(self._paths, tf.nest.flatten(gradients), shapes, strict=True)
        ]
        rates = [tf.cast(rate(), tf.float32) for rate in self._learning_rates]
        with tf.device(f"CPU:{core}"):
            op = tf.raw_ops.SendTPUEmbeddingGradients(
                inputs=inputs, learning_rates=rates, config=self._system.config, name=name
            )
        if name is not None and op is not None:
            mark(op, name)

    @property
    @_as_written
    def embedding_tables(self) -> dict[Any, tf.Variable]:
        """The present parameters of each TableConfig, as a tf.Variable that is a copy.

        In eager mode it is a new one. In a tf.function it is one that is brought up to date whenever the function runs;
        in a function that tf.saved_model.save exports, it is what is saved.

        Raises: as `build` does, where that has not been called.
        """
        self.build()
        return {table.config: self._states[table.name].snapshot() for table in self._tables}

    def _shapes_to_build(
        self, per_replica_input_shapes: Any, per_replica_batch_size: int | None
    ) -> list[tf.TensorShape]:
        shapes = self._output_shapes
        batch_size = per_replica_batch_size if per_replica_input_shapes is None else per_replica_input_shapes
        if isinstance(batch_size, int | np.integer):
            shapes = output_shapes_of_batch_size(self._features, int(batch_size))
        elif per_replica_input_shapes is not None:
            input_shapes = tf.nest.flatten(per_replica_input_shapes)
            tf.nest.assert_same_structure(self._features, tuple(input_shapes))
            shapes = output_shapes(self._features, input_shapes)
        shapes = merged(self._paths, self._output_shapes, shapes)
        check_fully_defined(self._paths, shapes)
        return shapes

    def _make_state_variables(self) -> None:
        """Gives the tables their starting values, or those of a checkpoint restored before, and tracks them."""
        variables: dict[str, dict[str, Any]] = {}
        for table in self._tables:
            self._own_slots[table.name] = load_initial_values(self._system.engine, table)
            self._states[table.name] = TableState(table, self._system)
            variables[table.name] = dict(self._own_slots[table.name])
            for name in ("parameters", *table.initial_slots):
                if name not in variables[table.name]:
                    variables[table.name][name] = variable = StateVariable(self._states[table.name], name)
                    key = table.name if name == "parameters" else f"{table.name}/{name}"
                    self._track_trackable(variable, key, overwrite=True)
        self._variables = variables
        self._load_variables()

    def _parts(
        self, inputs: list[Any], weights: list[Any], device: str | None
    ) -> list[tuple[int, Sequence[Any], Sequence[Any]]]:
        """Returns core, inputs and weights of each enqueue operation."""
        core = self._replicas.calling_core() if device is None else self._replicas.core_of_device(device)
        if core is not None:
            return [(core, inputs, weights)]
        local_values = self._replicas.local_values
        return [
            (core, local_values(inputs, replica), local_values(weights, replica))
            for replica, core in enumerate(self._replicas.cores)
        ]

    def _op_inputs(self, inputs: Sequence[Any], weights: Sequence[Any]) -> Sequence[Any]:
        """Returns indices, ids and weights of an enqueue operation."""
        each = zip(self._paths, self._features, inputs, weights, strict=True)
        return tuple(zip(*(op_inputs(*parts) for parts in each), strict=True))

    def _enqueue(self, core: int, tensors: Sequence[Any], mode: Any, name: str | None) -> None:
        indices, ids, aggregation_weights = tensors
        with _after_enqueues():
            op = tf.raw_ops.EnqueueTPUEmbeddingArbitraryTensorBatch(
                sample_indices_or_row_splits=indices,
                embedding_indices=ids,
                aggregation_weights=aggregation_weights,
                mode_override=mode,
                device_ordinal=core,
                combiners=[table.config.combiner for table in self._tables],
                name=name,
            )
        if op is not None:
            op.graph.get_collection_ref(_ENQUEUED)[:] = [op]
            if name is not None:
                mark(op, name)

    def _core_to(self, call: str) -> int:
        if not self._built:
            raise RuntimeError(
                f"{call} called on unbuilt TPUEmbedding object. Please either call enqueue first or manually call the "
                "build method."
            )
        self._system.check()
        core = self._replicas.calling_core()
        if core is None:
            raise RuntimeError(
                f"{call} must be called inside strategy.run, by each of the {len(self._replicas.cores)} replicas."
            )
        return core

    # What TensorFlow's checkpoints call.

    def _retrieve_variables(self) -> None:
        for name, slots in self._own_slots.items():
            self._states[name].forget()
            for slot, variable in slots.items():
                variable.assign(self._states[name].read(slot))

    def _load_variables(self) -> None:
        for name, slots in self._own_slots.items():
            for slot, variable in slots.items():
                self._states[name].write(slot, variable.read_value())

    def _create_copy_for_async_checkpoint(self, feature_config: Any, optimizer: Any, **kwargs: Any) -> TPUEmbedding:
        if any(self._own_slots.values()):
            # TensorFlow copies those variables before it asks for their values.
            raise NotImplementedError("An asynchronous checkpoint cannot hold slots of slot_variable_creation_fn.")
        return TPUEmbedding(feature_config, self._optimizer, **kwargs)

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "savedmodel":
            children = {
                name: child
                for name, child in children.items()
                if name != "_variables" and not isinstance(child, StateVariable)
            }
            children |= {name: state.snapshot() for name, state in self._states.items()}
        return children


def _flattened(feature_config: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Returns the path of each feature in the nest, and the features."""
    paths_and_features = flatten_with_joined_string_paths(feature_config)
    kind = tf.tpu.experimental.embedding.FeatureConfig
    for path, feature in paths_and_features:
        if not isinstance(feature, kind):
            raise ValueError(f"feature_config must hold FeatureConfig objects, got {type(feature)} at path {path!r}.")
    if not paths_and_features:
        raise ValueError("feature_config must hold at least one FeatureConfig.")
    paths, features = zip(*paths_and_features, strict=True)
    return paths, features


def _after_enqueues() -> Any:
    """Returns a context whose operations run after those that were enqueued in the graph.

    In a tf.function the order of stateful operations is that of the program, but for enqueue operations. A dequeue that
    had to wait for one could keep it from running.
    """
    if tf.executing_eagerly():
        return nullcontext()
    graph = tf.compat.v1.get_default_graph()
    # An inner graph begins with the collections of the outer one.
    return tf.control_dependencies([op for op in graph.get_collection(_ENQUEUED) if op.graph is graph])


def _mode(training: Any, name: str | None) -> Any:
    is_tensor = tf.is_tensor(training)
    mode = "train" if is_tensor or training else "inference"
    of_call = None if name is None else mode_of_call(name, mode)
    if of_call is not None:
        return of_call
    return tf.where(training, "train", "inference") if is_tensor else mode


def _gradient(path: str, gradient: Any, shape: list[int]) -> tf.Tensor:
    if gradient is None:
        _log.warning(
            "No gradient passed for feature %s, sending zero gradient. This may not be correct behavior for certain "
            "optimizers like Adam.",
            path,
        )
        return tf.zeros(shape)
    if not isinstance(gradient, tf.Tensor):
        raise ValueError(f"found non-tensor type: {type(gradient)} at path {path}.")
    if not gradient.shape.is_compatible_with(shape):
        raise ValueError(f"Found gradient of shape {gradient.shape} at path {path}. Expected shape {shape}.")
    return tf.cast(gradient, tf.float32)
