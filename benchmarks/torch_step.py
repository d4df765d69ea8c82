"""Times training steps through PyTorch beside the bare engine's, forward and backward, all in one run.

The contenders take turns in every repetition, on the same tables and with ids of their own; the table shows medians and
the ratio to the bare engine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from workload import Workload

from anycore import Ragged
from anycore.kernels.parallel import available_threads
from anycore.torch import EmbeddingTables

Step = Callable[[list[Ragged], list[Any]], None]


def bare(tables: EmbeddingTables) -> Step:
    """Returns a step of the engine alone."""
    engine = tables.engine

    def step(batch: list[Ragged], gradients: list[Any]) -> None:
        engine.enqueue(batch)
        engine.receive_activations()
        engine.send_gradients(gradients)

    return step


def through_torch(tables: EmbeddingTables) -> Step:
    """Returns a step that autograd drives, with gradients that are given."""
    names = [activation.name for activation in tables.engine.activations]

    def step(batch: list[Ragged], gradients: list[Any]) -> None:
        features = {
            name: (torch.from_numpy(bags.embedding_indices), torch.from_numpy(bags.sample_splits))
            for name, bags in zip(names, batch, strict=True)
        }
        activations = tables(features)
        torch.autograd.backward(list(activations.values()), [torch.from_numpy(gradient) for gradient in gradients])

    return step


def report(workload: Workload, num_threads: int, repetitions: int) -> None:
    """Prints the contenders' times."""
    tables = EmbeddingTables(workload.config(), num_threads=num_threads)
    random = np.random.default_rng(0)
    gradients = workload.gradients(random)
    contenders = {"engine": bare(tables), "torch": through_torch(tables)}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repetitions + 2):  # the first two warm up
        for name, step in contenders.items():
            batch = workload.batch(random)
            started = time.perf_counter()
            step(batch, gradients)
            times[name].append(time.perf_counter() - started)
    medians = {name: 1e3 * float(np.median(each[2:])) for name, each in times.items()}
    print(f"\n{workload}, Adagrad, {num_threads} threads, median of {repetitions}\n")
    print("| step | ms | ratio |\n|---|---|---|")
    for name, median in medians.items():
        print(f"| {name} | {median:.2f} | {median / medians['engine']:.2f} |")


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=available_threads())
    parser.add_argument("--repetitions", type=int, default=25)
    options = parser.parse_args()
    for ids_per_sample in (20, 1):
        report(Workload(ids_per_sample=ids_per_sample), options.threads, options.repetitions)


if __name__ == "__main__":
    main()
