"""The tables of several processes: each keeps its shards, and rows and gradients travel between them.

What an entry is stands in `kernels.exchange`. A step is three messages from each process to each: rows that a core
needs, their parameters, and the sums of their gradients. The owner of a row adds up those of all cores in their order,
so that where a row or a core is never shows in a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore import recycled
from anycore.agreement import agree, agree_on_config
from anycore.arrays import address
from anycore.background import Background
from anycore.batch import IdBatch
from anycore.errors import ConfigError, InputError
from anycore.exchange import Asked, CoreEntries, Wanted, asked, core_entries, wanted
from anycore.gradients import Gradient
from anycore.kernels import exchange
from anycore.kernels.parallel import Workers
from anycore.kernels.pointers import FLOAT_BYTES
from anycore.kernels.records import ADDRESS, STRIDE
from anycore.kernels.update import place_rows
from anycore.pending import Pending
from anycore.plan import Plan
from anycore.shard_transfer import load_shards, retrieve_shards
from anycore.sharding import Sharding, ShardingStrategy
from anycore.sorted_ids import sort_ids
from anycore.table import Table
from anycore.tables import Tables
from anycore.traffic import Traffic, step_traffic
from anycore.transport import Transport


@dataclass
class StepEntries:
    """A step after its first message: what its cores need, and what others want from here."""

    call: str
    """Whose step it is, as all processes say it."""
    cores: list[CoreEntries]
    wanted: Wanted
    asked: Asked
    asked_floats: NDArray[np.int64]
    traffic: Traffic
    """What the step has moved; the caller's thread adds it to the sum, so that the background's speed never shows."""
    parameters: NDArray[np.float32] | None = None
    """Of the wanted rows, once they have come."""


class ShardedTables:
    """The tables of a plan, each process with its shard of each; the interface is that of `Tables`."""

    works_ahead = True

    def __init__(self, plan: Plan, seed: int, workers: Workers, transport: Transport, timeout: float) -> None:
        self._plan = plan
        self._workers = workers
        config = plan.config
        rank, size = transport.rank, transport.size
        # Enqueues go their own way, so that the next step's rows travel while this one computes.
        self._ahead, self._calls = transport.channel(timeout), transport.channel(timeout)
        agree_on_config(self._calls, config, seed)
        if size > config.num_tensor_cores:
            raise ConfigError(
                f"{size} processes need at least as many cores, got num_tensor_cores {config.num_tensor_cores}; start "
                "fewer processes (TPUEmbeddingConfiguration.num_tensor_cores)"
            )
        cores = Sharding("cores", config.num_tensor_cores, size)
        self._cores = [cores.size(process) for process in range(size)]
        self.num_cores = self._cores[rank]
        self._background = Background("anycore-exchange")
        self._traffic = Traffic()
        shardings = [Sharding(t.name, t.vocabulary_size, size, config.sharding_strategy) for t in config.tables]
        self._shards = [[sharding.range_of_shard(process) for process in range(size)] for sharding in shardings]
        self._tables = Tables(plan, seed, workers, [of_table[rank] for of_table in self._shards])
        self._sizes = np.array([table.vocabulary_size for table in config.tables], np.int64)
        self._dimensions = np.array([table.dimension for table in config.tables], np.int64)
        self._summed = np.array([table.optimizer.gradient_accumulation for table in config.tables], np.bool_)
        self._is_mod = config.sharding_strategy == ShardingStrategy.MOD
        local = self._tables.descriptors
        self.descriptors = np.column_stack([local[:, :-1], self._sizes])

    def __getitem__(self, index: int) -> Table:
        return self._tables[index]

    def follow(self, plan: Plan) -> None:
        """Serves batches of another plan of the same tables from now on."""
        self._plan = plan
        self._tables.follow(plan)

    @contextmanager
    def agreed(self, call: str) -> Iterator[None]:
        """Returns a context for the checks of a call that all processes make together: all pass, or all raise.

        A process whose check fails raises its own error, the others an InputError.
        """
        try:
            yield
        except BaseException as error:
            with suppress(InputError):
                agree(self._calls, call, error)
            raise
        agree(self._calls, call)

    def refuse(self, call: str, error: BaseException, *, ahead: bool = False) -> None:
        """Tells the other processes that a call was refused here; they raise, with the reason."""
        if ahead:
            self._background.submit(partial(agree, self._ahead, call, error))
        else:
            agree(self._calls, call, error)

    def begin(
        self, batches: Sequence[IdBatch], call: str, *, trains: bool, ahead: bool = False
    ) -> Future[StepEntries] | Pending[StepEntries]:
        """Returns what `look_up` and `prepare_update` need of a step, the batches of this process's cores.

        With `ahead` it is worked out in the background, in the order of these calls, which all processes share.
        """
        if ahead:
            return self._background.submit(partial(self._exchange_rows, list(batches), call, trains, self._ahead))
        return Pending(partial(self._exchange_rows, list(batches), call, trains, self._calls))

    def _exchange_rows(self, batches: list[IdBatch], call: str, trains: bool, channel: Transport) -> StepEntries:
        is_ahead = channel is self._ahead
        sent, received = channel.bytes_sent, channel.bytes_received
        agree(channel, f"ids of {call}")
        offsets, tables = self._plan.sample_offsets, self.descriptors
        cores = [core_entries(batch, offsets, tables, self._summed, self._workers) for batch in batches]
        needs = wanted(cores, self._sizes, self._dimensions, channel.size, self._is_mod)
        num_cores, num_tables = [len(batches)] * channel.size, len(self._sizes)
        if is_ahead:
            num_cores = self._cores
        counts = [np.empty((number, num_tables), np.int64) for number in num_cores]
        channel.all_to_all(list(needs.counts), counts)
        # A row is counted within its shard, where four bytes hold it.
        width = np.int32 if self._sizes.max() // channel.size < np.iinfo(np.int32).max else np.int64
        rows = [np.empty(int(each.sum()), width) for each in counts]
        channel.all_to_all([message.astype(width) for message in needs.row_messages()], rows)
        traffic = Traffic()
        if trains:
            by_process = np.array([each.sum(axis=0) for each in counts])
            traffic += step_traffic(channel.rank, needs.counts.sum(axis=1), by_process, self._dimensions)
        if is_ahead:
            traffic += Traffic(sent=channel.bytes_sent - sent, received=channel.bytes_received - received)
        orders = asked(np.concatenate(counts), np.concatenate(rows).astype(np.int64), self._dimensions)
        return StepEntries(call, cores, needs, orders, orders.num_floats(num_cores), traffic)

    def look_up(
        self,
        batches: Sequence[IdBatch],
        ids: Any,
        core: int = 0,
        out: Sequence[NDArray[np.float32]] | None = None,
    ) -> Sequence[NDArray[np.float32]]:
        """Returns the activations of one core's batch, in the plan's order, in `out` or in new arrays.

        The first core's call is collective: it gets the rows of all cores of the process.

        Raises: InputError when another process has refused its part.
        """
        step = ids.result()
        if step.parameters is None:
            step.parameters = self._exchange_parameters(step)
            self._traffic += step.traffic
        entries = step.cores[core]
        places = recycled.empty(int(entries.id_offsets[-1]), np.int64)
        self._workers.run(
            exchange.spread,
            entries.tasks(),
            entries.starts,
            entries.positions,
            entries.id_offsets,
            step.wanted.offsets[core],
            places,
        )
        received = self.descriptors.copy()
        received[:, ADDRESS], received[:, STRIDE] = address(step.parameters), FLOAT_BYTES
        return self._tables.look_up_records(replace(entries.batch, ids=places), received, out)

    def _exchange_parameters(self, step: StepEntries) -> NDArray[np.float32]:
        agree(self._calls, f"activations of {step.call}")
        answers = recycled.empty(int(step.asked_floats[-1]), np.float32)
        self._workers.run(exchange.gather, step.asked.tasks(), self._tables.descriptors, step.asked.rows, answers)
        parameters = recycled.empty(int(step.wanted.floats[-1]), np.float32)
        self._calls.all_to_all(_split(answers, step.asked_floats), _split(parameters, step.wanted.floats))
        return parameters

    def prepare_update(
        self,
        ids: StepEntries,
        gradients: Sequence[Sequence[Gradient | None]],
        learning_rates: Sequence[float],
        call: str,
    ) -> Callable[[], None]:
        """Returns what is left to do of a step's update when the gradients of all processes are here. Collective.

        Raises: InputError when another process has refused its gradients.
        """
        agree(self._calls, f"gradients of {call}, learning_rates {tuple(learning_rates)}")
        sums = recycled.empty(int(ids.wanted.floats[-1]), np.float32)
        for core, entries in enumerate(ids.cores):
            self._sum_gradients(entries, gradients[core], ids.wanted.offsets[core], sums)
        received = recycled.empty(int(ids.asked_floats[-1]), np.float32)
        self._calls.all_to_all(_split(sums, ids.wanted.floats), _split(received, ids.asked_floats))
        batches, offsets = ids.asked.batches(), ids.asked.sample_offsets()
        rows = np.empty(int(offsets[-1]) * len(batches), np.int64)
        place_rows(ids.asked.gradient_places(received), rows)
        by_row = sort_ids(offsets, self._tables.descriptors, batches, self._workers)
        apply = self._tables.prepare_rows_update(by_row, rows, offsets, len(batches), learning_rates)
        if ids.parameters is None:  # never received, so not counted yet
            self._traffic += ids.traffic
        return partial(_finish, apply, received)

    def _sum_gradients(
        self,
        entries: CoreEntries,
        gradients: Sequence[Gradient | None],
        offsets: NDArray[np.int64],
        sums: NDArray[np.float32],
    ) -> None:
        batch = entries.batch
        samples = recycled.empty(len(entries.positions), np.int32)
        gains = recycled.empty(len(entries.positions) if batch.weighted.any() else 0, np.float32)
        exchange.follow_positions(
            batch.splits,
            batch.gains,
            batch.weighted,
            self._plan.sample_offsets,
            entries.id_offsets,
            entries.positions,
            samples,
            gains,
        )
        self._workers.run(
            exchange.sum_entries,
            entries.tasks(),
            entries.starts,
            samples,
            gains,
            batch.weighted,
            self._tables.gradient_rows([gradients]),
            self._dimensions,
            offsets,
            sums,
        )

    def load(self, table: int, ids: slice, state_variables: Mapping[str, NDArray[np.float32]]) -> None:
        """Overwrites state variables of the given ids, wherever they are kept. Collective.

        Processes may give different ids. A row gets the values of the last process that gives it, except that its
        keeper takes none from a process that gives the same ids and state variables as itself.

        Raises: CallOrderError when another process has an update to make first.
        """
        agree(self._calls, "load")
        load_shards(self._calls, self._tables.tables, self._shards, table, self._range(table, ids), state_variables)

    def retrieve(self, table: int, ids: slice) -> dict[str, NDArray[np.float32]]:
        """Returns copies of the state variables of the given ids, wherever they are kept. Collective.

        Processes may ask for different ids.

        Raises: CallOrderError when another process has an update to make first.
        """
        agree(self._calls, "retrieve")
        return retrieve_shards(self._calls, self._tables.tables, self._shards, table, self._range(table, ids))

    def stats(self) -> dict[str, float]:
        """Returns what has moved, see `EmbeddingEngine.stats`. Collective.

        A step counts, with the bytes that went ahead for it, from its receive on, or from its update if it has none; so
        the figures never depend on how far the background is. The few bytes ahead of a refused step are not counted.
        """
        traffic, calls = self._traffic, self._calls
        sent, received = traffic.sent + calls.bytes_sent, traffic.received + calls.bytes_received
        agree(calls, "stats")
        entries = [int(value) for value in calls.all_gather(str(traffic.entries).encode())]
        steps = max(traffic.steps, 1)
        return {
            "steps": traffic.steps,
            "bytes_sent_per_step": sent / steps,
            "bytes_received_per_step": received / steps,
            "least_bytes_sent_per_step": traffic.least_sent / steps,
            "least_bytes_received_per_step": traffic.least_received / steps,
            "largest_share_of_rows": max(entries) / max(sum(entries), 1),
        }

    def _range(self, table: int, ids: slice) -> range:
        return range(*ids.indices(int(self._sizes[table])))


def _finish(apply: Callable[[], None], gradients: NDArray[np.float32]) -> None:
    """Applies an update whose gradients, known to it by address, are kept until then."""
    apply()


def _split(floats: NDArray[np.float32], firsts: NDArray[np.int64]) -> list[NDArray[np.float32]]:
    return np.split(floats, firsts[1:-1])
