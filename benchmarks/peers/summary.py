"""A result in a few lines, to be read while the benchmark runs."""

from __future__ import annotations

from typing import Any


def of_steps(result: dict[str, Any]) -> str:
    """Returns a table of times and ratios."""
    lines = [f"{name} is absent: {why}" for name, why in result["absent"].items()]
    lines.append(f"others took {100 * result['busy_elsewhere']:.0f} % of the machine; peak {result['peak_gib']} GiB")
    for draw, of_draw in result["draws"].items():
        lines.append(f"{draw}: {of_draw['lookups']:,} lookups, {of_draw['distinct_rows']:,} distinct rows")
        for name, times in of_draw["contenders"].items():
            stages = ", ".join(f"{stage} {ms:g}" for stage, ms in times["stages"].items())
            lines.append(
                f"  {name:18} step {times['step']:9.3f} ms {times['step_ratio']:8.2f} x, look up "
                f"{times['look_up']:8.3f} ms {times['look_up_ratio']:6.2f} x, {times['repetitions']:2} times ({stages})"
            )
    return "\n".join(lines)


def of_memory(result: dict[str, Any]) -> str:
    """Returns the peak beside what the tables hold."""
    gib = {name: result[name] / 2**30 for name in ("ready", "state", "batch", "peak")}
    numbers = ", ".join(f"{name} {value:.2f} GiB" for name, value in gib.items())
    return f"  {numbers}; (peak - ready) / state = {(gib['peak'] - gib['ready']) / gib['state']:.2f}"


def of_startup(result: dict[str, Any]) -> str:
    """Returns the seconds of every stage."""
    return "\n".join(
        f"  {name:26} {', '.join(f'{stage} {value:.3f} s' for stage, value in stages.items())}"
        for name, stages in result["seconds"].items()
    )
