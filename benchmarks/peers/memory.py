"""How much memory a contender needs, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from peers.batches import Batch, Batches
from peers.contenders.contender import contender_class
from peers.workloads import Workload, named

_STEPS = 3


def peak_memory(num_threads: int, key: str, tiny: bool, contender: str) -> dict[str, int]:
    """Returns bytes: resident before there are tables, at most while they are made and trained, and what they hold.

    `ready` counts libraries and what they compile, for a tiny workload has run; `state` is parameters and slots;
    `batch` one step's ids, weights, gradients and activations.
    """
    workload = named(key, tiny)
    _train(workload.tiny(), contender, num_threads)
    ready = _status("VmRSS")
    batch = _train(workload, contender, num_threads)
    numbers = sum(array.nbytes for array in [*batch.ids, batch.splits, *(batch.weights or []), *batch.gradients])
    activations = sum(gradient.nbytes for gradient in batch.gradients)
    return {
        "ready": ready,
        "peak": _status("VmHWM"),
        "state": workload.state_bytes,
        "batch": numbers + activations,
    }


def _train(workload: Workload, name: str, num_threads: int) -> Batch:
    """Returns one of the batches with which a contender has trained new tables."""
    contender = contender_class(name)(workload, num_threads)
    batches, draw = Batches(workload, seed=0), workload.draws[0]
    for _ in range(_STEPS):
        batch = batches.next(draw)
        contender.step(contender.prepare(batch), lambda stage: None)
    return batch


def _status(field: str) -> int:
    """Returns bytes that the kernel counts for this process: of the program as it is now, not of who started it."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
