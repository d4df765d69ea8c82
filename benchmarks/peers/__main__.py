"""anycore beside other embedding engines: the same step, interleaved in one process, ratios of medians.

Without --only, --memory, --startup or --large all is measured except what is large. Every result goes into the JSON
file at once and replaces the older one of its key, so all can be measured in pieces. docs/performance_peers.md is made
of that file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from peers import summary
from peers.interleave import interleave
from peers.machine import describe_machine
from peers.memory import peak_memory
from peers.processes import ChildError, in_child
from peers.results import Results
from peers.startup import time_configuring, time_imports, time_initialising
from peers.workloads import Workload, chosen, unlike_when_tiny

ROOT = Path(__file__).resolve().parents[2]
_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE": "1"}
_MEMORY, _LARGE = ["dlrm:adagrad", "single:adagrad"], ["huge"]


class Benchmark:
    """Measures what the command line asks for, and stores it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._most_threads = max(options.threads or [2])
        self._environment = dict(_HUGE_PAGES) if options.huge_pages else {}
        if options.passive:
            self._environment["OMP_WAIT_POLICY"] = "PASSIVE"
        settings = {"huge pages for all": options.huge_pages, "passive OpenMP threads": options.passive}
        self._suffix = "".join(f", {setting}" for setting, wanted in settings.items() if wanted)
        run = {"machine": describe_machine(), "settings": self._suffix.removeprefix(", ")}
        self._results = Results(options.json, run)
        self.failed = False

    def run(self) -> None:
        """Measures all of it; what fails is reported and left out."""
        options = self._options
        rest = not (options.only or options.memory or options.startup or options.large)
        if rest or (options.only and not options.memory):
            self._all_steps(chosen(options.only))
        if rest or options.memory:
            for workload in chosen(options.only or _MEMORY[: 1 if options.quick else None]):
                self._memory(workload, workload.contenders)
        if options.large:
            for workload in chosen(_LARGE):
                self._memory(workload, ("anycore",))
        if options.startup or (rest and not options.quick):
            self._startup()

    def _all_steps(self, workloads: list[Workload]) -> None:
        if self._options.quick:
            # In one process, for most of the time would be imports.
            self._steps(unlike_when_tiny(workloads), self._most_threads)
            return
        for workload in workloads:
            for num_threads in self._options.threads or [workload.threads]:
                self._steps([workload], num_threads)

    def _steps(self, workloads: list[Workload], num_threads: int) -> None:
        options = self._options
        measure = partial(
            in_child,
            interleave,
            num_threads,
            self._environment,
            keys=[workload.key for workload in workloads],
            tiny=options.quick,
            chosen=options.contenders,
            repetitions=options.repetitions,
            memory_bytes=round(options.memory_limit * 2**30),
            seconds=options.seconds,
        )
        entries = {
            f"{workload.key}, {num_threads} threads{self._suffix}": {"key": workload.key, "threads": num_threads}
            for workload in workloads
        }
        self._attempt("steps", entries, measure, summary.of_steps)

    def _memory(self, workload: Workload, contenders: tuple[str, ...]) -> None:
        for name in contenders:
            about = {"key": workload.key, "contender": name, "threads": self._most_threads}
            measure = partial(
                in_child,
                peak_memory,
                self._most_threads,
                key=workload.key,
                tiny=self._options.quick,
                contender=name,
            )
            self._attempt("memory", {f"{workload.key}, {name}": about}, _listed(measure), summary.of_memory)

    def _startup(self) -> None:
        num_threads, repetitions = self._most_threads, max(1, self._options.repetitions // 3)
        initialise = partial(
            in_child, time_initialising, num_threads, repetitions=repetitions, tiny=self._options.quick
        )
        measures: dict[str, Callable[[], Any]] = {
            "import": partial(time_imports, repetitions),
            "five optimizers, by what is on disk": partial(time_configuring, num_threads, repetitions),
            "starting values of one table": initialise,
        }
        for what, measure in measures.items():
            about = {"what": what, "threads": num_threads}
            self._attempt("startup", {what: about}, _listed(measure), summary.of_startup)

    def _attempt(
        self,
        section: str,
        entries: dict[str, dict[str, Any]],
        measure: Callable[[], list[dict[str, Any]]],
        show: Callable[[dict[str, Any]], str],
    ) -> None:
        """Stores what `measure` returns, a result for each entry; entries are what a result is about, by key."""
        print(f"{section}: {len(entries)} workloads" if len(entries) > 1 else f"{section}: {min(entries)}", flush=True)
        started = time.perf_counter()
        try:
            results = measure()
        except ChildError as error:
            self.failed = True
            print(f"failed: {error}", flush=True)
            return
        took = {"took_seconds": round(time.perf_counter() - started)}
        for (key, about), result in zip(entries.items(), results, strict=True):
            self._results.store(section, key, {**about, **took, **result})
            print(f"{key}, took {took['took_seconds']} s\n{show(result)}\n", flush=True)


def _listed(measure: Callable[[], dict[str, Any]]) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [measure()]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-peers", description=__doc__)
    add = parser.add_argument
    add("--only", nargs="+", default=[], metavar="WORKLOAD", help="names or patterns: dlrm, dlrm:adam, 'batch-*'")
    add("--contenders", nargs="+", default=[], help="beside anycore; the results do not go into the page")
    add("--threads", nargs="+", type=int, help="numbers of threads, a process each, instead of 2")
    add("--repetitions", type=int, default=15, help="of the contenders that are not slow")
    add("--seconds", type=float, default=10, help="a contender that needs more for its turns on a draw takes fewer")
    add("--memory-limit", type=float, default=18, metavar="GIB", help="contenders beyond it are left out")
    add("--huge-pages", action="store_true", help="for all contenders, not only NumPy's arrays (glibc, madvise)")
    add("--passive", action="store_true", help="OpenMP threads (torch, FBGEMM) sleep while waiting, for a busy machine")
    add("--memory", action="store_true", help="peak memory, a process for each contender")
    add("--startup", action="store_true", help="imports, configuring, starting values")
    add("--large", action="store_true", help="12 GB of tables in anycore alone")
    add(
        "--quick",
        action="store_true",
        help="tiny tables and 2 repetitions, to try the benchmark itself; without start-up if not named",
    )
    add("--json", type=Path, help="file of results, build/peers.json for --quick and --contenders")
    options = parser.parse_args()
    if options.quick:
        options.repetitions = 2
    if options.json is None:
        partial_results = options.quick or options.contenders
        options.json = ROOT / ("build/peers.json" if partial_results else "docs/performance/peers.json")
    return options


def main() -> int:
    """Runs the benchmark from the command line; returns 1 when a part of it failed."""
    benchmark = Benchmark(_options())
    try:
        benchmark.run()
    except ValueError as error:
        print(error)
        return 2
    return int(benchmark.failed)


if __name__ == "__main__":
    sys.exit(main())
