"""Trains the model of examples/torch_dlrm.py without dropout, and writes its tables and its dense part to a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anycore.demo import synthetic
from anycore.demo.dataset import split
from anycore.demo.features import Features
from anycore.demo.history import earlier_ratings

SIZES = {"num_users": 60, "num_movies": 80, "num_ratings": 1500}


def trained(example: Any) -> dict[str, Any]:
    """Returns state variables and dense parameters after two epochs, and predictions."""
    dataset, _ = synthetic.plant(0, **SIZES)
    learned, held_out = split(len(dataset.ratings))
    features = Features(dataset, earlier_ratings(dataset, learned))
    torch.manual_seed(example.RANK)
    model = example.DLRM(example.make_config(features.vocabulary_sizes()), 2, 3.5)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    example.train(model, features, learned, epochs=2, most_steps=None)
    values: dict[str, Any] = {"predictions": example.predict(model, features, held_out)}
    for table in model.tables.engine.config.tables:
        for name, variable in model.tables.engine.retrieve(table.name).items():
            values[f"{table.name}.{name}"] = variable
    for name, parameter in model.dense.named_parameters():
        values[name.removeprefix("module.")] = parameter.detach().numpy()
    return values


if __name__ == "__main__":
    import torch_dlrm

    torch.distributed.init_process_group("gloo")
    found = trained(torch_dlrm)
    if torch_dlrm.RANK == 0:
        np.savez(Path(sys.argv[1]), **found)
