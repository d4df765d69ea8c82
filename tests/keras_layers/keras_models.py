"""A model whose only layer is ours, and the engine's own training of the same data."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from engines import State
from numpy.typing import NDArray

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, Ragged, TableConfig
from anycore.keras import TPUEmbedding
from anycore.keras.embedding_layer import EmbeddingLayer
from anycore.optimizers import FTRL, Adagrad, Adam, DynamicInput

Inputs = dict[str, NDArray[np.int32]]
BATCH, STEPS = 8, 20
SAMPLES = BATCH * STEPS + 3
"""The last batch is smaller."""


def config(**options: Any) -> EmbeddingConfig:
    """Three features, two of which share a table; three optimizers, one with a dynamic rate."""
    return EmbeddingConfig(
        [
            TableConfig("movies", 40, 4, Adagrad(learning_rate=0.1), combiner="mean"),
            TableConfig("people", 30, 4, Adam(learning_rate=DynamicInput(0), use_non_lazy_adam=True)),
            TableConfig("words/tags", 20, 4, FTRL(learning_rate=0.1, l1=0.01)),
        ],
        [
            FeatureConfig("watched", "movies", [BATCH]),
            FeatureConfig("who", "people", [BATCH]),
            FeatureConfig("next", "movies", [BATCH]),
            FeatureConfig("words", "words/tags", [BATCH, 2]),
        ],
        **options,
    )


def inputs(samples: int = SAMPLES) -> Inputs:
    """Ids of every feature, of one and of two axes."""
    random = np.random.default_rng(0)
    shapes = {"watched": (40, (3,)), "who": (30, ()), "next": (40, ()), "words": (20, (2,))}
    return {
        name: random.integers(0, size, (samples, *shape)).astype(np.int32) for name, (size, shape) in shapes.items()
    }


def targets(samples: int = SAMPLES) -> NDArray[np.float32]:
    return np.random.default_rng(1).normal(size=(samples, 20)).astype(np.float32)


@keras.saving.register_keras_serializable(package="tests")  # type: ignore[untyped-decorator]
def half_squared_distance(wanted: Any, got: Any) -> Any:
    """A loss whose gradient is exactly `got - wanted` in float32."""
    return keras.ops.sum(keras.ops.square(got - wanted)) * 0.5


def new_layer(**options: Any) -> TPUEmbedding:
    return TPUEmbedding(config(), **{"learning_rates": {0: 0.01}, "seed": 3, **options})


def new_model(layer: EmbeddingLayer, *, dense: bool = False) -> keras.Model:
    """Concatenates all activations to [batch, 20]; with `dense` a trained layer follows."""
    symbols = {name: keras.Input(ids.shape[1:], dtype="int32", name=name) for name, ids in inputs(1).items()}
    activations = layer(symbols)
    flat = [keras.layers.Flatten()(activations[name]) for name in symbols]
    outputs = keras.layers.Concatenate()(flat)
    if dense:
        outputs = keras.layers.Dense(20, kernel_initializer=keras.initializers.Orthogonal(seed=0))(outputs)
    model = keras.Model(symbols, outputs)
    model.compile(keras.optimizers.Adam(0.01) if dense else "sgd", half_squared_distance)
    return model


def fit(model: keras.Model, **options: Any) -> keras.callbacks.History:
    return model.fit(inputs(), targets(), batch_size=BATCH, shuffle=False, verbose=0, **options)


def trained_engine(rates: Any = lambda step: 0.01, epochs: int = 1, **options: Any) -> EmbeddingEngine:
    """The engine after as many steps; `rates` maps the step's number, from 0 on, to the rate of tag 0."""
    engine = EmbeddingEngine(config(**options), seed=3)
    for step, first in enumerate(list(range(0, SAMPLES, BATCH)) * epochs):
        batch = {name: ids[first : first + BATCH] for name, ids in inputs().items()}
        size = len(batch["who"])
        engine.reshape([[size], [size], [size], [size, 2]])
        splits = np.arange(size + 1) * 3
        engine.enqueue({**batch, "watched": Ragged(splits, batch["watched"].ravel())})
        activations = engine.receive_activations()
        wanted = np.split(targets()[first : first + BATCH], [4, 8, 12], axis=1)
        gradients = [a - w.reshape(a.shape) for a, w in zip(activations, wanted, strict=True)]
        engine.send_gradients(gradients, [rates(step)])
    return engine


def tables(layer: EmbeddingLayer) -> State:
    return {table.name: layer.engine.retrieve(table.name) for table in layer.engine.config.tables}
