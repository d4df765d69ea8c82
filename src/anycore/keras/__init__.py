"""Keras 3 layers over one engine, on its TensorFlow, PyTorch and JAX backends alike."""

from anycore.keras.distributed_embedding import DistributedEmbedding
from anycore.keras.tpu_embedding import TPUEmbedding

__all__ = ["DistributedEmbedding", "TPUEmbedding"]
