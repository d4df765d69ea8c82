"""Times the stages of a training step beside the memory traffic that they cannot avoid, all in one run.

Stages and floors take turns in every repetition, so that a slow moment of the machine meets them all; the table shows
medians and the ratio of each stage to its floor.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any, TypeVar

import floor
import numpy as np
from workload import Workload

from anycore import EmbeddingEngine
from anycore.batch import read_batch
from anycore.entries import entries_of
from anycore.gradients import read_gradients
from anycore.kernels.parallel import available_threads, workers
from anycore.kernels.tasks import cut_rows
from anycore.optimizers import FTRL, OPTIMIZERS, Adagrad, AdagradMomentum, Optimizer, RowWiseAdagrad
from anycore.plan import Plan
from anycore.sorted_ids import sort_ids
from anycore.tables import Tables

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


def time_stages(workload: Workload, num_threads: int, repetitions: int) -> Stopwatch:
    """Returns the times of every stage and floor."""
    random = np.random.default_rng(0)
    pool = workers(num_threads)
    plan = Plan(workload.config())
    tables = Tables(plan, 0, pool)
    entries = entries_of(plan, None, (), (), ())
    gradients = [read_gradients(plan, workload.gradients(random), copy=False)]
    sums = np.zeros(1, np.float32)
    watch = Stopwatch()
    for _ in range(repetitions + 2):
        # The floors get ids of their own, or their rows would be in the cache already.
        other = read_batch(plan, tables.descriptors, entries, workload.batch(random), pool)
        rows = sort_ids(plan, tables.descriptors, [other], pool)
        tasks = cut_rows(tables.descriptors, tables.steps, rows.segments, rows.distinct, rows.rows, rows.starts)
        watch.time(
            "forward floor", pool.run, floor.gather, other.tasks, tables.descriptors, other.ids, other.splits, sums
        )
        watch.time("update floor", pool.run, floor.read_modify_write, tasks, tables.descriptors, rows.rows)
        inputs = workload.batch(random)
        batch = watch.time("ingest", read_batch, plan, tables.descriptors, entries, inputs, pool)
        ids = watch.time("sort", sort_ids, plan, tables.descriptors, [batch], pool)
        watch.time("forward", tables.look_up, batch)
        watch.time("update", tables.update, ids, gradients, [0.01] * plan.num_tags)
    return watch


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
        stages = time_stages(workload, num_threads, repetitions)
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
    """Prints the update of every optimizer beside its own floor and beside Adagrad's of the same dimension."""
    print(f"\n{Workload()}, every optimizer, {num_threads} threads, median of {repetitions}\n")
    print("| optimizer | dimension | update, ms | floor, ms | ratio | to Adagrad |\n|---|---|---|---|---|---|")
    adagrad: dict[int, float] = {}
    for name, optimizer in _optimizers().items():
        workload = replace(Workload(), dimension=optimizer.only_dimension or Workload.dimension, optimizer=optimizer)
        median = time_stages(workload, num_threads, repetitions).median
        if workload.dimension not in adagrad:
            beside = replace(workload, optimizer=Adagrad())
            adagrad[workload.dimension] = time_stages(beside, num_threads, repetitions).median("update")
        print(
            f"| {name} | {workload.dimension} | {median('update'):.1f} | {median('update floor'):.1f} "
            f"| {median('update') / median('update floor'):.2f} "
            f"| {median('update') / adagrad[workload.dimension]:.2f} |"
        )


def _optimizers() -> dict[str, Optimizer]:
    made = {
        name: optimizer()
        for name, optimizer in OPTIMIZERS.items()
        if optimizer.rule is not None and not any(f.default is MISSING for f in fields(optimizer))
    }
    return made | {
        "row_wise_adagrad": RowWiseAdagrad(),
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
