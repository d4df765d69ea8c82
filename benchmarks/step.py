"""Times the stages of a training step beside the memory traffic that they cannot avoid, all in one run.

Stages and floors take turns in every repetition, so that a slow moment of the machine meets them all; the table shows
medians and the ratio of each stage to its floor.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import floor
import numpy as np
from trained_optimizers import trained_optimizers
from workload import Workload

from anycore import EmbeddingEngine, Ragged
from anycore.batch import IdBatch, read_batch
from anycore.entries import entries_of
from anycore.gradients import read_gradients
from anycore.kernels.parallel import available_threads, workers
from anycore.kernels.tasks import cut_rows
from anycore.optimizers import FTRL, Adagrad, AdagradMomentum, Optimizer
from anycore.plan import Plan
from anycore.sorted_ids import SortedIds, sort_ids
from anycore.tables import Tables

STEP = ("ingest", "sort", "forward", "update")
"""The stages of a step."""

_Result = TypeVar("_Result")


class Stopwatch:
    """Times of named stages, in seconds, one each repetition."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    def time(self, name: str, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """Returns function(*arguments), and notes how long it took."""
        started = time.perf_counter()
        result = function(*arguments)
        self.times.setdefault(name, []).append(time.perf_counter() - started)
        return result

    def median(self, *names: str) -> float:
        """Returns the median, in milliseconds, of the stages' sum; the first two repetitions warm up."""
        return 1e3 * float(np.median(np.sum([self.times[name] for name in names], axis=0)[2:]))


class Stages:
    """The tables of one workload, the times of every stage of a step and of its floor."""

    def __init__(self, workload: Workload, num_threads: int) -> None:
        self._workload = workload
        self._random = np.random.default_rng(0)
        self._pool = workers(num_threads)
        self._plan = Plan(workload.config())
        self._tables = Tables(self._plan, 0, self._pool)
        self._entries = entries_of(self._plan, None, (), (), ())
        self._gradients = [read_gradients(self._plan, workload.gradients(self._random), copy=False)]
        self.watch = Stopwatch()

    def repeat(self) -> None:
        """Runs every stage and floor once."""
        watch, plan, tables, pool = self.watch, self._plan, self._tables, self._pool
        # The floors get ids of their own, or their rows would be in the cache already.
        other = self._read(self._workload.batch(self._random))
        rows = sort_ids(plan.sample_offsets, tables.descriptors, [other], pool)
        tasks = cut_rows(tables.descriptors, tables.steps, rows.segments, rows.distinct, rows.rows, rows.starts)
        sums = np.zeros(1, np.float32)
        watch.time(
            "forward floor", pool.run, floor.gather, other.tasks, tables.descriptors, other.ids, other.splits, sums
        )
        watch.time("update floor", pool.run, floor.read_modify_write, tasks, tables.descriptors, rows.rows)
        batch = watch.time("ingest", self._read, self._workload.batch(self._random))
        ids = watch.time("sort", sort_ids, plan.sample_offsets, tables.descriptors, [batch], pool)
        watch.time("forward", tables.look_up, [batch], None)
        watch.time("update", self._update, ids)

    def _update(self, ids: SortedIds) -> None:
        self._tables.prepare_update(ids, self._gradients, [0.01] * self._plan.num_tags)()

    def _read(self, inputs: list[Ragged]) -> IdBatch:
        return read_batch(self._plan, self._tables.descriptors, self._entries, inputs, self._pool)


def time_stages(workloads: list[Workload], num_threads: int, repetitions: int) -> list[Stopwatch]:
    """Returns the times of the workloads, which take turns in every repetition."""
    stages = [Stages(workload, num_threads) for workload in workloads]
    for _ in range(repetitions + 2):
        for each in stages:
            each.repeat()
    return [each.watch for each in stages]


def time_engine(workload: Workload, num_threads: int, repetitions: int) -> Stopwatch:
    """Returns the times of the engine's three calls."""
    random = np.random.default_rng(0)
    engine = EmbeddingEngine(workload.config(), num_threads=num_threads)
    gradients = workload.gradients(random)
    watch = Stopwatch()
    for _ in range(repetitions + 2):
        watch.time("enqueue", engine.enqueue, workload.batch(random))
        watch.time("receive", engine.receive_activations)
        watch.time("send", engine.send_gradients, gradients)
    return watch


def report_stages(num_threads: int, repetitions: int, ids_per_sample: int) -> None:
    """Prints forward, sort and update beside their floors for each distribution of ids."""
    for zipf in (0.0, 1.1):
        workload = Workload(ids_per_sample=ids_per_sample, zipf=zipf)
        (stages,) = time_stages([workload], num_threads, repetitions)
        median = stages.median
        print(f"\n{workload}, Adagrad, {num_threads} threads, median of {repetitions}\n")
        print("| stage | ms | floor, ms | ratio |\n|---|---|---|---|")
        print(f"| ingest | {median('ingest'):.2f} | | |")
        print(
            f"| forward | {median('forward'):.2f} | {median('forward floor'):.2f} "
            f"| {median('forward') / median('forward floor'):.2f} |"
        )
        print(f"| sort | {median('sort'):.2f} | | |")
        print(f"| update | {median('update'):.2f} | {median('update floor'):.2f} | |")
        print(
            f"| sort + update | {median('sort', 'update'):.2f} | {median('update floor'):.2f} "
            f"| {median('sort', 'update') / median('update floor'):.2f} |"
        )
        engine = time_engine(workload, num_threads, repetitions)
        calls = ("enqueue", "receive", "send")
        print(
            f"\nengine: {', '.join(f'{call} {engine.median(call):.2f}' for call in calls)}, "
            f"whole step {engine.median(*calls):.2f} ms"
        )


def report_optimizers(num_threads: int, repetitions: int) -> None:
    """Prints update and step of every optimizer beside its own floor and beside Adagrad's of the same dimension."""
    print(f"\n{Workload()}, every optimizer, {num_threads} threads, median of {repetitions}\n")
    print("| optimizer | dimension | update, ms | floor, ms | ratio | update to Adagrad's | step to Adagrad's |")
    print("|---|---|---|---|---|---|---|")
    for name, optimizer in _optimizers().items():
        workload = replace(Workload(), dimension=optimizer.only_dimension or Workload.dimension, optimizer=optimizer)
        beside = replace(workload, optimizer=Adagrad())
        this, adagrad = (watch.median for watch in time_stages([workload, beside], num_threads, repetitions))
        print(
            f"| {name} | {workload.dimension} | {this('update'):.1f} | {this('update floor'):.1f} "
            f"| {this('update') / this('update floor'):.2f} | {this('update') / adagrad('update'):.2f} "
            f"| {this(*STEP) / adagrad(*STEP):.2f} |",
            flush=True,
        )


def _optimizers() -> dict[str, Optimizer]:
    return trained_optimizers() | {
        "ftrl, power -0.3": FTRL(lr_power=-0.3),
        "adagrad_momentum, exponent 3": AdagradMomentum(exponent=3.0),
    }


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=available_threads())
    parser.add_argument("--repetitions", type=int, default=25)
    options = parser.parse_args()
    for ids_per_sample in (20, 1):
        report_stages(options.threads, options.repetitions, ids_per_sample)
    report_optimizers(options.threads, options.repetitions)


if __name__ == "__main__":
    main()
