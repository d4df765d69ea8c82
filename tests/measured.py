"""Results of a benchmark that never ran, of the form that a run stores."""

from __future__ import annotations

from typing import Any

MACHINE = {
    "processor": "2 cores of a machine",
    "caches": "L2 1 MiB",
    "memory": "24 GiB",
    "huge pages": "none",
    "system": "Linux",
    "versions": "anycore 0",
}
RUN = {"date": "2026-12-02", "machine": MACHINE, "settings": ""}
GIB = 2**30


def times(step_ratio: float, look_up_ratio: float = 1.0, repetitions: int = 15) -> dict[str, Any]:
    """Returns what is known of a contender whose step takes `step_ratio` times 10 ms."""
    return {
        "repetitions": repetitions,
        "step": 10 * step_ratio,
        "step_quartiles": [9 * step_ratio, 11 * step_ratio],
        "step_ratio": step_ratio,
        "look_up": 4 * look_up_ratio,
        "look_up_ratio": look_up_ratio,
        "stages": {},
    }


def steps(key: str, draws: dict[str, dict[str, Any]], threads: int = 2, settings: str = "") -> dict[str, Any]:
    """Returns one entry of the section `steps`: its contenders by draw; anycore and the floor are added."""
    anycore = {**times(1.0), "stages": {"enqueue": 1.0, "receive": 4.0, "send": 5.0}}
    floor = {**times(0.5), "stages": {"gather": 3.0, "read, modify, write": 2.0}}
    result = {
        **RUN,
        "settings": settings,
        "key": key,
        "threads": threads,
        "workload": f"tables of {key}",
        "absent": {},
        "busy_elsewhere": 0.01,
        "draws": {
            draw: {
                "lookups": 2000,
                "distinct_rows": 1000,
                "deviations": dict.fromkeys(contenders, 2e-7),
                "contenders": {"anycore": anycore, "floor": floor, **contenders},
            }
            for draw, contenders in draws.items()
        },
    }
    return {f"{key}, {threads} threads{settings}": result}


def memory(key: str, contender: str, peak_gib: float) -> dict[str, Any]:
    """Returns one entry of the section `memory`, of 2 GiB of tables."""
    sizes = {"ready": GIB, "peak": round((1 + peak_gib) * GIB), "state": 2 * GIB, "batch": 0}
    return {f"{key}, {contender}": {**RUN, "key": key, "contender": contender, "threads": 2, **sizes}}


def startup(what: str, seconds: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Returns one entry of the section `startup`."""
    return {what: {**RUN, "what": what, "threads": 2, "seconds": seconds}}
