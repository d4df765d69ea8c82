"""PyTorch: EmbeddingBag with sparse gradients, and an optimizer that takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from peers.batches import Batch, Floats, Integers, initial_chunks
from peers.contenders.contender import (
    ADAM_EPSILON,
    BETA1,
    BETA2,
    INITIAL_ACCUMULATOR,
    LEARNING_RATE,
    Contender,
    Lap,
)
from peers.workloads import Workload

_OPTIMIZERS: dict[str, Any] = {
    "stochastic_gradient_descent": lambda parameters: torch.optim.SGD(parameters, LEARNING_RATE),
    "adagrad": lambda parameters: torch.optim.Adagrad(
        parameters, LEARNING_RATE, initial_accumulator_value=INITIAL_ACCUMULATOR
    ),
    "adam": lambda parameters: torch.optim.SparseAdam(parameters, LEARNING_RATE, (BETA1, BETA2), ADAM_EPSILON),
}


def flat_weights(batch: Batch) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Returns the weights of all features, and of each the sample among the samples of all features; or neither."""
    if batch.weights is None:
        return None, None
    lengths = np.tile(np.diff(batch.splits), len(batch.ids))
    samples = np.repeat(np.arange(len(lengths)), lengths)
    return torch.from_numpy(np.concatenate(batch.weights)), torch.from_numpy(samples)


def normalised(weights: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
    """Returns the weights divided by their sum over the sample; no sample is empty."""
    totals = torch.zeros(int(samples[-1]) + 1).index_add_(0, samples, weights)
    return weights / totals[samples]


@dataclass(frozen=True)
class Prepared:
    """For each table its features in one: ids and splits one feature after another."""

    ids: list[torch.Tensor]
    splits: torch.Tensor
    weights: torch.Tensor | None
    samples: torch.Tensor | None
    gradients: list[torch.Tensor]


class Torch(Contender):
    """One module a table, which all its features share in one call; a mean by weight as FBGEMM's."""

    optimizers = frozenset(_OPTIMIZERS)

    def __init__(self, workload: Workload, num_threads: int) -> None:
        torch.set_num_threads(num_threads)
        self._workload = workload
        parameters = []
        for t in range(workload.num_tables):
            table = torch.empty(workload.vocabulary_size, workload.dimension)
            for place, values in initial_chunks(workload, t):
                table[place] = torch.from_numpy(values)
            parameters.append(table)
        modules = torch.nn.Embedding if workload.sequence else torch.nn.EmbeddingBag
        options = {} if workload.sequence else {"mode": "sum", "include_last_offset": True}
        self._tables = [modules.from_pretrained(table, freeze=False, sparse=True, **options) for table in parameters]
        self._optimizer = _OPTIMIZERS[workload.optimizer]([table.weight for table in self._tables])

    def prepare(self, batch: Batch) -> Prepared:
        share = self._workload.features_per_table
        tables = [slice(t * share, (t + 1) * share) for t in range(self._workload.num_tables)]
        ids = [torch.from_numpy(ids) for ids in batch.ids_of_tables(self._workload)]
        splits = np.concatenate([[0], *(batch.splits[1:] + f * batch.splits[-1] for f in range(share))])
        gradients = [torch.from_numpy(np.concatenate(batch.gradients[table])) for table in tables]
        return Prepared(ids, torch.from_numpy(splits), *flat_weights(batch), gradients)

    def look_up(self, prepared: Prepared) -> list[torch.Tensor]:
        with torch.no_grad():
            return self._forward(prepared)

    def step(self, prepared: Prepared, lap: Lap) -> list[torch.Tensor]:
        self._optimizer.zero_grad()
        activations = self._forward(prepared)
        lap("forward")
        torch.autograd.backward(activations, prepared.gradients)
        lap("backward")
        self._optimizer.step()
        lap("update")
        return activations

    def activations(self, returned: list[torch.Tensor]) -> list[Floats]:
        share = self._workload.features_per_table
        return [part.numpy() for table in returned for part in torch.chunk(table.detach(), share)]

    def parameters(self, table: int, rows: Integers) -> Floats:
        found: Floats = self._tables[table].weight.detach()[torch.from_numpy(rows)].numpy()
        return found

    def _forward(self, prepared: Prepared) -> list[torch.Tensor]:
        if self._workload.sequence:
            return [table(ids) for table, ids in zip(self._tables, prepared.ids, strict=True)]
        weights: Any = [None] * len(self._tables)
        if prepared.weights is not None:
            weights = torch.chunk(normalised(prepared.weights, prepared.samples), len(self._tables))
        return [
            table(ids, prepared.splits, per_sample_weights=weight)
            for table, ids, weight in zip(self._tables, prepared.ids, weights, strict=True)
        ]
