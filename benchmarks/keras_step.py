"""Times a step of Keras' `fit` through our `DistributedEmbedding` and that of keras-rs, with tables of growing size.

The backend is the one that KERAS_BACKEND names. Both layers take turns in every repetition; the table shows medians.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import keras
import keras_rs
import numpy as np

import anycore.keras

VOCABULARY_SIZES = (10_000, 1_000_000)
BATCH, IDS, DIMENSION, STEPS = 256, 20, 16, 50
LAYERS = {"anycore": anycore.keras.DistributedEmbedding, "keras-rs": keras_rs.layers.DistributedEmbedding}


def new_model(layer: type[Any], vocabulary_size: int) -> keras.Model:
    """Returns a model of one table, one dense layer, and Adagrad for both."""
    table = keras_rs.layers.TableConfig("table", vocabulary_size, DIMENSION, optimizer="adagrad")
    feature = keras_rs.layers.FeatureConfig("feature", table, (BATCH, IDS), (BATCH, DIMENSION))
    ids = keras.Input((IDS,), dtype="int32")
    model = keras.Model(ids, keras.layers.Dense(1)(layer(feature)(ids)))
    model.compile("adagrad", "mse")
    return model


def main() -> None:
    """Prints the milliseconds of a step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=7, help="after one that warms up")
    repetitions = parser.parse_args().repetitions
    random = np.random.default_rng(0)
    # The same ids whatever the table's size.
    ids = random.integers(0, VOCABULARY_SIZES[0], (BATCH * STEPS, IDS)).astype(np.int32)
    targets = random.normal(size=(BATCH * STEPS, 1)).astype(np.float32)
    print(f"Keras {keras.__version__}, {keras.backend.backend()}: batch {BATCH}, {IDS} ids a sample, {DIMENSION} wide")
    print(f"{'rows':>10} | " + " | ".join(f"{name:>8}" for name in LAYERS) + " | milliseconds a step")
    for vocabulary_size in VOCABULARY_SIZES:
        models = {name: new_model(layer, vocabulary_size) for name, layer in LAYERS.items()}
        times: dict[str, list[float]] = {name: [] for name in models}
        for _ in range(repetitions + 1):
            for name, model in models.items():
                started = time.perf_counter()
                model.fit(ids, targets, batch_size=BATCH, shuffle=False, verbose=0)
                times[name].append((time.perf_counter() - started) / STEPS)
        medians = [1e3 * float(np.median(times[name][1:])) for name in models]
        print(f"{vocabulary_size:>10,} | " + " | ".join(f"{median:8.2f}" for median in medians) + " |")


if __name__ == "__main__":
    main()
