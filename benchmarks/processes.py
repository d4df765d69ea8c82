"""Training steps of several processes of this machine, connected by torch.distributed's gloo."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from workload import Workload

from anycore import EmbeddingConfig, EmbeddingEngine, Ragged
from anycore.kernels.parallel import available_threads

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Measured:
    """What one process has seen."""

    stats: dict[str, float]
    seconds: float
    """Median of the steps but the first two."""


def on_processes(size: int, function: Callable[..., _Result], *arguments: Any) -> list[_Result]:
    """Returns function(transport, *arguments) of each of `size` new processes, by rank."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(size, context) as pool:
        meeting = str(Path(folder) / "meeting")
        futures = [pool.submit(_connected, rank, size, meeting, function, arguments) for rank in range(size)]
        return [future.result() for future in futures]


def _connected(rank: int, size: int, meeting: str, function: Callable[..., _Result], arguments: Any) -> _Result:
    import torch.distributed

    from anycore.transport import TorchTransport

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    try:
        return function(TorchTransport(), *arguments)
    finally:
        torch.distributed.destroy_process_group()


def sharded_config(workload: Workload, size: int) -> EmbeddingConfig:
    """Returns the workload's configuration with a core for each process."""
    return replace(workload.config(), num_tensor_cores=size)


def core_batch(workload: Workload, step: int, core: int) -> list[Ragged]:
    """Returns the inputs of one core in one step, the same wherever they are asked for."""
    return workload.batch(np.random.default_rng([step, core]))


def train(transport: Any, workload: Workload, steps: int) -> Measured:
    """Returns what a process measures in that many steps of one core."""
    config = sharded_config(workload, transport.size)
    threads = max(1, available_threads() // transport.size)
    engine = EmbeddingEngine(config, num_threads=threads, transport=transport)
    gradients = workload.gradients(np.random.default_rng(transport.rank))
    seconds = []
    for step in range(steps):
        batch = core_batch(workload, step, transport.rank)
        started = time.perf_counter()
        engine.enqueue(batch)
        engine.receive_activations()
        engine.send_gradients(gradients)
        seconds.append(time.perf_counter() - started)
    return Measured(engine.stats(), float(np.median(seconds[2:])))
