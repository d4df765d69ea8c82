"""`TPUEmbedding` as a Keras layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from anycore.keras.embedding_layer import EmbeddingLayer
from anycore.keras.feature_configs import as_layer_config
from anycore.keras.rates import RateValue


@keras.saving.register_keras_serializable(package="anycore")
class TPUEmbedding(EmbeddingLayer):
    """Embedding tables as a layer: ids in, activations out, each table trained by its own optimizer.

    `feature_config` is an `EmbeddingConfig` with features, and then inputs and outputs are dicts by feature name; or a
    nest of `tf.tpu.experimental.embedding.FeatureConfig`s, or of objects with their attributes, and then they come in
    that nest. `optimizer` serves the tables of a nest that have none: one of `anycore.optimizers`, `keras.optimizers`
    or `tf.tpu.experimental.embedding`. `seed` and a table's name determine its starting values.

    `learning_rates` maps tables, or tags of an `EmbeddingConfig`, to numbers, Keras schedules or functions without
    arguments; it must have the dynamic tags, and comes before what an optimizer says. Every rate that is a number can
    be set at any time: `layer.learning_rate(table).assign(0.01)`.

    Raises: ConfigError for what a layer cannot do, by name.
    """

    def __init__(
        self,
        feature_config: Any,
        optimizer: Any = None,
        *,
        learning_rates: Mapping[int | str, RateValue] | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(as_layer_config(feature_config, optimizer, learning_rates), seed, **kwargs)
