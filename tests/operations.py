"""One table that TensorFlow's operations alone configure, load, look up, train and retrieve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import anycore.ops
from anycore import EmbeddingConfig, TableConfig
from anycore.optimizers import Optimizer

ops: Any = anycore.ops
_AUXILIARIES = 7
_EMPTY = np.empty((0, 0), np.float32)


class Table:
    """A table of that many rows, of which two are looked up in a step."""

    def __init__(self, optimizer: Optimizer, rows: int, dimension: int) -> None:
        table = TableConfig("t", rows, dimension, optimizer, num_features=1)
        self.config: bytes = EmbeddingConfig([table], batch_size_per_tensor_core=2).to_proto().SerializeToString()
        ops.configure_tpu_embedding(self.config)

    def load(self, variables: Sequence[np.ndarray]) -> None:
        """Overwrites the parameters and slots."""
        padded = [*variables, *[_EMPTY] * (1 + _AUXILIARIES - len(variables))]
        ops.load_all_tpu_embedding_parameters(*([values] for values in padded), self.config, 1, 0)

    def retrieve(self, count: int) -> list[np.ndarray]:
        """Returns the parameters and the slots after them, `count` in all."""
        lists = ops.retrieve_all_tpu_embedding_parameters(1, self.config, 1, 0)
        return [values for (values,) in lists[:count]]

    def look_up(self, ids: Sequence[int], mode: str) -> np.ndarray:
        """Returns the activations [2, dimension] of a step in that mode."""
        ops.enqueue_tpu_embedding_integer_batch([np.array(ids, np.int32)], mode)
        (activations,) = ops.recv_tpu_embedding_activations(1, self.config)
        return np.asarray(activations)

    def send(self, gradient: np.ndarray, rates: Sequence[float] = ()) -> None:
        """Ends a step of training."""
        ops.send_tpu_embedding_gradients([gradient], [np.float32(rate) for rate in rates], self.config)


@contextmanager
def configured(optimizer: Optimizer, rows: int, dimension: int) -> Iterator[Table]:
    """The table, and afterwards no system."""
    ops.shutdown_tpu_system()
    try:
        yield Table(optimizer, rows, dimension)
    finally:
        ops.shutdown_tpu_system()
