"""TensorFlow's TPU embedding operations and its class `TPUEmbedding`, without a TPU."""

from __future__ import annotations

from typing import Any

__all__ = ["TPUEmbedding", "register_kernels"]


def __getattr__(name: str) -> Any:
    if name == "register_kernels":
        from anycore.tensorflow.kernels import register_kernels

        return register_kernels
    if name == "TPUEmbedding":
        from anycore.tensorflow.embedding import TPUEmbedding

        return TPUEmbedding
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
