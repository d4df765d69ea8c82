"""Whose the embedding system of this process is: there is one, and one object at a time works with it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import tensorflow as tf

from anycore.engine import EmbeddingEngine
from anycore.ops import is_tpu_embedding_initialized, shutdown_tpu_system
from anycore.ops.system import engine_of
from anycore.tensorflow.kernels import register_kernels

_latest: tuple[weakref.ref[Any], weakref.ref[EmbeddingEngine]] | None = None
"""Owner and engine of the system that was configured here last."""


class OwnedSystem:
    """The embedding system as one object has configured it. What keeps its tables in memory is the system alone."""

    def __init__(self, owner: Any, config: bytes) -> None:
        """Configures the system for `owner`, in place of one whose owner is gone.

        Raises: RuntimeError while something else has the system; then nothing has changed.
        """
        global _latest
        register_kernels()
        _release()
        tf.raw_ops.ConfigureTPUEmbedding(config=config)  # with the settings that register_kernels was given
        self.config = config
        self._engine = weakref.ref(_present_engine())
        _latest = weakref.ref(owner), self._engine

    @property
    def engine(self) -> EmbeddingEngine:
        """The engine that was configured. Raises: RuntimeError as `check` does."""
        self.check()
        return _present_engine()

    def check(self) -> None:
        """Raises: RuntimeError when the system has been shut down or configured anew."""
        if not self._is_present():
            raise RuntimeError(
                "The embedding system of this TPUEmbedding was shut down or configured anew, and its tables are gone. "
                "Create a new TPUEmbedding and restore a checkpoint."
            )

    def shut_down(self) -> None:
        """Frees the tables, unless the system is no longer this one."""
        if self._is_present():
            shutdown_tpu_system()

    def _is_present(self) -> bool:
        return bool(is_tpu_embedding_initialized()) and self._engine() is _present_engine()


def _present_engine() -> EmbeddingEngine:
    return engine_of("", "TPUEmbedding", config_may_be_empty=True)


def _release() -> None:
    """Shuts down a system that nobody has any more.

    Raises: RuntimeError when somebody has it.
    Source: `TPUEmbedding.build`, TensorFlow 2.21, for the words of the error.
    """
    if not is_tpu_embedding_initialized():
        return
    if _latest is not None and _latest[1]() is _present_engine():
        gc.collect()  # an owner in a circle of references may be there although nobody can reach it
        if _latest[0]() is None:
            shutdown_tpu_system()
            return
    raise RuntimeError(
        "TPU is already initialized for embeddings. This may be caused by using multiple TPUEmbedding instances in a "
        "TPU scope which is unsupported. Let go of the other instance, or call anycore.ops.shutdown_tpu_system(), by "
        "which its tables are lost."
    )
