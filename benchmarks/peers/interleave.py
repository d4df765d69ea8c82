"""Workloads in one process: contenders and the floor take turns in every repetition."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Sequence
from typing import Any

from peers.agreement import REFERENCE, check_agreement
from peers.batches import Batches
from peers.contenders.anycore import Anycore
from peers.contenders.contender import Contender, Timed, contender_class
from peers.contenders.floor import Floor
from peers.machine import Neighbours, process_memory
from peers.stopwatch import Stopwatch
from peers.workloads import Draw, Workload, named

FLOOR = "floor"
_FEWEST = 3
"""Repetitions of the slowest contender."""
_SLOW = 1.0
"""Seconds after which nobody is warmed up again: the comparison of numbers has compiled the step already."""
_FRAMEWORKS_BYTES = 2 << 30
"""What all imported libraries and their pools take."""
_GRADIENT_COPIES = 3
"""Of a row for every lookup, for sparse gradients before they are summed."""


def interleave(num_threads: int, keys: Sequence[str], tiny: bool, **limits: Any) -> list[dict[str, Any]]:
    """Returns for each workload the times of its contenders by draw; `limits` are the arguments of `take_turns`."""
    results = []
    for key in keys:
        print(key, flush=True)  # is shown when a measurement fails
        results.append(take_turns(named(key, tiny), num_threads, **limits))
    return results


def take_turns(
    workload: Workload, num_threads: int, chosen: Sequence[str], repetitions: int, memory_bytes: int, seconds: float
) -> dict[str, Any]:
    """Returns the times of the chosen contenders that fit into `memory_bytes`, of all if none is chosen.

    One that would need more than `seconds` for its turns on a draw takes fewer of them, evenly spread.
    """
    names, absent = _admitted(workload, chosen, memory_bytes)
    contenders: dict[str, Contender] = {name: contender_class(name)(workload, num_threads) for name in names}
    reference = contenders[REFERENCE]
    assert isinstance(reference, Anycore)
    batches = Batches(workload, seed=0)
    # All before any timing: the floor spoils values.
    deviations = {draw: check_agreement(workload, contenders, batches.next(draw)) for draw in workload.draws}
    players: dict[str, Timed] = {**contenders, FLOOR: Floor(reference)}
    periods = {draw: _periods(players, batches, draw, workload.burst, repetitions, seconds) for draw in workload.draws}
    watches = {draw: {name: Stopwatch() for name in players} for draw in workload.draws}
    gc.collect()
    gc.freeze()
    neighbours = Neighbours()
    for repetition in range(repetitions):
        for draw in workload.draws:
            due = [name for name in players if repetition % periods[draw][name] == 0]
            _round(
                {name: players[name] for name in turn_order(due, repetition)},
                batches,
                draw,
                repetition,
                watches[draw],
                workload.burst,
            )
    busy_elsewhere = neighbours.share()
    gc.unfreeze()
    return {
        "workload": str(workload),
        "absent": absent,
        "busy_elsewhere": round(busy_elsewhere, 3),
        "peak_gib": round(process_memory("VmHWM") / 2**30, 1),
        "draws": {
            str(draw): {
                "lookups": workload.num_features * workload.batch_size * draw.ids_per_sample,
                "distinct_rows": batches.next(draw).distinct_rows(workload),
                "deviations": {name: float(f"{value:.2g}") for name, value in deviations[draw].items()},
                "contenders": {name: watch.summary(of_draw[REFERENCE]) for name, watch in of_draw.items()},
            }
            for draw, of_draw in watches.items()
        },
    }


def _admitted(workload: Workload, chosen: Sequence[str], memory_bytes: int) -> tuple[list[str], dict[str, str]]:
    """Returns who takes part, and why the others do not; the reference always does."""
    admitted: list[str] = []
    absent = {}
    most_ids = max(draw.ids_per_sample for draw in workload.draws)
    lookup_bytes = 4 * workload.num_features * workload.batch_size * most_ids * workload.dimension
    left = memory_bytes - _FRAMEWORKS_BYTES - _GRADIENT_COPIES * lookup_bytes
    for name in workload.contenders:
        if chosen and name not in (REFERENCE, *chosen):
            continue
        contender = contender_class(name)
        needed = workload.state_bytes + contender.dense_copies * workload.parameter_bytes
        if workload.optimizer not in contender.optimizers:
            absent[name] = "has no such optimizer"
        elif needed > left:
            absent[name] = f"no memory: {needed / 2**30:.1f} GiB"
        else:
            admitted.append(name)
            left -= needed
    return admitted, absent


def _periods(
    players: dict[str, Timed], batches: Batches, draw: Draw, burst: int, repetitions: int, seconds: float
) -> dict[str, int]:
    """Returns for each player of how many repetitions it takes part in one, and warms all of them up."""
    periods = {}
    for name, player in players.items():
        prepared = player.prepare(batches.next(draw))
        took = _seconds(player, prepared)
        if took < _SLOW:
            # Again, for it may have compiled.
            took = _seconds(player, prepared)
        wanted = math.ceil(took * burst * repetitions / seconds)
        longest = max(1, (repetitions - 1) // (_FEWEST - 1))
        # The ratios are to anycore's times in the same repetitions.
        periods[name] = 1 if name in (REFERENCE, FLOOR) else min(wanted, longest)
    return periods


def _seconds(player: Timed, prepared: Any) -> float:
    started = time.perf_counter()
    player.look_up(prepared)
    player.step(prepared, lambda stage: None)
    return time.perf_counter() - started


def turn_order(due: list[str], repetition: int) -> list[str]:
    """Returns who comes after whom: everybody is first in turn, and half of the time behind the other neighbour."""
    start = repetition // 2 % len(due)
    turned = due[start:] + due[:start]
    return turned[::-1] if repetition % 2 else turned


def _round(
    players: dict[str, Timed],
    batches: Batches,
    draw: Draw,
    repetition: int,
    watches: dict[str, Stopwatch],
    burst: int,
) -> None:
    drawn = [batches.next(draw) for _ in range(2 * burst)]
    # Its rows must not be in the cache already.
    of_floor = [batches.next(draw) for _ in range(2 * burst)]
    for name, player in players.items():
        prepared = [player.prepare(batch) for batch in (of_floor if name == FLOOR else drawn)]
        gc.collect()
        gc.disable()
        try:
            watches[name].turn(player, repetition, prepared[:burst], prepared[burst:])
        finally:
            gc.enable()
