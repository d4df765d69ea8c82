"""The embedding engine: ids in, activations out; gradients in, tables updated."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore.activations import check_activations
from anycore.batch import IdBatch, named_inputs, read_batch
from anycore.config import EmbeddingConfig, Mode
from anycore.entries import entries_of
from anycore.errors import ConfigError, InputError
from anycore.gradients import read_gradients, read_learning_rates
from anycore.interrupts import uninterrupted
from anycore.kernels.parallel import available_threads, workers
from anycore.plan import Activation, Plan
from anycore.schedule import Schedule, Step
from anycore.sharding import Sharding
from anycore.sorted_ids import sort_ids
from anycore.table import Table
from anycore.tables import Tables

MODES = {
    "inference": Mode.INFERENCE,
    "train": Mode.TRAINING,
    "training": Mode.TRAINING,
    "backward_pass_only": Mode.BACKWARD_PASS_ONLY,
}
"""`mode_override` → mode; None and 'unspecified' mean the config's."""


class EmbeddingEngine:
    """The tables of a config and the steps that look them up and train them.

    A step is `enqueue`, `receive_activations` and, in training, `send_gradients`, each once on every core. All methods
    may be called from several threads; a call that needs another one waits for it up to `timeout` seconds.

    `seed` and a table's name determine its starting values. `num_threads` defaults to ANYCORE_NUM_THREADS or to the
    processors that the process may use; it never changes a result.
    """

    def __init__(
        self, config: EmbeddingConfig, *, seed: int = 0, num_threads: int | None = None, timeout: float = 60.0
    ) -> None:
        if not isinstance(config, EmbeddingConfig):
            raise ConfigError(
                f"an engine needs an EmbeddingConfig, got {type(config).__name__}: EmbeddingConfig.from_proto reads one"
            )
        if num_threads is not None and (not isinstance(num_threads, int) or num_threads < 1):
            raise ConfigError(f"num_threads must be an integer and at least 1, got {num_threads!r}")
        if not isinstance(timeout, int | float) or not 0 <= timeout <= threading.TIMEOUT_MAX:
            raise ConfigError(f"timeout must be seconds, from 0 to {threading.TIMEOUT_MAX:g}, got {timeout!r}")
        self.config = config
        self._plan = Plan(config)
        self._workers = workers(num_threads or available_threads())
        self._tables = Tables(self._plan, seed, self._workers)
        pipelined = config.pipeline_execution_with_tensor_core
        self._schedule = Schedule(config.num_tensor_cores, pipelined=pipelined, timeout=timeout)
        self._keeps_gradients = pipelined or config.num_tensor_cores > 1
        # A partial, not a method: an engine in a circle would keep its tables until the garbage is collected.
        self._entries = lru_cache(maxsize=16)(partial(entries_of, self._plan))

    @property
    def activations(self) -> tuple[Activation, ...]:
        """Name, table and shape of each activation, in the order of `receive_activations`."""
        return self._plan.activations

    def reshape(self, input_shapes: Sequence[Sequence[int]]) -> None:
        """Gives the features other input shapes from the next step on, as for a last, smaller batch; tables stay.

        No other thread may be inside a call. Only a config with features has shapes to change.

        Raises: ConfigError for shapes that a config cannot have; CallOrderError when a step is under way.
        """
        if len(input_shapes) != len(self.config.features):
            raise ConfigError(
                f"expected {len(self.config.features)} input_shapes, one for each feature, got {len(input_shapes)} "
                "(FeatureDescriptor.input_shape)"
            )
        features = [
            replace(feature, input_shape=shape)
            for feature, shape in zip(self.config.features, input_shapes, strict=True)
        ]
        plan = Plan(replace(self.config, features=features))
        with self._schedule.lock:
            self._apply_updates(drain=True)
            self._schedule.check_idle("reshape")
            self.config = plan.config
            self._plan = plan
            self._tables.follow(plan)
            self._entries = lru_cache(maxsize=16)(partial(entries_of, plan))

    def enqueue(
        self,
        inputs: Sequence[Any] | Mapping[str, Any],
        *,
        combiners: Sequence[str] = (),
        table_ids: Sequence[int] | None = None,
        max_sequence_lengths: Sequence[int] = (),
        num_features: Sequence[int] = (),
        core: int = 0,
        mode: str | None = None,
    ) -> None:
        """Queues the ids of one step of one core; nothing of `inputs` is kept.

        `inputs` holds one array, `Dense`, `Sparse` or `Ragged` per feature (in table mode: per table, or per entry of
        `table_ids`), in order or by name. `combiners` ('sum', 'mean', 'sqrtn') has one value per table or per input;
        empty means the tables' own. `mode` is 'training', 'inference', 'backward_pass_only', or None for the config's.

        Raises: InputError that names the feature, the position and the value; then nothing is queued, and what other
        cores have queued for that step is given up: they get a CallOrderError, or enqueue again.
        Source: the EnqueueTPUEmbedding… ops, TensorFlow 2.21.
        """
        self._check_core("enqueue", core)
        try:
            step_mode = self._mode(mode)
            if step_mode != Mode.INFERENCE:
                self._check_rules()
            batch = self._read(inputs, table_ids, combiners, max_sequence_lengths, num_features)
            with self._schedule.lock, uninterrupted():
                step = self._schedule.enqueue(core, batch, step_mode)
        except BaseException as error:
            with self._schedule.lock:
                self._schedule.refuse(core, error)
            raise
        if step.trains and step.is_enqueued:
            self._sort(step)

    def receive_activations(
        self, core: int = 0, *, out: Sequence[NDArray[np.float32]] | None = None
    ) -> Sequence[NDArray[np.float32]]:
        """Returns the activations of the core's next step, one array per feature (in table mode: per table).

        Each is float32 input_shape + [dimension], in table mode [batch size · num_features, dimension]; the caller's.
        They are written into the arrays `out`, if given, which must have these shapes and be C-contiguous.

        Raises: InputError for an `out` that does not fit; CallOrderError when an earlier call is missing and does not
        come in time. Then the activations are still to be received.
        Source: `RecvTPUEmbeddingActivations`, TensorFlow 2.21.
        """
        self._check_core("receive_activations", core)
        if out is not None:
            check_activations(self._plan, out)
        with self._schedule.lock:
            step = self._schedule.next_to_receive(core)
            with uninterrupted():
                if not step.trains:
                    self._apply_updates(drain=True)
                activations = self._tables.look_up(step.batches[core], out)
                self._schedule.mark_received(core, step)
                self._apply_updates()
        return activations

    def send_gradients(
        self, gradients: Sequence[Any] | Mapping[str, Any], learning_rates: Sequence[Any] = (), core: int = 0
    ) -> None:
        """Updates the tables with the gradients of the core's activations, once all cores have sent theirs.

        `gradients` holds one float32 array per activation, of its shape, in order or by name; None means zeros, which
        is not the same as no update. `learning_rates` holds one scalar per dynamic tag. Gradients of equal ids are
        summed over features, samples and cores, and never averaged. With pipelining the update follows the next step's
        activations.

        Raises: InputError for a wrong count, shape or rate; CallOrderError when no step waits for gradients. Then
        nothing has changed, and the call may be repeated.
        Source: `SendTPUEmbeddingGradients`, TensorFlow 2.21.
        """
        self._check_core("send_gradients", core)
        rates = read_learning_rates(self._plan, learning_rates)
        checked = read_gradients(self._plan, gradients, copy=self._keeps_gradients)
        with self._schedule.lock, uninterrupted():
            step = self._schedule.next_to_send(core)
            if step.learning_rates not in (None, rates):
                raise InputError(
                    f"send_gradients(core={core}): learning_rates must equal those of the other cores, "
                    f"{step.learning_rates}, got {rates}"
                )
            self._schedule.mark_sent(core, step, checked, rates)
            self._apply_updates()

    def look_up(
        self,
        inputs: Sequence[Any] | Mapping[str, Any],
        *,
        combiners: Sequence[str] = (),
        table_ids: Sequence[int] | None = None,
        max_sequence_lengths: Sequence[int] = (),
        num_features: Sequence[int] = (),
        out: Sequence[NDArray[np.float32]] | None = None,
    ) -> Sequence[NDArray[np.float32]]:
        """Returns the activations of `inputs` outside all steps: nothing is queued, and no gradients follow.

        The arguments are those of `enqueue`, `out` and the arrays those of `receive_activations`. An update that
        pipelining holds back is applied first, as by `retrieve`.

        Raises: InputError that names the feature, the position and the value.
        """
        if out is not None:
            check_activations(self._plan, out)
        batch = self._read(inputs, table_ids, combiners, max_sequence_lengths, num_features)
        with self._schedule.lock:
            self._schedule.wait_until_whole("look_up")
            with uninterrupted():
                self._apply_updates(drain=True)
                return self._tables.look_up(batch, out)

    def update(
        self,
        inputs: Sequence[Any] | Mapping[str, Any],
        gradients: Sequence[Any] | Mapping[str, Any],
        learning_rates: Sequence[Any] = (),
        *,
        combiners: Sequence[str] = (),
        table_ids: Sequence[int] | None = None,
        max_sequence_lengths: Sequence[int] = (),
        num_features: Sequence[int] = (),
    ) -> None:
        """Updates the tables with the gradients of `look_up(inputs)`, outside all steps and at once, all or nothing.

        The other arguments are those of `enqueue` and `send_gradients`. An update that pipelining holds back is applied
        first.

        Raises: InputError as `enqueue` and `send_gradients` do; then nothing has changed.
        """
        self._mode("training")
        self._check_rules()
        rates = read_learning_rates(self._plan, learning_rates)
        checked = read_gradients(self._plan, gradients, copy=False)
        batch = self._read(inputs, table_ids, combiners, max_sequence_lengths, num_features)
        ids = sort_ids(self._plan, self._tables.descriptors, [batch], self._workers)
        with self._schedule.lock:
            self._schedule.wait_until_whole("update")
            with uninterrupted():
                self._apply_updates(drain=True)
                self._tables.update(ids, [checked], rates)

    def load(
        self, table: str | int, state_variables: Mapping[str, Any], *, num_shards: int = 1, shard_id: int = 0
    ) -> None:
        """Overwrites state variables of a table, or of one shard of it; those that are not named stay as they are.

        `state_variables` maps `parameters` and slot names to float32 [rows of the shard, dimension].

        Raises: InputError for an unknown table or variable, a wrong shape or shard; then nothing has changed.
        """
        self._load([(table, state_variables)], num_shards, shard_id)

    def load_tables(self, tables: Mapping[Any, Mapping[str, Any]], *, num_shards: int = 1, shard_id: int = 0) -> None:
        """Does as `load` for several tables, all or none: `tables` maps names to state variables."""
        self._load(list(tables.items()), num_shards, shard_id)

    def _load(self, tables: Sequence[tuple[Any, Mapping[str, Any]]], num_shards: int, shard_id: int) -> None:
        loads = []
        for table, state_variables in tables:
            chosen, rows = self._find(table, num_shards, shard_id)
            count = len(range(*rows.indices(chosen.config.vocabulary_size)))
            loads.append((chosen, rows, chosen.checked(state_variables, count)))
        with self._schedule.lock:
            self._schedule.wait_until_whole("load")
            with uninterrupted():
                self._apply_updates(drain=True)
                for chosen, rows, arrays in loads:
                    for name, array in arrays.items():
                        chosen.view(name)[rows] = array

    def retrieve(self, table: str | int, *, num_shards: int = 1, shard_id: int = 0) -> dict[str, NDArray[np.float32]]:
        """Returns copies of a table's state variables by name, or of one shard's, float32 [rows, dimension].

        An update that pipelining holds back is applied first, so that nothing sent is missing.

        Raises: InputError for an unknown table or shard.
        """
        chosen, rows = self._find(table, num_shards, shard_id)
        with self._schedule.lock:
            self._schedule.wait_until_whole("retrieve")
            with uninterrupted():
                self._apply_updates(drain=True)
            return {name: chosen.view(name)[rows].copy() for name in chosen.state_variables}

    def close(self) -> None:
        """Ends the waiting of calls in other threads: they raise CallOrderError, as will every call that has to wait.

        Nothing else changes; the tables can still be retrieved.
        """
        with self._schedule.lock:
            self._schedule.close("this engine was closed")

    def views(self, table: str | int) -> dict[str, NDArray[np.float32]]:
        """Returns a table's state variables by name, float32 [rows, dimension]: the table's memory itself, no copies.

        They change with every update, and what the caller writes there, between the steps, the next one sees.

        Raises: InputError for an unknown table.
        """
        chosen, _ = self._find(table, num_shards=1, shard_id=0)
        return {name: chosen.view(name) for name in chosen.state_variables}

    def _read(
        self,
        inputs: Sequence[Any] | Mapping[str, Any],
        table_ids: Sequence[int] | None,
        combiners: Sequence[str],
        max_sequence_lengths: Sequence[int],
        num_features: Sequence[int],
    ) -> IdBatch:
        attributes = (
            None if table_ids is None else tuple(table_ids),
            tuple(combiners),
            tuple(max_sequence_lengths),
            tuple(num_features),
        )
        try:
            entries = self._entries(*attributes)
        except TypeError:  # what cannot be hashed is refused by name
            entries = entries_of(self._plan, *attributes)
        return read_batch(self._plan, self._tables.descriptors, entries, named_inputs(inputs, entries), self._workers)

    def _apply_updates(self, *, drain: bool = False) -> None:
        while (step := self._schedule.next_due(drain=drain)) is not None:
            self._sort(step)
            apply = self._tables.prepare_update(step.sorted_ids, step.gradients, step.learning_rates or ())
            # What could fail has succeeded: from here on the step is done, and never done twice.
            self._schedule.mark_applied(step)
            apply()

    def _sort(self, step: Step) -> None:
        with step.sorting:
            if step.sorted_ids is None:
                step.sorted_ids = sort_ids(self._plan, self._tables.descriptors, step.batches, self._workers)

    def _find(self, table: str | int, num_shards: int, shard_id: int) -> tuple[Table, slice]:
        names = [config.name for config in self.config.tables]
        index = names.index(table) if table in names else table
        if not isinstance(index, int | np.integer) or not 0 <= index < len(names):
            raise InputError(f"there is no table {table!r}, the tables are {names}")
        chosen = self._tables[int(index)]
        sharding = Sharding(
            chosen.config.name, chosen.config.vocabulary_size, num_shards, self.config.sharding_strategy
        )
        return chosen, sharding.ids_of_shard(shard_id)

    def _mode(self, mode: str | None) -> Mode:
        if mode is None or mode == "unspecified":
            return self.config.mode
        if mode not in MODES:
            raise InputError(f"Unsupported value {mode!r} specified for mode_override, use one of {', '.join(MODES)}")
        if not self.config.trains and MODES[mode] != Mode.INFERENCE:
            raise InputError(
                f"mode_override {mode!r} needs a config that trains, this one has mode INFERENCE "
                "(TPUEmbeddingConfiguration.mode)"
            )
        return MODES[mode]

    def _check_rules(self) -> None:
        for table in self.config.tables:
            name = table.optimizer.wire_name
            if table.optimizer.rule is None:
                raise ConfigError(
                    f"table {table.name!r}: the arithmetic of {name} is not published, so it looks up but does not "
                    f"train; supply a rule: derive YourClass with one from {type(table.optimizer).__name__}, and give "
                    f"optimizer=YourClass() to TableConfig, or optimizers={{{name!r}: YourClass}} to "
                    f"EmbeddingConfig.from_proto or configure_tpu_embedding (OptimizationParameters.{name})"
                )

    def _check_core(self, call: str, core: int) -> None:
        if not isinstance(core, int | np.integer) or not 0 <= core < self.config.num_tensor_cores:
            raise InputError(
                f"{call}: core must be in [0, {self.config.num_tensor_cores}), got {core!r} "
                "(TPUEmbeddingConfiguration.num_tensor_cores)"
            )
