"""Times of one contender on one draw, repetition by repetition."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from peers.contenders.contender import Timed

_REST = 0.02
"""Seconds before a turn: the threads of the contender before go on spinning for some, PyTorch's for about 0.004."""


class Stopwatch:
    """Seconds a step, by stage and by repetition."""

    def __init__(self) -> None:
        self.look_up: dict[int, float] = {}
        self.step: dict[int, float] = {}
        self.stages: dict[str, list[float]] = {}

    def turn(self, contender: Timed, repetition: int, look_ups: Sequence[Any], steps: Sequence[Any]) -> None:
        """Times look-ups and training steps of prepared batches, each in a row, and notes their means."""
        time.sleep(_REST)
        started = time.perf_counter()
        for prepared in look_ups:
            contender.look_up(prepared)
        self.look_up[repetition] = (time.perf_counter() - started) / len(look_ups)
        laps: dict[str, float] = {}
        last = time.perf_counter()

        def lap(stage: str) -> None:
            nonlocal last
            now = time.perf_counter()
            laps[stage] = laps.get(stage, 0.0) + now - last
            last = now

        started = last
        for prepared in steps:
            contender.step(prepared, lap)
        self.step[repetition] = (time.perf_counter() - started) / len(steps)
        for stage, seconds in laps.items():
            self.stages.setdefault(stage, []).append(seconds / len(steps))

    def summary(self, reference: Stopwatch) -> dict[str, Any]:
        """Returns medians in milliseconds, and their ratios to the reference's in the same repetitions."""
        return {
            "repetitions": len(self.step),
            "step": _milliseconds(list(self.step.values())),
            "step_quartiles": [_milliseconds(list(self.step.values()), q) for q in (25, 75)],
            "step_ratio": _ratio(self.step, reference.step),
            "look_up": _milliseconds(list(self.look_up.values())),
            "look_up_ratio": _ratio(self.look_up, reference.look_up),
            "stages": {stage: _milliseconds(times) for stage, times in self.stages.items()},
        }


def _milliseconds(seconds: Sequence[float], percentile: int = 50) -> float:
    return float(f"{1e3 * np.percentile(seconds, percentile):.4g}")


def _ratio(times: dict[int, float], reference: dict[int, float]) -> float:
    beside = [reference[repetition] for repetition in times]
    return float(f"{np.median(list(times.values())) / np.median(beside):.4g}")
