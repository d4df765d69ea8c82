"""One workload in one process: contenders and the floor take turns in every repetition."""

from __future__ import annotations

import gc
import math
import time
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
_FRAMEWORKS_BYTES = 2 << 30
"""What all imported libraries and their pools take."""
_GRADIENT_COPIES = 3
"""Of a row for every lookup, for sparse gradients before they are summed."""


def interleave(
    num_threads: int, key: str, tiny: bool, repetitions: int, memory_bytes: int, seconds: float
) -> dict[str, Any]:
    """Returns the times of the contenders of a workload that fit into `memory_bytes`, by draw.

    One that would need more than `seconds` for its turns on a draw takes fewer of them, evenly spread.
    """
    workload = named(key, tiny)
    names, absent = _admitted(workload, memory_bytes)
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
            # Nobody is always behind the same one.
            start = repetition % len(due)
            _round(
                {name: players[name] for name in due[start:] + due[:start]},
                batches,
                draw,
                repetition,
                watches[draw],
                workload.burst,
            )
    busy_elsewhere = neighbours.share()
    return {
        "workload": str(workload),
        "absent": absent,
        "busy_elsewhere": round(busy_elsewhere, 3),
        "peak_gib": round(process_memory("VmHWM") / 2**30, 1),
        "draws": {
            str(draw): {
                "lookups": workload.num_features * workload.batch_size * draw.ids_per_sample,
                "distinct_rows": sum(map(len, batches.next(draw).rows(workload))),
                "deviations": {name: float(f"{value:.2g}") for name, value in deviations[draw].items()},
                "contenders": {name: watch.summary(of_draw[REFERENCE]) for name, watch in of_draw.items()},
            }
            for draw, of_draw in watches.items()
        },
    }


def _admitted(workload: Workload, memory_bytes: int) -> tuple[list[str], dict[str, str]]:
    """Returns who takes part, and why the others do not."""
    admitted: list[str] = []
    absent = {}
    most_ids = max(draw.ids_per_sample for draw in workload.draws)
    lookup_bytes = 4 * workload.num_features * workload.batch_size * most_ids * workload.dimension
    left = memory_bytes - _FRAMEWORKS_BYTES - _GRADIENT_COPIES * lookup_bytes
    for name in workload.contenders:
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
        # Twice, for the first may compile.
        for _ in range(2):
            started = time.perf_counter()
            player.look_up(prepared)
            player.step(prepared, lambda stage: None)
            took = time.perf_counter() - started
        wanted = math.ceil(took * burst * repetitions / seconds)
        periods[name] = max(1, min(wanted, (repetitions - 1) // (_FEWEST - 1)))
    return periods


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
