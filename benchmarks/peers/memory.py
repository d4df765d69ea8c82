"""How much memory a contender needs, in a process of its own."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from peers.batches import Batch, Batches
from peers.contenders.contender import contender_class
from peers.machine import process_memory
from peers.workloads import Workload, named

_STEPS = 3


def peak_memory(num_threads: int, key: str, tiny: bool, contender: str) -> dict[str, int]:
    """Returns bytes: resident before there are tables, at most while they are made and trained, and what they hold.

    `ready` counts libraries and what they compile, for a tiny workload has run; `state` is parameters and slots;
    `batch` one step's ids, weights, gradients and activations.
    """
    workload = named(key, tiny)
    _train(workload.tiny(), contender, num_threads)
    ready = process_memory("VmRSS")
    batch = _train(workload, contender, num_threads)
    arrays: list[NDArray[Any]] = [*batch.ids, batch.splits, *(batch.weights or []), *batch.gradients]
    activations = sum(gradient.nbytes for gradient in batch.gradients)
    return {
        "ready": ready,
        "peak": process_memory("VmHWM"),
        "state": workload.state_bytes,
        "batch": sum(array.nbytes for array in arrays) + activations,
    }


def _train(workload: Workload, name: str, num_threads: int) -> Batch:
    """Returns one of the batches with which a contender has trained new tables."""
    contender = contender_class(name)(workload, num_threads)
    batches, draw = Batches(workload, seed=0), workload.draws[0]
    for _ in range(_STEPS):
        batch = batches.next(draw)
        contender.step(contender.prepare(batch), lambda stage: None)
    return batch
