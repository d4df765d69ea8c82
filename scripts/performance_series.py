"""How the time of a step grows: the lines of the plots, from the results of `make bench-peers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PEERS = {"fbgemm": "FBGEMM", "torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX"}
NAMES = {"anycore": "anycore", "anycore_one_thread": "anycore, 1 thread", **PEERS, "floor": "floor"}
FIGURES = {
    "ids": "Step time against ids a sample",
    "vocabulary": "Step time against vocabulary size",
    "dimension": "Step time against dimension",
    "batch": "Step time against batch size",
}
"""Name of the workload, or the start of its name, and of the picture → what it shows."""

Lines = dict[int, dict[str, dict[float, float]]]
"""Threads → contender → place on the axis → milliseconds."""


def is_of_figure(key: str, figure: str) -> bool:
    """Returns whether the workload of a key stands in a figure."""
    name, optimizer = key.split(":")
    return optimizer == "adagrad" and (name == figure or name.startswith(f"{figure}-"))


def lines_of(steps: Mapping[str, Any], figure: str) -> Lines:
    """Returns the lines of a figure; a workload's number stands in its name, or else in its draws'."""
    lines: Lines = {}
    for result in steps.values():
        if not is_of_figure(result["key"], figure) or result["settings"]:
            continue
        _, _, number = result["key"].split(":")[0].partition("-")
        for draw, of_draw in result["draws"].items():
            place = float(number or draw.split()[0])
            for contender, times in of_draw["contenders"].items():
                lines.setdefault(result["threads"], {}).setdefault(contender, {})[place] = times["step"]
    return lines
