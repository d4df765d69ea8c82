"""Writes docs/performance_peers.md and its plots from the results of `make bench-peers`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from generate_optimizer_docs import table
from performance_series import FIGURES, NAMES, PEERS, lines_of
from performance_targets import target_rows

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, RESULTS, PLOTS = DOCS / "performance_peers.md", DOCS / "performance" / "peers.json", DOCS / "performance"

HEAD = """\
# Beside other engines

Written by `scripts/generate_performance_docs.py` from the results of `make bench-peers`.
"""
INTRODUCTION = """\
`make bench-peers` trains the same tables with the same ids and gradients in each engine: look up, backward to the
tables, update. All engines of a row shared one process, bound to as many processors as threads, and took turns in
every repetition, in an order that changes; each turn began when the threads of the one before
had stopped spinning. Numbers are medians; a ratio is an engine's median to
anycore's over the repetitions in which both took part: {repetitions} of them, or as many as stand in brackets where an
engine is slow. Before that, one step of each engine from the same start was compared: activations and parameters
differed by {deviation:.0e} at most. Meanwhile other processes kept at most {busy:.0%} of the machine busy.

For anycore a step is enqueue, receive and send, all checks included. The others get their inputs as they like them
best, made outside of the time: FBGEMM all features in one tensor, TensorFlow sparse tensors, JAX stacked tables. JAX
updates whole tables. A cell is empty where an engine has no such optimizer, would need more memory than there is, or
minutes.

