"""TPU embeddings on any core: the same configuration, operations, optimizers and numbers, without a TPU."""

from anycore.batch import Dense, Ragged, Sparse
from anycore.config import EmbeddingConfig, FeatureConfig, Mode, SpmdSharding, TableConfig
from anycore.engine import EmbeddingEngine
from anycore.errors import AnycoreError, CallOrderError, CallTimeoutError, ConfigError, InputError, TransportError
from anycore.sharding import ShardingStrategy

__version__ = "0.1.0"

__all__ = [
    "AnycoreError",
    "CallOrderError",
    "CallTimeoutError",
    "ConfigError",
    "Dense",
    "EmbeddingConfig",
    "EmbeddingEngine",
    "FeatureConfig",
    "InputError",
    "Mode",
    "Ragged",
    "ShardingStrategy",
    "Sparse",
    "SpmdSharding",
    "TableConfig",
    "TransportError",
]
