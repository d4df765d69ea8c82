"""Counts the bytes that processes exchange beside the least that they could, and times their steps.

The least is, for each row that a core needs and another process keeps, its id, its parameters and its gradient.
"""

from __future__ import annotations

import argparse

from processes import Measured, on_processes, train
from workload import Workload

from anycore import ShardingStrategy


def row(size: int, measured: list[Measured]) -> str:
    """Returns the line of the table for so many processes."""
    first = measured[0].stats
    directions = []
    for direction in ("sent", "received"):
        moved = sum(each.stats[f"bytes_{direction}_per_step"] for each in measured) / size
        least = sum(each.stats[f"least_bytes_{direction}_per_step"] for each in measured) / size
        directions.append(f"{moved / 1e6:.2f} | {moved / least if least else 1:.3f}")
    milliseconds = 1e3 * max(each.seconds for each in measured)
    return f"| {size} | {' | '.join(directions)} | {first['largest_share_of_rows']:.3f} | {milliseconds:.1f} |"


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=25)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--vocabulary-size", type=int, default=50_000)
    parser.add_argument("--batch-size", type=int, default=512, help="samples of each process")
    options = parser.parse_args()
    for zipf in (0.0, 1.1):
        workload = Workload(
            vocabulary_size=options.vocabulary_size,
            batch_size=options.batch_size,
            zipf=zipf,
            sharding_strategy=ShardingStrategy.MOD,
        )
        print(f"\n{workload}, MOD, Adagrad, median of {options.repetitions}\n")
        print("| processes | MB sent a step | to the least | MB received | to the least | largest share | step, ms |")
        print("|---|---|---|---|---|---|---|")
        for size in options.processes:
            print(row(size, on_processes(size, train, workload, options.repetitions + 2)), flush=True)


if __name__ == "__main__":
    main()