The floor is the memory traffic alone, in a program of its own and with ids of its own, so that nothing is in a cache
already: it reads the row of every id, then reads and writes the record of every distinct row once."""


def render(results: Mapping[str, Any]) -> str:
    """Returns the page."""
    steps = results.get("steps", {})
    if not steps:
        return f"{HEAD}\nNothing is measured yet.\n"
    measured = [*steps.values(), *results.get("memory", {}).values(), *results.get("startup", {}).values()]
    texts = [HEAD.rstrip(), _introduction(steps), *_machines(measured)]
    texts += ["## Aims", table(["aim", "limit", "measured, from the worst on", "met"], target_rows(results))]
    texts += ["## Workloads", _workloads(steps)]
    for threads in sorted({result["threads"] for result in steps.values()}, reverse=True):
        rows = list(_rows(result for result in steps.values() if result["threads"] == threads))
        texts += [f"## {_threads(threads)}", "Whole steps:", _whole_steps(rows)]
        texts += ["Forward alone, as for inference, checks of the ids included:", _look_ups(rows)]
        texts += ["Stages, milliseconds:", _stages(rows)]
    texts += _figures(steps)
    if "memory" in results:
        texts += ["## Memory", _memory(results["memory"].values())]
    if "startup" in results:
        texts += ["## Start-up", *_startup(results["startup"])]
    return "\n\n".join(texts) + "\n"


Row = tuple[str, Mapping[str, Any], Mapping[str, Any]]
"""Workload and draw; the workload's result; the draw's."""


def _rows(results: Iterable[Mapping[str, Any]]) -> Iterable[Row]:
    for result in results:
        settings = f"; {result['settings']}" if result["settings"] else ""
        for draw, of_draw in result["draws"].items():
            yield f"`{result['key']}` {draw}{settings}", result, of_draw


def _introduction(steps: Mapping[str, Any]) -> str:
    draws = [of_draw for result in steps.values() for of_draw in result["draws"].values()]
    deviation = max(max(of_draw["deviations"].values(), default=0.0) for of_draw in draws)
    counts = {of_draw["contenders"]["anycore"]["repetitions"] for of_draw in draws}
    repetitions = " to ".join(map(str, sorted({min(counts), max(counts)})))
    busy = max(result["busy_elsewhere"] for result in steps.values())
    text = INTRODUCTION.format(repetitions=repetitions, deviation=deviation, busy=busy)
    return "\n\n".join(textwrap.fill(part, 120, break_on_hyphens=False) for part in text.split("\n\n"))


def _machines(measured: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    dates: dict[str, set[str]] = {}
    for result in measured:
        machine = result["machine"]
        words = "; ".join(f"{what} {machine[what]}" for what in ("caches", "memory", "huge pages"))
        text = f"{machine['processor']}; {words}; {machine['system']}; {machine['versions']}."
        dates.setdefault(text, set()).add(result["date"])
    for text, of_machine in dates.items():
        yield f"{' to '.join(sorted({min(of_machine), max(of_machine)}))}: {text}"


def _workloads(steps: Mapping[str, Any]) -> str:
    described = {f"`{result['key']}`": result["workload"] for result in steps.values()}
    return table(["workload", "tables x rows x dimension"], described.items())


def _whole_steps(rows: Sequence[Row]) -> str:
    head = ["workload", "anycore, ms", "ns a distinct row", "floor, ms", "to floor", *PEERS.values()]
    cells = []
    for label, _, of_draw in rows:
        times = of_draw["contenders"]
        ours, floor = times["anycore"]["step"], times["floor"]["step"]
        ratios = [_ratio(times, name, "step_ratio") for name in PEERS]
        a_row = _number(1e6 * ours / of_draw["distinct_rows"])
        cells.append([label, _number(ours), a_row, _number(floor), f"{1 / times['floor']['step_ratio']:.2f}", *ratios])
    return table(head, cells)


def _look_ups(rows: Sequence[Row]) -> str:
    head = ["workload", "anycore, ms", "floor, ms", *PEERS.values()]
    return table(
        head,
        (
            [
                label,
                _number(of_draw["contenders"]["anycore"]["look_up"]),
                _number(of_draw["contenders"]["floor"]["look_up"]),
                *(_ratio(of_draw["contenders"], name, "look_up_ratio") for name in PEERS),
            ]
            for label, _, of_draw in rows
        ),
    )


def _stages(rows: Sequence[Row]) -> str:
    stages = {
        "anycore": ["enqueue", "receive", "send"],
        "floor": ["gather", "read, modify, write"],
        "fbgemm": ["forward", "backward and update"],
    }
    head = [f"{NAMES[name]}: {stage}" for name in stages for stage in stages[name]]
    cells = []
    for label, _, of_draw in rows:
        times = of_draw["contenders"]
        found = [
            _number(times[name]["stages"][stage]) if name in times else "" for name in stages for stage in stages[name]
        ]
        cells.append([label, *found])
    return table(["workload", *head], cells)


def _figures(steps: Mapping[str, Any]) -> list[str]:
    shown = [figure for figure in FIGURES if lines_of(steps, figure)]
    pictures = [f"![{FIGURES[figure]}](performance/{figure}.png)" for figure in shown]
    return ["## Growth", *pictures] if pictures else []


def _memory(results: Iterable[Mapping[str, Any]]) -> str:
    head = [
        "workload",
        "engine",
        "parameters and slots, GiB",
        "a batch, GiB",
        "peak, GiB",
        "peak to parameters and slots",
    ]
    cells = []
    for result in results:
        state, batch = result["state"], result["batch"]
        used = result["peak"] - result["ready"]
        gib = [f"{size / 2**30:.2f}" for size in (state, batch, used)]
        cells.append([f"`{result['key']}`", NAMES[result["contender"]], *gib, f"{used / state:.2f}"])
    note = "The peak is that of a process that has nothing else, less what libraries and compiled code take in it."
    return f"{note}\n\n{table(head, cells)}"


def _startup(results: Mapping[str, Any]) -> Iterable[str]:
    for result in results.values():
        seconds = result["seconds"]
        stages = list(next(iter(seconds.values())))
        cells = ([NAMES.get(name, name), *(f"{of[stage]:.2f}" for stage in stages)] for name, of in seconds.items())
        yield table([result["what"], *(f"{stage}, s" for stage in stages)], cells)


def _ratio(times: Mapping[str, Any], name: str, which: str) -> str:
    if name not in times:
        return ""
    repetitions = times[name]["repetitions"]
    fewer = f" ({repetitions})" if repetitions < times["anycore"]["repetitions"] else ""
    return f"{_number(times[name][which])}{fewer}"


def _number(value: float) -> str:
    """Returns three digits, or whole thousands with commas."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def main() -> None:
    """Writes the page and the plots."""
    from performance_plots import draw

    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    PAGE.write_text(render(results), "utf-8")
    draw(results.get("steps", {}), PLOTS)


if __name__ == "__main__":
    main()
