"""What the runner asks of everybody who takes part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar, Protocol

from peers.batches import Batch, Floats, Integers
from peers.workloads import Workload

Lap = Callable[[str], None]
"""Notes under a stage's name the time since the last lap, or since the step began."""

LEARNING_RATE = 0.1
INITIAL_ACCUMULATOR = 0.1
BETA1, BETA2, ADAM_EPSILON = 0.9, 0.999, 1e-8


class Timed(Protocol):
    """What can take a turn."""

    def prepare(self, batch: Batch) -> Any:
        """Returns the batch as this engine takes it best; not timed."""

    def look_up(self, prepared: Any) -> Any:
        """Returns the activations alone, as for inference."""

    def step(self, prepared: Any, lap: Lap) -> Any:
        """Returns the activations of one training step, tables updated; every stage ends with a lap."""


class Contender(ABC):
    """The tables of one workload in one engine, which start from `peers.batches.initial_values`."""

    optimizers: ClassVar[frozenset[str]]
    """Those that it has with sparse updates, or else the dense ones that do the same to the touched rows."""
    dense_copies: ClassVar[int] = 0
    """Arrays as large as all parameters that a step needs besides the tables."""

    @abstractmethod
    def __init__(self, workload: Workload, num_threads: int) -> None: ...

    @abstractmethod
    def prepare(self, batch: Batch) -> Any: ...

    @abstractmethod
    def look_up(self, prepared: Any) -> Any: ...

    @abstractmethod
    def step(self, prepared: Any, lap: Lap) -> Any: ...

    def activations(self, returned: Any) -> list[Floats]:
        """Returns what `step` returned as one array per feature of the shape of its gradients."""
        return [activation.reshape(-1, activation.shape[-1]) for activation in returned]

    @abstractmethod
    def parameters(self, table: int, rows: Integers) -> Floats:
        """Returns the parameters of some rows, float32[rows, dimension]."""


_CLASSES = {
    "anycore": "Anycore",
    "anycore_one_thread": "AnycoreOneThread",
    "fbgemm": "Fbgemm",
    "torch": "Torch",
    "tensorflow": "Tensorflow",
    "jax": "Jax",
}


def contender_class(name: str) -> type[Contender]:
    """Returns the class of a contender; its framework is imported only now."""
    module = import_module(f"peers.contenders.{name.removesuffix('_one_thread')}")
    found: type[Contender] = getattr(module, _CLASSES[name])
    return found
