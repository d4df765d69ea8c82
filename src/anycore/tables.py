"""All tables of an engine, looked up and updated together in as few kernel calls as possible."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from anycore.activations import new_activations
from anycore.arrays import address
from anycore.batch import IdBatch
from anycore.gradients import Gradient
from anycore.kernels.bind import compiled_step
from anycore.kernels.lookup import lookup
from anycore.kernels.parallel import Workers
from anycore.kernels.pointers import FLOAT_BYTES
from anycore.kernels.tasks import cut_rows
from anycore.kernels.update import place_rows, update
from anycore.optimizers import Optimizer
from anycore.optimizers.compose import settings_of
from anycore.plan import Plan
from anycore.sorted_ids import SortedIds
from anycore.table import Table

_log = logging.getLogger("anycore")


class Tables:
    """The tables of a plan; owner of their memory, and the only one that writes it."""

    def __init__(self, plan: Plan, seed: int, workers: Workers) -> None:
        self._workers = workers
        self._tables = [Table(config) for config in plan.config.tables]
        self._optimizers = [table.optimizer for table in plan.config.tables]
        self.descriptors = np.array([table.descriptor() for table in self._tables], np.int64)
        self.follow(plan)
        self._quantization = np.array([_quantization(optimizer) for optimizer in self._optimizers], np.float32)
        self._dynamic = [table for table, optimizer in enumerate(self._optimizers) if optimizer.tags]
        self._settings = _stack([settings_of(optimizer) for optimizer in self._optimizers])
        self._zero = np.zeros(max(table.config.dimension for table in self._tables), np.float32)
        workers.run_jobs(job for table in self._tables for job in table.initialise(seed))
        self.steps = self._compile() if plan.config.trains else np.zeros((len(self._tables), 3), np.int64)

    def follow(self, plan: Plan) -> None:
        """Serves batches of another plan of the same tables from now on."""
        dimensions = np.array([activation.dimension for activation in plan.activations])
        self._plan = plan
        self._skipped_bytes = plan.activation_samples[:, 1] * dimensions * FLOAT_BYTES

    def __getitem__(self, index: int) -> Table:
        return self._tables[index]

    def look_up(
        self, batch: IdBatch, out: Sequence[NDArray[np.float32]] | None = None
    ) -> Sequence[NDArray[np.float32]]:
        """Returns the activations of one core's batch, in the plan's order, in `out` or in new arrays."""
        activations = new_activations(self._plan) if out is None else out
        self._workers.run(
            lookup,
            batch.tasks,
            self.descriptors,
            self._quantization,
            batch.ids,
            batch.splits,
            batch.gains,
            batch.weighted,
            np.array([address(array) for array in activations], np.int64) - self._skipped_bytes,
            parallel=not batch.is_small,
        )
        return activations

    def update(
        self, ids: SortedIds, gradients: Sequence[Sequence[Gradient | None]], learning_rates: Sequence[float]
    ) -> None:
        """Applies one step: gradients[core][activation] of all cores (None: zeros), learning_rates[tag]."""
        self.prepare_update(ids, gradients, learning_rates)()

    def prepare_update(
        self, ids: SortedIds, gradients: Sequence[Sequence[Gradient | None]], learning_rates: Sequence[float]
    ) -> Callable[[], None]:
        """Returns what `update` has left to do when all memory that it needs is there."""
        settings = self._settings.copy()
        for table in self._dynamic:
            new = settings_of(self._optimizers[table], learning_rates)
            settings[table, : len(new)] = new
        gradient_rows = self._gradient_rows(gradients)
        tasks = cut_rows(self.descriptors, self.steps, ids.segments, ids.distinct, ids.rows, ids.starts)
        return partial(
            self._workers.run,
            update,
            tasks,
            self.descriptors,
            self.steps,
            settings,
            ids.rows,
            ids.starts,
            ids.samples,
            ids.gains,
            ids.weighted,
            gradient_rows,
            self._plan.sample_offsets,
            len(gradients),
            parallel=len(tasks) > len(self._optimizers) or not ids.is_small,
        )

    def _gradient_rows(self, gradients: Sequence[Sequence[Gradient | None]]) -> NDArray[np.int64]:
        """Returns the address of the gradient of every sample row, table by table and in each core after core."""
        offsets = self._plan.sample_offsets
        zero = (address(self._zero), 0)
        places = []
        for core, of_core in enumerate(gradients):
            for activation, gradient in zip(self._plan.activations, of_core, strict=True):
                first, last = offsets[activation.table], offsets[activation.table + 1]
                row = first * len(gradients) + core * (last - first) + activation.first_sample - first
                start, row_bytes = zero if gradient is None else (gradient.address, gradient.row_bytes)
                places.append((row, activation.num_samples, start, row_bytes))
        rows = np.empty(int(offsets[-1]) * len(gradients), np.int64)
        place_rows(np.array(places, np.int64), rows)
        return rows

    def _compile(self) -> NDArray[np.int64]:
        """Returns the tables' rows of `kernels.update.optimizers`, compiled now so that no step waits for it."""
        started = time.perf_counter()
        steps = [
            (
                compiled_step(optimizer) if optimizer.rule else 0,
                optimizer.gradient_accumulation,
                optimizer.updates_every_row,
            )
            for optimizer in self._optimizers
        ]
        _log.info("compiled the updates of %d tables in %.1f s", len(steps), time.perf_counter() - started)
        return np.array(steps, np.int64)


def _stack(settings: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    stacked = np.zeros((len(settings), max(map(len, settings))), np.float32)
    for row, values in zip(stacked, settings, strict=True):
        row[: len(values)] = values
    return stacked


def _quantization(optimizer: Optimizer) -> tuple[float, float, float]:
    """Returns lower limit, upper limit and bucket width; a width of 0 stands for none."""
    quantization = optimizer.simulated_quantization
    if quantization is None:
        return 0.0, 0.0, 0.0
    lower, upper = map(np.float32, quantization.clipping_limits)
    return float(lower), float(upper), float((upper - lower) / np.float32(quantization.num_buckets - 1))
