"""Draws how the time of a step grows, from the results of `make bench-peers`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from performance_series import FIGURES, NAMES, Lines, lines_of

_AXES = {"ids": "ids a sample", "vocabulary": "rows of the table", "dimension": "dimension", "batch": "samples"}
_COLOURS = {
    "anycore": "tab:red",
    "fbgemm": "tab:blue",
    "torch": "tab:orange",
    "tensorflow": "tab:green",
    "jax": "tab:purple",
    "floor": "black",
}


def draw(steps: Mapping[str, Any], folder: Path) -> None:
    """Writes one picture per figure of which there are results, a panel for each number of threads."""
    for figure in FIGURES:
        lines = lines_of(steps, figure)
        if lines:
            _draw(lines, figure, folder / f"{figure}.png")


def _draw(lines: Lines, figure: str, path: Path) -> None:
    picture = Figure(figsize=(5 * len(lines), 4), layout="constrained")
    panels = picture.subplots(1, len(lines), sharey=True, squeeze=False)[0]
    for panel, threads in zip(panels, sorted(lines), strict=True):
        for contender, points in lines[threads].items():
            places = sorted(points)
            style = "--" if contender == "floor" else "-"
            panel.plot(
                places,
                [points[place] for place in places],
                style,
                marker=".",
                color=_COLOURS[contender],
                label=NAMES[contender],
            )
        panel.set(xscale="log", yscale="log", xlabel=_AXES[figure], title=f"{threads} thread{'s' * (threads > 1)}")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("ms a step")
    panels[0].legend(fontsize="small")
    picture.suptitle(FIGURES[figure])
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a date or a version, so that equal results make an equal file.
    picture.savefig(path, dpi=110, metadata={"Software": None})
