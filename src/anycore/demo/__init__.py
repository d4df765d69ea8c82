"""The demo: a factorization machine learns to predict what people think of movies."""

from __future__ import annotations

import importlib
import math
import time
from typing import Any

import numpy as np

from anycore.demo import movielens, synthetic
from anycore.demo.baselines import bias_only, rmse
from anycore.demo.dataset import IntArray, split
from anycore.demo.error import DemoError
from anycore.demo.features import Features, num_ids
from anycore.demo.history import earlier_ratings
from anycore.demo.hyper_parameters import BATCH_SIZE, EPOCHS
from anycore.demo.report import summary
from anycore.demo.training import Trainer

__all__ = ["DemoError", "run"]


def run(*, epochs: int = EPOCHS, seed: int = 0, synthetic_ratings: bool = False) -> None:
    """Trains on MovieLens-100k, or on ratings that a known model made, and prints how well and how fast.

    `seed` gives the initial factors, the order of training and the synthetic ratings. Which ratings are held out never
    depends on it, and they are looked at once, after training.

    Raises:
        DemoError: the ratings cannot be fetched, or tqdm is not installed.
    """
    progress_bar = _progress_bar()
    if synthetic_ratings:
        dataset, planted = synthetic.plant(seed)
        print("synthetic ratings: biases and factors of users and movies, plus noise\n")
    else:
        print(f"{movielens.TERMS}\n")
        dataset, planted = movielens.load(movielens.cache_directory()), None
    train, test = split(len(dataset.ratings))
    features = Features(dataset, earlier_ratings(dataset, train))
    print(f"{len(train):,} ratings to learn from, {len(test):,} held out; preparing kernels", flush=True)
    # Kernels are compiled when first used: a model that is thrown away waits for that, the timed one does not.
    Trainer(features, train, num_steps=1, seed=seed).step(train[:BATCH_SIZE])
    trainer = Trainer(features, train, epochs * math.ceil(len(train) / BATCH_SIZE), seed)
    seconds = _train(trainer, train, epochs, seed, progress_bar)

    ratings = dataset.ratings[test]
    errors = {
        "global mean": rmse(np.full_like(ratings, dataset.ratings[train].mean()), ratings),
        "bias-only": rmse(bias_only(dataset, train, test), ratings),
        "factorization machine": rmse(trainer.predict(test), ratings),
    }
    if planted is not None:
        errors["noise floor"] = rmse(planted[test], ratings)
    print(f"\n{summary(errors, len(test), trainer, list(features.vocabulary_sizes()), seconds)}")


def _progress_bar() -> Any:
    try:
        return importlib.import_module("tqdm").tqdm
    except ImportError as error:
        raise DemoError("the demo shows its progress with tqdm: pip install 'anycore[demo]'") from error


def _train(trainer: Trainer, train: IntArray, epochs: int, seed: int, progress_bar: Any) -> float:
    # Returns the seconds it took.
    rng = np.random.default_rng(seed)
    ids_per_epoch = num_ids(trainer.features.inputs(train))
    begin = time.perf_counter()
    for epoch in range(1, epochs + 1):
        shuffled, squared_errors = rng.permutation(train), 0.0
        with progress_bar(total=ids_per_epoch, desc=f"epoch {epoch}/{epochs}", unit=" ids", unit_scale=True) as bar:
            for start in range(0, len(shuffled), BATCH_SIZE):
                ids_before = trainer.ids
                batch = shuffled[start : start + BATCH_SIZE]
                errors = trainer.step(batch)
                squared_errors += float(errors @ errors)
                training_rmse = math.sqrt(squared_errors / (start + len(batch)))
                bar.set_postfix_str(f"training RMSE {training_rmse:.3f}", refresh=False)
                bar.update(trainer.ids - ids_before)
    return time.perf_counter() - begin
