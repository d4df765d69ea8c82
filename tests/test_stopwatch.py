"""Medians and ratios of the benchmark beside other engines."""

from __future__ import annotations

from typing import Any

import pytest
from peers.contenders.contender import Lap
from peers.stopwatch import Stopwatch


def watch(steps: dict[int, float], look_ups: dict[int, float] | None = None) -> Stopwatch:
    made = Stopwatch()
    made.step, made.look_up = steps, look_ups or steps
    return made


def test_ratio_is_of_the_repetitions_in_which_both_took_part() -> None:
    # The machine was slow in the odd repetitions.
    reference = watch({0: 1.0, 1: 10.0, 2: 1.0, 3: 10.0, 4: 1.0})
    summary = watch({0: 3.0, 2: 4.0, 4: 5.0}, {0: 1.0, 2: 2.0, 4: 3.0}).summary(reference)
    assert summary == {
        "repetitions": 3,
        "step": 4000.0,
        "step_quartiles": [3500.0, 4500.0],
        "step_ratio": 4.0,
        "look_up": 2000.0,
        "look_up_ratio": 2.0,
        "stages": {},
    }


def test_turn_notes_the_mean_of_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    class Player:
        def prepare(self, batch: Any) -> Any:
            return batch

        def look_up(self, prepared: float) -> None:
            now[0] += prepared

        def step(self, prepared: float, lap: Lap) -> None:
            for stage, share in (("there", 0.25), ("back", 0.75)):
                now[0] += share * prepared
                lap(stage)

    made = Stopwatch()
    made.turn(Player(), 7, [1.0, 3.0], [4.0, 8.0])
    assert made.look_up == {7: 2.0}
    assert made.step == {7: 6.0}
    assert made.stages == {"there": [1.5], "back": [4.5]}
