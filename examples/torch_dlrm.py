"""A deep learning recommendation model in PyTorch, on MovieLens-100k: what will a user think of a movie?

The tables are anycore's: `loss.backward()` updates them with their own optimizer. All else has one of PyTorch.
Processes that `torchrun --nproc-per-node 2` starts share tables and batches, and learn the same up to rounding.

Source: Naumov et al., 2019, arXiv 1906.00091; here the top network sees the vectors themselves beside their products.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
import torch
from torch.nn import Dropout, Linear, ReLU, Sequential
from torch.optim.lr_scheduler import LambdaLR
from tqdm import tqdm

from anycore import EmbeddingConfig, FeatureConfig, Ragged, TableConfig
from anycore.demo import movielens, synthetic
from anycore.demo.baselines import auc, bias_only, rmse
from anycore.demo.dataset import split
from anycore.demo.features import COMBINERS, Features
from anycore.demo.history import earlier_ratings
from anycore.initializers import TruncatedNormal
from anycore.optimizers import Adam, DynamicInput
from anycore.torch import EmbeddingTables
from anycore.transport import TorchTransport

BATCH_SIZE, DIMENSION, EPOCHS, TABLE_RATE, DENSE_RATE = 512, 16, 4, 0.003, 0.002
GOOD = 4  # stars that a movie one wants to see has at least, for the AUC
RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))  # torchrun sets them
SHARE = -(-BATCH_SIZE // SIZE)


class Dense(torch.nn.Module):
    """The inner products of the features' vectors and of the dense inputs' one, and a network on top."""

    def __init__(self, num_vectors: int, num_dense: int) -> None:
        super().__init__()
        self.pairs = torch.triu_indices(num_vectors, num_vectors, offset=1)
        self.bottom = Sequential(Linear(num_dense, 32), ReLU(), Linear(32, DIMENSION))
        num_inputs = num_vectors * DIMENSION + self.pairs.shape[1]
        self.top = Sequential(Linear(num_inputs, 64), ReLU(), Dropout(0.2), Linear(64, 1))

    def forward(self, dense: torch.Tensor, activations: list[torch.Tensor]) -> torch.Tensor:
        """Returns [samples]: what the stars differ from their mean."""
        vectors = torch.stack([self.bottom(dense), *activations], dim=1)
        products = (vectors @ vectors.mT)[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([vectors.flatten(1), products], dim=1)).squeeze(1)


class DLRM(torch.nn.Module):
    """The tables, whose rows are spread over the processes, and the dense part, of which each has a copy."""

    def __init__(self, config: EmbeddingConfig, num_dense: int, mean: float) -> None:
        super().__init__()
        link = TorchTransport() if SIZE > 1 else None
        self.tables = EmbeddingTables(config, learning_rates={0: TABLE_RATE}, include_last_offset=True, transport=link)
        dense = Dense(len(config.features) + 1, num_dense)
        self.dense = torch.nn.parallel.DistributedDataParallel(dense) if SIZE > 1 else dense
        self.mean = mean

    def forward(self, dense: torch.Tensor, features: dict[str, Any]) -> torch.Tensor:
        """Returns [samples], the stars that each is expected to give."""
        return self.mean + self.dense(dense, list(self.tables(features).values()))


def make_config(sizes: dict[str, int]) -> EmbeddingConfig:
    """Returns a table and a feature of every name, and a core for each process; the tables learn with Adam."""
    rate = DynamicInput(0)
    adam = Adam(learning_rate=rate, weight_decay_factor=1.0, multiply_weight_decay_factor_by_learning_rate=True)
    tables = [TableConfig(k, v, DIMENSION, adam, COMBINERS[k], TruncatedNormal(0, 0.05)) for k, v in sizes.items()]
    return EmbeddingConfig(tables, [FeatureConfig(name, name, [SHARE]) for name in sizes], num_tensor_cores=SIZE)


def inputs(features: Features, positions: np.ndarray) -> tuple[torch.Tensor, dict[str, Any]]:
    """Returns the dense inputs, [samples, 2], and the features of the ratings at `positions`."""
    timestamps = features.dataset.timestamps
    times = (timestamps[positions] - timestamps.min()) / np.ptp(timestamps)
    named: dict[str, Any] = dict(features.inputs(positions))
    for name, ids in named.items():
        is_ragged = isinstance(ids, Ragged)
        parts = [ids.embedding_indices, ids.sample_splits, ids.aggregation_weights] if is_ragged else [ids]
        named[name] = tuple(None if part is None else torch.as_tensor(part) for part in parts)
    return torch.stack([torch.as_tensor(times).float(), named["history"][1].diff().log1p() / 5], dim=1), named


def train(model: DLRM, features: Features, positions: np.ndarray, epochs: int, most_steps: int | None) -> None:
    """Learns from the ratings at `positions`, in `most_steps` batches at most; both rates fall to zero."""
    random, stars = np.random.default_rng(0), torch.as_tensor(features.dataset.ratings)
    order = np.concatenate([random.permutation(positions) for _ in range(epochs)])
    starts = range(0, len(order), BATCH_SIZE)[:most_steps]
    optimizer = torch.optim.AdamW(model.dense.parameters(), lr=DENSE_RATE, weight_decay=1e-4)
    schedulers = [LambdaLR(each, lambda k: 1 - k / len(starts)) for each in (optimizer, model.tables.optimizer)]
    model.train()
    for start in (bar := tqdm(starts, unit=" steps", disable=RANK > 0)):
        batch = order[start : start + BATCH_SIZE]
        own = batch[RANK::SIZE]
        errors = (model(*inputs(features, own)) - stars[own]).square()
        optimizer.zero_grad()
        # Its share of the batch's mean error, for the gradients of tables are summed over the processes.
        (errors.sum() / len(batch)).backward()
        for parameter in model.dense.parameters():
            parameter.grad *= SIZE  # DistributedDataParallel has averaged them
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
        bar.set_postfix_str(f"training RMSE {errors.mean().sqrt():.3f}", refresh=False)


def predict(model: DLRM, features: Features, positions: np.ndarray) -> np.ndarray:
    """Returns the expected stars of the ratings at `positions`, to every process: lookups are calls of all."""
    model.eval()
    batches = [positions[start : start + SHARE] for start in range(0, len(positions), SHARE)]
    with torch.no_grad():
        return torch.cat([model(*inputs(features, batch)) for batch in batches]).clamp(1, 5).numpy()


def main(arguments: list[str] | None = None) -> None:
    """Trains, and prints errors on the ratings that were held out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--steps", type=int, help="stop after so many batches")
    parser.add_argument("--synthetic", action="store_true", help="make ratings up instead of downloading them")
    options = parser.parse_args(arguments)
    if SIZE > 1:
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(RANK)
    if not RANK:
        print("synthetic ratings" if options.synthetic else movielens.TERMS)
    dataset = synthetic.plant(0)[0] if options.synthetic else movielens.load(movielens.cache_directory())
    learned, held_out = split(len(dataset.ratings))
    # What a user thought before is known from ratings to learn from alone.
    features = Features(dataset, earlier_ratings(dataset, learned))
    model = DLRM(make_config(features.vocabulary_sizes()), 2, float(dataset.ratings[learned].mean()))
    train(model, features, learned, options.epochs, options.steps)
    stars = dataset.ratings[held_out]
    found = {"bias-only": bias_only(dataset, learned, held_out), "DLRM": predict(model, features, held_out)}
    if RANK == 0:
        print(f"\n{len(held_out):,} held-out ratings\n\n{'':<12}RMSE    AUC of {GOOD} stars and more")
        for name, scores in found.items():
            print(f"{name:<12}{rmse(scores, stars):.4f}  {auc(scores, stars >= GOOD):.4f}")


if __name__ == "__main__":
    main()
