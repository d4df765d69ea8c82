"""Tables to train through PyTorch, and TorchRec's jagged tensors as far as anycore may know them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from anycore import EmbeddingConfig, FeatureConfig, TableConfig
from anycore.initializers import RowFunction
from anycore.optimizers import Optimizer, StochasticGradientDescent
from anycore.torch import EmbeddingTables


def small_tables(
    optimizer: Optimizer | None = None, input_shape: tuple[int, ...] = (2,), num_tensor_cores: int = 1, **options: Any
) -> EmbeddingTables:
    """One table 't' of rows [0, 1], [2, 3], [4, 5], [6, 7] with rate 1, and features 'f' and 'g' of two samples."""
    start = RowFunction(lambda rows, dimension: dimension * rows[:, None] + np.arange(dimension))
    config = EmbeddingConfig(
        [TableConfig("t", 4, 2, optimizer or StochasticGradientDescent(learning_rate=1.0), initializer=start)],
        [FeatureConfig("f", "t", input_shape), FeatureConfig("g", "t", [2])],
        num_tensor_cores=num_tensor_cores,
    )
    return EmbeddingTables(config, **options)


def ids(*f: int) -> dict[str, Any]:
    """Features of one id a sample: `f`, and row 0 for both of g."""
    return {"f": torch.tensor(f), "g": torch.tensor([0, 0])}


def rows(tables: EmbeddingTables, variable: str = "parameters") -> list[list[float]]:
    return tables.engine.retrieve("t")[variable].tolist()


class JaggedTensor:
    """As TorchRec's: one feature."""

    def __init__(self, values: torch.Tensor, lengths: torch.Tensor, weights: torch.Tensor | None = None) -> None:
        self._values, self._lengths, self._weights = values, lengths, weights

    def values(self) -> torch.Tensor:
        return self._values

    def lengths(self) -> torch.Tensor:
        return self._lengths

    def offsets(self) -> torch.Tensor:
        return torch.cat([self._lengths.new_zeros(1), self._lengths.cumsum(0)])

    def weights_or_none(self) -> torch.Tensor | None:
        return self._weights


class KeyedJaggedTensor(JaggedTensor):
    """As TorchRec's: the samples of one key after those of another."""

    def __init__(
        self,
        keys: list[str],
        values: torch.Tensor,
        lengths: torch.Tensor,
        weights: torch.Tensor | None = None,
        varies: bool = False,
    ) -> None:
        super().__init__(values, lengths, weights)
        self._keys, self._varies = keys, varies

    def keys(self) -> list[str]:
        return self._keys

    def stride(self) -> int:
        return len(self._lengths) // len(self._keys)

    def variable_stride_per_key(self) -> bool:
        return self._varies
