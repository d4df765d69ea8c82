"""What the speed of anycore is meant to be, and what `make bench-peers` found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

Results = Mapping[str, Any]
"""What the JSON file holds: section → key → result."""
Found = Iterable[tuple[str, float]]
"""Where, and how much."""

_THREADS = 2
_SHOWN = 3


@dataclass(frozen=True)
class Target:
    """A number that should be at least, or at most, `limit` wherever it is measured."""

    what: str
    limit: float
    find: Callable[[Results], Found]
    at_least: bool = False

    def row(self, results: Results) -> list[str]:
        """Returns the cells: what, limit, the numbers from the worst on, and whether all are within the limit."""
        bound = f"{'≥' if self.at_least else '≤'} {self.limit:g}"
        found = sorted(self.find(results), key=lambda pair: pair[1], reverse=not self.at_least)
        if not found:
            return [self.what, bound, "not measured", ""]
        missed = sum(value < self.limit if self.at_least else value > self.limit for _, value in found)
        texts = [f"{value:.3g} ({place})" for place, value in found[:_SHOWN]]
        if len(found) > _SHOWN:
            texts.append(f"… {found[-1][1]:.3g} ({found[-1][0]})")
        verdict = "yes" if not missed else "**no**" if len(found) == 1 else f"**no**: {missed} of {len(found)}"
        return [self.what, bound, ", ".join(texts), verdict]


def _draws(results: Results, keys: str, draws: str = "*") -> Iterator[tuple[str, Results, Results]]:
    """Yields place, contenders and all draws of the workloads and draws that match, without special settings."""
    for result in results.get("steps", {}).values():
        if result["settings"] or result["threads"] != _THREADS or not fnmatchcase(result["key"], keys):
            continue
        for draw, of_draw in result["draws"].items():
            if fnmatchcase(draw, draws):
                yield f"`{result['key']}` {draw}", of_draw["contenders"], result["draws"]


def _ratio(engine: str, keys: str, draws: str = "*", which: str = "step_ratio") -> Callable[[Results], Found]:
    """Returns how an engine's time, to anycore's, is found."""

    def find(results: Results) -> Found:
        for place, contenders, _ in _draws(results, keys, draws):
            if engine in contenders:
                yield place, contenders[engine][which]

    return find


def _to_floor(*keys: str) -> Callable[[Results], Found]:
    def find(results: Results) -> Found:
        for each in keys:
            for place, contenders, _ in _draws(results, each):
                yield place, 1 / contenders["floor"]["step_ratio"]

    return find


def _milliseconds(key: str) -> Callable[[Results], Found]:
    return lambda results: [(place, of["anycore"]["step"]) for place, of, _ in _draws(results, key)]


def _hot(results: Results) -> Found:
    for place, contenders, draws in _draws(results, "dlrm:*", "20 ids, hot"):
        yield place, contenders["anycore"]["step"] / draws["20 ids, uniform"]["contenders"]["anycore"]["step"]


def _memory(keys: str, number: Callable[[Results], float]) -> Callable[[Results], Found]:
    def find(results: Results) -> Found:
        for result in results.get("memory", {}).values():
            if result["contender"] == "anycore" and fnmatchcase(result["key"], keys):
                yield f"`{result['key']}`", number(result)

    return find


def _seconds(what: str, case: str, stage: str) -> Callable[[Results], Found]:
    def find(results: Results) -> Found:
        if what in results.get("startup", {}):
            yield case, results["startup"][what]["seconds"][case][stage]

    return find


_CONFIGURING = "five optimizers, by what is on disk"
TARGETS = [
    Target("Adagrad, 20 ids a sample: FBGEMM's step", 6, _ratio("fbgemm", "dlrm:adagrad", "20 ids*"), at_least=True),
    Target("Adagrad, 1 id a sample: FBGEMM's step", 4, _ratio("fbgemm", "dlrm:adagrad", "1 id,*"), at_least=True),
    Target("SGD: FBGEMM's step", 2.2, _ratio("fbgemm", "dlrm:stochastic_gradient_descent"), at_least=True),
    Target("row-wise Adagrad: FBGEMM's step", 1.2, _ratio("fbgemm", "dlrm:row_wise_adagrad"), at_least=True),
    Target("shared tables: FBGEMM's step", 4, _ratio("fbgemm", "shared:adagrad"), at_least=True),
    Target("sequences: FBGEMM's step", 4, _ratio("fbgemm", "sequence:adagrad"), at_least=True),
    Target("forward alone: FBGEMM's, any workload", 0.95, _ratio("fbgemm", "*", which="look_up_ratio"), at_least=True),
    Target("20 ids a sample: PyTorch's step", 80, _ratio("torch", "dlrm:adagrad", "20 ids*"), at_least=True),
    Target("20 ids a sample: TensorFlow's step", 15, _ratio("tensorflow", "dlrm:adagrad", "20 ids*"), at_least=True),
    Target("20 ids a sample: JAX's step", 30, _ratio("jax", "dlrm:adagrad", "20 ids*"), at_least=True),
    Target("SGD and Adagrad: step to floor", 1.6, _to_floor("dlrm:stochastic_gradient_descent", "dlrm:adagrad")),
    Target("every optimizer: step to floor", 2.5, _to_floor("optimizers:*")),
    Target("500 small tables, batch 64: ms a step", 4, _milliseconds("small:adagrad")),
    Target("26 tables, batch 1: ms a step", 0.5, _milliseconds("tiny:adagrad")),
    Target("one thread's step to that of two", 1.7, _ratio("anycore_one_thread", "threads:adagrad"), at_least=True),
    Target("one id in half of all lookups: step to that of uniform ids", 1.3, _hot),
    Target(
        "memory: peak less a batch, to parameters and slots",
        1.1,
        _memory("*", lambda of: (of["peak"] - of["ready"] - of["batch"]) / of["state"]),
    ),
    Target("12 GB of tables: peak, GiB", 24, _memory("huge:*", lambda of: of["peak"] / 2**30)),
    Target("`import anycore`: seconds", 0.3, _seconds("import", "anycore", "import")),
    Target("five optimizers configured: seconds", 3, _seconds(_CONFIGURING, "nothing stored", "configure")),
    Target("the same again: seconds", 1, _seconds(_CONFIGURING, "all stored", "configure")),
]


def target_rows(results: Results) -> list[list[str]]:
    """Returns the cells of every target."""
    return [target.row(results) for target in TARGETS]
