"""FBGEMM: table-batched embeddings on the CPU, whose backward pass updates the tables."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen

from peers.batches import Batch, Floats, Integers, initial_chunks
from peers.contenders.contender import INITIAL_ACCUMULATOR, LEARNING_RATE, Contender, Lap
from peers.contenders.torch import flat_weights, normalised
from peers.workloads import Workload

_OPTIMIZERS = {
    "stochastic_gradient_descent": EmbOptimType.EXACT_SGD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "row_wise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
}


@dataclass(frozen=True)
class Prepared:
    """All features in one: ids and splits one feature after another, gradients side by side."""

    ids: torch.Tensor
    splits: torch.Tensor
    weights: torch.Tensor | None
    samples: torch.Tensor | None
    gradients: torch.Tensor


class Fbgemm(Contender):
    """A mean by weight is a sum by weights that are normalised first, as its own mean divides by the count."""

    optimizers = frozenset(_OPTIMIZERS)

    def __init__(self, workload: Workload, num_threads: int) -> None:
        torch.set_num_threads(num_threads)
        self._workload = workload
        table = (workload.vocabulary_size, workload.dimension, EmbeddingLocation.HOST, ComputeDevice.CPU)
        self._bags = SplitTableBatchedEmbeddingBagsCodegen(
            [table] * workload.num_tables,
            feature_table_map=[t for t in range(workload.num_tables) for _ in range(workload.features_per_table)],
            optimizer=_OPTIMIZERS[workload.optimizer],
            pooling_mode=PoolingMode.NONE if workload.sequence else PoolingMode.SUM,
            learning_rate=LEARNING_RATE,
            eps=1e-8,
        )
        for t, parameters in enumerate(self._bags.split_embedding_weights()):
            for place, values in initial_chunks(workload, t):
                parameters[place] = torch.from_numpy(values)
        if workload.optimizer == "adagrad":
            self._bags.momentum1_host.detach().fill_(INITIAL_ACCUMULATOR)

    def prepare(self, batch: Batch) -> Prepared:
        offset, splits = 0, [torch.zeros(1, dtype=torch.int64)]
        for ids in batch.ids:
            splits.append(torch.from_numpy(batch.splits[1:] + offset))
            offset += len(ids)
        gradients = [torch.from_numpy(gradient) for gradient in batch.gradients]
        weights, samples = flat_weights(batch)
        return Prepared(
            torch.cat([torch.from_numpy(ids) for ids in batch.ids]),
            torch.cat(splits),
            weights,
            samples,
            torch.cat(gradients, dim=0 if self._workload.sequence else 1),
        )

    def look_up(self, prepared: Prepared) -> torch.Tensor:
        with torch.no_grad():
            return self._forward(prepared)

    def step(self, prepared: Prepared, lap: Lap) -> torch.Tensor:
        activations = self._forward(prepared)
        lap("forward")
        activations.backward(prepared.gradients)
        lap("backward and update")
        return activations.detach()

    def activations(self, returned: torch.Tensor) -> list[Floats]:
        features, axis = self._workload.num_features, 0 if self._workload.sequence else 1
        return [part.numpy() for part in torch.chunk(returned, features, dim=axis)]

    def parameters(self, table: int, rows: Integers) -> Floats:
        found: Floats = self._bags.split_embedding_weights()[table][torch.from_numpy(rows)].numpy()
        return found

    def _forward(self, prepared: Prepared) -> torch.Tensor:
        weights = prepared.weights
        if weights is not None:
            weights = normalised(weights, prepared.samples)
        return self._bags(prepared.ids, prepared.splits, weights)
