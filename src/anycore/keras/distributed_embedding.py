"""The layer of keras-rs of this name, for programs written against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from anycore.errors import ConfigError
from anycore.keras.embedding_layer import EmbeddingLayer
from anycore.keras.feature_configs import as_layer_config
from anycore.keras.inputs import PADDING
from anycore.keras.layer_config import LayerConfig

_PLACEMENTS = ("auto", "default_device", "sparsecore")
_PREPROCESSED = "anycore_preprocessed"


@keras.saving.register_keras_serializable(package="anycore")
class DistributedEmbedding(EmbeddingLayer):
    """Embedding tables with the constructor and calls of `keras_rs.layers.DistributedEmbedding`, trained as on a TPU.

    `feature_configs` is a nest of its `FeatureConfig`s, or of objects with their attributes. Each table is trained by
    its own optimizer, whatever the model's is; rows that a step does not touch cost nothing and stay as they are. All
    placements are one here, and so are all stackings of tables. Starting values are those of the tables' initializers.

    Raises: ConfigError for what has no meaning here, by name.
    Source: keras-rs 0.4.0, `keras_rs.layers.DistributedEmbedding`.
    """

    def __init__(
        self,
        feature_configs: Any,
        *,
        table_stacking: str | Sequence[str] | Sequence[Sequence[str]] | None = "auto",
        update_stats: bool = False,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        if update_stats:
            raise ConfigError("update_stats must be False: there are no partitions whose sizes could be learnt")
        if not isinstance(feature_configs, LayerConfig):
            for feature in keras.tree.flatten(feature_configs):
                placement = getattr(getattr(feature, "table", None), "placement", "auto")
                if placement not in _PLACEMENTS:
                    raise ConfigError(
                        f"table {feature.table.name!r}: placement must be one of {_PLACEMENTS}, got {placement!r}"
                    )
        super().__init__(as_layer_config(feature_configs), seed, **kwargs)
        self._table_stacking = table_stacking

    def preprocess(self, inputs: Any, weights: Any = None, training: bool = False) -> dict[str, Any]:
        """Returns ids and weights in one nest, which `call` takes as its `inputs`.

        Ragged NumPy arrays, that is arrays of arrays, become dense ones as wide as the second entry of the feature's
        input_shape, which cuts longer rows, or as their longest row; -1 fills them up and is no id.
        """
        del training
        width = self._layer_config.row_lengths
        pairs = [_as_dense(*pair, width[i]) for i, pair in enumerate(super()._pairs(inputs, weights))]
        bundle = {"inputs": self._nest([ids for ids, _ in pairs])}
        if weights is not None:
            bundle["weights"] = self._nest([weight for _, weight in pairs])
        return {_PREPROCESSED: bundle}

    def get_embedding_tables(self) -> dict[str, Any]:
        """Returns a copy of each table's parameters as a tensor, by the table's name."""
        engine = self.engine
        return {
            table.name: keras.ops.convert_to_tensor(engine.retrieve(table.name)["parameters"])
            for table in engine.config.tables
        }

    def get_config(self) -> dict[str, Any]:
        """Returns all that makes such a layer again."""
        return {**super().get_config(), "table_stacking": self._table_stacking}

    def _pairs(self, inputs: Any, weights: Any) -> list[tuple[Any, Any]]:
        if isinstance(inputs, dict) and _PREPROCESSED in inputs:
            inputs, weights = inputs[_PREPROCESSED]["inputs"], inputs[_PREPROCESSED].get("weights")
        # Of one id, the mean weighs nothing: keras-rs leaves such weights out, and zeros among them do not count.
        combined = [table.combiner == "sum" for table in self._layer_config.tables_of_features()]
        return [
            (ids, weight if len(ids.shape) > 1 or is_sum else None)
            for (ids, weight), is_sum in zip(super()._pairs(inputs, weights), combined, strict=True)
        ]


def _as_dense(ids: Any, weights: Any, width: int | None) -> tuple[Any, Any]:
    if not isinstance(ids, np.ndarray) or ids.dtype != np.object_:
        return ids, weights
    width = max(map(len, ids), default=0) if width is None else width
    dense = np.full((len(ids), width), PADDING, np.int64)
    dense_weights = None if weights is None else np.zeros(dense.shape, np.float32)
    for i, row in enumerate(ids):
        dense[i, : len(row)] = row[:width]
        if dense_weights is not None:
            dense_weights[i, : len(row)] = weights[i][:width]
    return dense, dense_weights
