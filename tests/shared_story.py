"""A story of steps in every mode, told to one engine or to several that share its tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from anycore import EmbeddingConfig, FeatureConfig, Ragged, TableConfig
from anycore.optimizers import Adagrad, Adam, DynamicInput, RowWiseAdagrad

ROWS = {"each": 13, "all": 5, "mean": 9}
OPTIMIZERS = {
    "each": Adagrad(learning_rate=0.1, gradient_accumulation=False),
    "all": Adam(learning_rate=DynamicInput(0), use_non_lazy_adam=True),
    "mean": RowWiseAdagrad(learning_rate=0.1),
}


MODES = [
    "training",
    "training",
    "backward_pass_only",
    "training",
    "inference",
    "training",
    "backward_pass_only",
    "training",
]


def config_of(num_cores: int, **options: Any) -> EmbeddingConfig:
    """Tables whose updates go by occurrence, by table, and by the mean of a row."""
    return EmbeddingConfig(
        [TableConfig(name, rows, 3, OPTIMIZERS[name], combiner="mean") for name, rows in ROWS.items()],
        [FeatureConfig(name, name, [4]) for name in [*ROWS, *ROWS]],
        num_tensor_cores=num_cores,
        **options,
    )


def bags(size: int, *seed: int) -> list[Ragged]:
    """Weighted ids of all features, in bags of which some are empty."""
    random = np.random.default_rng(seed)
    found = []
    for rows in [*ROWS.values(), *ROWS.values()]:
        splits = np.append(0, np.cumsum(random.integers(0, 4, size)))
        ids = random.integers(0, rows, splits[-1])
        found.append(Ragged(splits, ids, random.random(len(ids)).astype(np.float32)))
    return found


def gradients(size: int, *seed: int) -> list[Any]:
    """Gradients of all features; of one there are none."""
    random = np.random.default_rng([*seed, 1])
    return [*(random.normal(size=(size, 3)).astype(np.float32) for _ in range(5)), None]


def story(engine: Any, cores: range) -> list[tuple[str, Any]]:
    """Steps of every mode and of other shapes, and shards that are read and written between them."""
    seen: list[tuple[str, Any]] = []
    size = 4
    for step, mode in enumerate(MODES):
        if step % 2:
            size = 4 - step % 3
            engine.reshape([[size]] * 6)
        for core in cores:
            engine.enqueue(bags(size, step, core), core=core, mode=mode)
        for core in cores if mode != "backward_pass_only" else []:
            seen += [(f"step {step}, core {core}", array) for array in engine.receive_activations(core)]
        for core in cores if mode != "inference" else []:
            engine.send_gradients(gradients(size, step, core), [0.1 / (step + 1)], core)
        if step % 3 == 2:
            for table, shards in (("each", 5), ("all", 3)):
                shard = engine.retrieve(table, num_shards=shards, shard_id=step % shards)
                seen += [(f"step {step}, {table}.{name}", array) for name, array in shard.items()]
                engine.load(table, {"parameters": shard["parameters"] / 2}, num_shards=shards, shard_id=step % shards)
    for table in ROWS:
        seen += [(f"{table}.{name}", array) for name, array in engine.retrieve(table).items()]
    return seen
