"""The embedding engine: ids in, activations out; gradients in, tables updated."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore.activations import check_activations
from anycore.batch import IdBatch, named_inputs, read_batch
from anycore.config import EmbeddingConfig
from anycore.entries import entries_of
from anycore.errors import CallOrderError, ConfigError, InputError
from anycore.gradients import read_gradients, read_learning_rates
from anycore.interrupts import uninterrupted
from anycore.kernels.parallel import available_threads, workers
from anycore.modes import mode_of
from anycore.plan import Activation, Plan
from anycore.schedule import Schedule, Step
from anycore.sharded_tables import ShardedTables
from anycore.sharding import Sharding
from anycore.tables import Tables
from anycore.transport import Transport


class EmbeddingEngine:
    """The tables of a config and the steps that look them up and train them.

    A step is `enqueue`, `receive_activations` and, in training, `send_gradients`, each once on every core. All methods
    may be called from several threads; a call that needs another one waits for it up to `timeout` seconds.

    `seed` and a table's name determine its starting values. `num_threads` defaults to ANYCORE_NUM_THREADS or to the
    processors that the process may use; it never changes a result.

    With a `transport` several processes share the tables: each has an engine of the same config, keeps its part of the
    rows and works for its part of the cores, numbered here from 0. Every method but `enqueue` is then called by all of
    them in the same order.
    """

    def __init__(
        self,
        config: EmbeddingConfig,
        *,
        seed: int = 0,
        num_threads: int | None = None,
        timeout: float = 60.0,
        transport: Transport | None = None,
    ) -> None:
        if not isinstance(config, EmbeddingConfig):
            raise ConfigError(
                f"an engine needs an EmbeddingConfig, got {type(config).__name__}: EmbeddingConfig.from_proto reads one"
            )
        if not isinstance(timeout, int | float) or not 0 <= timeout <= threading.TIMEOUT_MAX:
            raise ConfigError(f"timeout must be seconds, from 0 to {threading.TIMEOUT_MAX:g}, got {timeout!r}")
        self.config, self.transport = config, transport
        self._plan = Plan(config)
        self._workers = workers(available_threads() if num_threads is None else num_threads)
        self._tables: Tables | ShardedTables
        if transport is None:
            self._num_cores = config.num_tensor_cores
            self._tables = Tables(self._plan, seed, self._workers)
        else:
            self._tables = ShardedTables(self._plan, seed, self._workers, transport, timeout)
            self._num_cores = self._tables.num_cores
        pipelined = config.pipeline_execution_with_tensor_core
        self._schedule = Schedule(self._num_cores, pipelined=pipelined, timeout=timeout, together=transport is not None)
        self._keeps_gradients = pipelined or self._num_cores > 1
        # A partial, not a method: an engine in a circle would keep its tables until the garbage is collected.
        self._entries = lru_cache(maxsize=16)(partial(entries_of, self._plan))

    @property
    def num_cores(self) -> int:
        """The number of cores that this engine works for: all, or with a transport those of its process."""
        return self._num_cores

    @property
    def activations(self) -> tuple[Activation, ...]:
        """Name, table and shape of each activation, in the order of `receive_activations`."""
        return self._plan.activations

    def reshape(self, input_shapes: Sequence[Sequence[int]]) -> None:
        """Gives the features other input shapes from the next step on, as for a last, smaller batch; tables stay.

        No other thread may be inside a call. Only a config with features has shapes to change.

        Raises: ConfigError for shapes that a config cannot have; CallOrderError when a step is under way.
        """
        with self._schedule.lock, uninterrupted():
            with self._tables.agreed("reshape"):
                plan = Plan(self.config.with_input_shapes(input_shapes))
                self._schedule.check_idle("reshape")
            self._apply_updates(drain=True)
            self.config, self._plan = plan.config, plan
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
        step = None
        try:
            step_mode = mode_of(self.config, mode)
            batch = self._read(inputs, table_ids, combiners, max_sequence_lengths, num_features)
            with self._schedule.lock, uninterrupted():
                step = self._schedule.enqueue(core, batch, step_mode)
                if step.is_enqueued:
                    call = f"step {step.number}, mode {step_mode.name}"
                    step.ids = self._tables.begin(step.batches, call, trains=step.trains, ahead=True)
        except BaseException as error:
            if step is None:  # else it is queued, and Ctrl-C came meanwhile
                with self._schedule.lock:
                    number = self._schedule.refuse(core, error)
                    self._tables.refuse(f"ids of step {number}", error, ahead=True)
            raise
        if step.trains and step.is_enqueued and not self._tables.works_ahead:
            step.ids.result()

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
        check_activations(self._plan, out)
        with self._schedule.lock:
            step = self._schedule.next_to_receive(core)
            with uninterrupted():
                try:
                    if self._tables.works_ahead:
                        step.ids.result()
                except (InputError, CallOrderError):  # before any update, for who was refused makes none
                    self._schedule.mark_refused(core, step)
                    raise
                if not step.trains:
                    self._apply_updates(drain=True)
                activations = self._tables.look_up(step.batches, step.ids, core, out)
                self._schedule.mark_received(core, step)
                try:
                    self._apply_updates()
                except (InputError, CallOrderError):
                    self._schedule.mark_unreceived(core, step)
                    raise
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
        try:
            rates = read_learning_rates(self._plan, learning_rates)
            checked = read_gradients(self._plan, gradients, copy=self._keeps_gradients)
        except InputError as error:
            self._refuse_gradients(core, error)
            raise
        # One hold of the lock: no other thread may receive before the update that its step must see.
        with self._schedule.lock, uninterrupted():
            step = self._schedule.next_to_send(core)
            if step.learning_rates not in (None, rates):
                different = InputError(
                    f"send_gradients(core={core}): learning_rates must equal those of the other cores, "
                    f"{step.learning_rates}, got {rates}"
                )
                self._refuse_gradients(core, different)
                raise different
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
        with self._schedule.lock:
            with self._tables.agreed("look_up"):
                check_activations(self._plan, out)
                batch = self._read(inputs, table_ids, combiners, max_sequence_lengths, num_features)
                self._schedule.wait_until_whole("look_up")
            with uninterrupted():
                self._apply_updates(drain=True)
                return self._tables.look_up([batch], self._tables.begin([batch], "look_up", trains=False), out=out)

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
        with self._schedule.lock:
            with self._tables.agreed("update"):
                mode_of(self.config, "training")
                rates = read_learning_rates(self._plan, learning_rates)
                checked = read_gradients(self._plan, gradients, copy=False)
                batch = self._read(inputs, table_ids, combiners, max_sequence_lengths, num_features)
                self._schedule.wait_until_whole("update")
            with uninterrupted():
                self._apply_updates(drain=True)
                ids: Any = self._tables.begin([batch], "update", trains=True).result()
                self._tables.prepare_update(ids, [checked], rates, "update")()

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
        with self._schedule.lock:
            with self._tables.agreed(f"load, tables: {len(tables)}"):
                loads = []
                for table, state_variables in tables:
                    chosen, ids = self._find(table, num_shards, shard_id)
                    rows = len(range(*ids.indices(self.config.tables[chosen].vocabulary_size)))
                    loads.append((chosen, ids, self._tables[chosen].checked(state_variables, rows)))
                self._schedule.wait_until_whole("load")
            with uninterrupted():
                self._apply_updates(drain=True)
                for each in loads:
                    self._tables.load(*each)

    def retrieve(self, table: str | int, *, num_shards: int = 1, shard_id: int = 0) -> dict[str, NDArray[np.float32]]:
        """Returns copies of a table's state variables by name, or of one shard's, float32 [rows, dimension].

        An update that pipelining holds back is applied first, so that nothing sent is missing.

        Raises: InputError for an unknown table or shard.
        """
        with self._schedule.lock:
            with self._tables.agreed("retrieve"):
                chosen, ids = self._find(table, num_shards, shard_id)
                self._schedule.wait_until_whole("retrieve")
            with uninterrupted():
                self._apply_updates(drain=True)
                return self._tables.retrieve(chosen, ids)

    def views(self, table: str | int) -> dict[str, NDArray[np.float32]]:
        """Returns a table's state variables by name, float32 [rows, dimension]: the table's memory itself, no copies.

        They change with every update, and what the caller writes there, between the steps, the next one sees.

        Raises: InputError for an unknown table.
        """
        index, _ = self._find(table, num_shards=1, shard_id=0)
        chosen = self._tables[index]
        return {name: chosen.view(name) for name in chosen.state_variables}

    def stats(self) -> dict[str, float]:
        """Returns what this process has moved to and from others; nothing without a transport.

        `steps` counts those that trained, once their rows have come. `bytes_sent_per_step` and
        `bytes_received_per_step` hold all bytes, those of other calls too, `least_bytes_…` what a step needs at least:
        an id for each distinct row that a core needs and another process keeps, its parameters and its gradient.
        `largest_share_of_rows` is the greatest part of all these rows, own ones too, that one process keeps.
        """
        with self._schedule.lock, uninterrupted():
            return self._tables.stats()

    def close(self) -> None:
        """Ends the waiting of calls in other threads: they raise CallOrderError, as will every call that has to wait.

        Nothing else changes; the tables can still be retrieved.
        """
        with self._schedule.lock:
            self._schedule.close("this engine was closed")

    def _read(
        self,
        inputs: Sequence[Any] | Mapping[str, Any],
        table_ids: Sequence[int] | None,
        combiners: Sequence[str],
        max_sequence_lengths: Sequence[int],
        num_features: Sequence[int],
    ) -> IdBatch:
        lists = map(tuple, (combiners, max_sequence_lengths, num_features))
        attributes: tuple[Any, ...] = (None if table_ids is None else tuple(table_ids), *lists)
        try:
            entries = self._entries(*attributes)
        except TypeError:  # what cannot be hashed is refused by name
            entries = entries_of(self._plan, *attributes)
        return read_batch(self._plan, self._tables.descriptors, entries, named_inputs(inputs, entries), self._workers)

    def _refuse_gradients(self, core: int, error: InputError) -> None:
        """Tells other processes, if they wait for these gradients. Raises why they do not, if they gave the step up."""
        with self._schedule.lock, uninterrupted():
            if (due := self._schedule.due_with(core)) is not None and due.is_enqueued:
                self._ids_of(due)
                self._tables.refuse(f"gradients of step {due.number}", error)

    def _ids_of(self, step: Step) -> Any:
        """Returns the ids of a step that trains, once they are there. Raises: what made the processes give it up."""
        try:
            return step.ids.result()
        except (InputError, CallOrderError):
            self._schedule.mark_applied(step)  # there is nothing to update
            raise

    def _apply_updates(self, *, drain: bool = False) -> None:
        while (step := self._schedule.next_due(drain=drain)) is not None:
            ids = self._ids_of(step)
            try:
                rates, call = step.learning_rates or (), f"step {step.number}"
                apply = self._tables.prepare_update(ids, step.gradients, rates, call)
            except (InputError, CallOrderError):
                self._schedule.mark_unsent(step)
                raise
            # What could fail has succeeded: from here on the step is done, and never done twice.
            self._schedule.mark_applied(step)
            apply()

    def _find(self, table: str | int, num_shards: int, shard_id: int) -> tuple[int, slice]:
        """Returns the number of a table, and the ids of its shard."""
        names = [config.name for config in self.config.tables]
        index = names.index(table) if table in names else table
        if not isinstance(index, int | np.integer) or not 0 <= index < len(names):
            raise InputError(f"there is no table {table!r}, the tables are {names}")
        chosen = self.config.tables[int(index)]
        sharding = Sharding(chosen.name, chosen.vocabulary_size, num_shards, self.config.sharding_strategy)
        return int(index), sharding.ids_of_shard(shard_id)

    def _check_core(self, call: str, core: int) -> None:
        if not isinstance(core, int | np.integer) or not 0 <= core < self._num_cores:
            raise InputError(
                f"{call}: core must be in [0, {self._num_cores}), got {core!r} "
                "(TPUEmbeddingConfiguration.num_tensor_cores)"
            )
