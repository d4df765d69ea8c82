"""A deep learning recommendation model in PyTorch, on MovieLens-100k: what will a user think of a movie?

The tables are anycore's: `loss.backward()` updates them with their own optimizer. The rest of the model has a PyTorch
optimizer, and PyTorch's schedulers lower the rates of both. `--synthetic` needs no download.

Source: Naumov et al., Deep Learning Recommendation Model for Personalization and Recommendation Systems, 2019; here the
top network sees the vectors themselves beside their inner products.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import LambdaLR
from tqdm import tqdm

from anycore import EmbeddingConfig, FeatureConfig, Ragged, TableConfig
from anycore.demo import movielens, synthetic
from anycore.demo.baselines import bias_only, rmse
from anycore.demo.dataset import split
from anycore.demo.features import COMBINERS, Features
from anycore.demo.history import earlier_ratings
from anycore.initializers import TruncatedNormal
from anycore.optimizers import Adam, DynamicInput
from anycore.torch import EmbeddingTables

BATCH_SIZE, DIMENSION = 512, 16
EPOCHS = 4
TABLE_RATE, DENSE_RATE = 0.003, 0.002
GOOD = 4
"""Stars that a movie one wants to see has at least, for the AUC."""


class DLRM(torch.nn.Module):
    """Vectors of all features and of the dense inputs, their inner products, and a network on top."""

    def __init__(self, config: EmbeddingConfig, num_dense: int, mean: float) -> None:
        super().__init__()
        self.tables = EmbeddingTables(config, learning_rates={0: TABLE_RATE}, include_last_offset=True)
        vectors = len(config.features) + 1
        self.pairs = torch.triu_indices(vectors, vectors, offset=1)
        inputs = vectors * DIMENSION + self.pairs.shape[1]
        self.bottom = torch.nn.Sequential(
            torch.nn.Linear(num_dense, 32), torch.nn.ReLU(), torch.nn.Linear(32, DIMENSION)
        )
        self.top = torch.nn.Sequential(
            torch.nn.Linear(inputs, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1)
        )
        self.mean = mean

    def forward(self, dense: torch.Tensor, features: dict[str, Any]) -> torch.Tensor:
        """Returns [samples], the stars that each is expected to give."""
        vectors = torch.stack([self.bottom(dense), *self.tables(features).values()], dim=1)
        products = (vectors @ vectors.mT)[:, self.pairs[0], self.pairs[1]]
        stars: torch.Tensor = self.mean + self.top(torch.cat([vectors.flatten(1), products], dim=1)).squeeze(1)
        return stars


def make_config(sizes: dict[str, int]) -> EmbeddingConfig:
    """Returns a table and a feature of every name; all tables learn with Adam and decay with its rate."""
    adam = Adam(
        learning_rate=DynamicInput(0), weight_decay_factor=1.0, multiply_weight_decay_factor_by_learning_rate=True
    )
    start = TruncatedNormal(0, 0.05)
    return EmbeddingConfig(
        [TableConfig(name, size, DIMENSION, adam, COMBINERS[name], start) for name, size in sizes.items()],
        [FeatureConfig(name, name, [BATCH_SIZE]) for name in sizes],
    )


def inputs(features: Features, positions: np.ndarray) -> tuple[torch.Tensor, dict[str, Any]]:
    """Returns the dense inputs, [samples, 2], and the features of the ratings at `positions`."""
    timestamps = features.dataset.timestamps
    times = (timestamps[positions] - timestamps.min()) / np.ptp(timestamps)
    sparse = features.inputs(positions)
    named: dict[str, Any] = {name: torch.as_tensor(ids) for name, ids in sparse.items() if not isinstance(ids, Ragged)}
    for name, ids in sparse.items():
        if isinstance(ids, Ragged):
            weights = None if ids.aggregation_weights is None else torch.as_tensor(ids.aggregation_weights)
            named[name] = torch.as_tensor(ids.embedding_indices), torch.as_tensor(ids.sample_splits), weights
    lengths = named["history"][1].diff()
    return torch.stack([torch.as_tensor(times).float(), lengths.log1p() / 5], dim=1), named


def train(model: DLRM, features: Features, positions: np.ndarray, epochs: int, most_steps: int | None) -> None:
    """Learns from the ratings at `positions`, in `most_steps` batches at most; both rates fall to zero."""
    random, stars = np.random.default_rng(0), torch.as_tensor(features.dataset.ratings)
    order = np.concatenate([random.permutation(positions) for _ in range(epochs)])
    starts = range(0, len(order), BATCH_SIZE)[:most_steps]
    dense_part = [*model.bottom.parameters(), *model.top.parameters()]
    optimizer = torch.optim.AdamW(dense_part, lr=DENSE_RATE, weight_decay=1e-4)
    schedulers = [LambdaLR(each, lambda step: 1 - step / len(starts)) for each in (optimizer, model.tables.optimizer)]
    model.train()
    for start in (bar := tqdm(starts, unit=" steps")):
        batch = order[start : start + BATCH_SIZE]
        loss = torch.nn.functional.mse_loss(model(*inputs(features, batch)), stars[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
        bar.set_postfix_str(f"training RMSE {loss.sqrt():.3f}", refresh=False)


def predict(model: DLRM, features: Features, positions: np.ndarray) -> np.ndarray:
    """Returns the expected stars of the ratings at `positions`."""
    model.eval()
    batches = [positions[start : start + BATCH_SIZE] for start in range(0, len(positions), BATCH_SIZE)]
    with torch.no_grad():
        return torch.cat([model(*inputs(features, batch)) for batch in batches]).clamp(1, 5).numpy()


def auc(scores: np.ndarray, good: np.ndarray) -> float:
    """Returns how often a good one has the higher score of a pair, equal scores counted half."""
    ordered = np.sort(scores[~good])
    below = np.searchsorted(ordered, scores[good], "left") + np.searchsorted(ordered, scores[good], "right")
    return float(below.mean() / (2 * len(ordered)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, and prints errors on the ratings that were held out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--steps", type=int, help="stop after so many batches")
    parser.add_argument("--synthetic", action="store_true", help="make ratings up instead of downloading them")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    dataset = synthetic.plant(0)[0] if options.synthetic else movielens.load(movielens.cache_directory())
    learned, held_out = split(len(dataset.ratings))
    # What a user thought before is known from ratings to learn from alone.
    features = Features(dataset, earlier_ratings(dataset, learned))
    model = DLRM(make_config(features.vocabulary_sizes()), 2, float(dataset.ratings[learned].mean()))
    train(model, features, learned, options.epochs, options.steps)
    stars = dataset.ratings[held_out]
    print(f"\n{len(held_out):,} held-out ratings\n\n{'':<12}RMSE    AUC of {GOOD} stars and more")
    for name, scores in (
        ("bias-only", bias_only(dataset, learned, held_out)),
        ("DLRM", predict(model, features, held_out)),
    ):
        print(f"{name:<12}{rmse(scores, stars):.4f}  {auc(scores, stars >= GOOD):.4f}")


if __name__ == "__main__":
    main()
