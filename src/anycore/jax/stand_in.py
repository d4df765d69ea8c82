"""What stands for an engine's tables in a JAX program: a number, so that lookups and updates depend on each other."""

from __future__ import annotations

import itertools
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from anycore.batch import Dense, Ragged, Sparse
from anycore.engine import EmbeddingEngine
from anycore.errors import CallOrderError, ConfigError


@dataclass(frozen=True)
class Tables:
    """An engine's tables as a value of JAX, a pytree of one float32 scalar: to differentiate, donate, carry in a scan.

    It holds no parameters, and its number means nothing; it keeps no engine alive either.
    """

    token: Any
    engine_number: int

    @property
    def engine(self) -> EmbeddingEngine:
        """The engine whose tables these are. Raises: CallOrderError when it is gone."""
        return served(self.engine_number).engine


@dataclass
class Served:
    """An engine that programs look up: they know it by number, so that none of them keeps it alive."""

    reference: weakref.ref[EmbeddingEngine]
    lock: threading.Lock = field(default_factory=threading.Lock)
    updates: int = 0
    """Updates by programs so far; guarded by `lock`."""

    @property
    def engine(self) -> EmbeddingEngine:
        """The engine. Raises: CallOrderError when it is gone."""
        engine = self.reference()
        if engine is None:
            raise CallOrderError("the engine of these tables is gone; keep a reference to it as long as programs run")
        return engine


_numbers = itertools.count()
_served: dict[int, Served] = {}
_number_of: weakref.WeakKeyDictionary[EmbeddingEngine, int] = weakref.WeakKeyDictionary()


def tables(engine: EmbeddingEngine) -> Tables:
    """Returns what stands for the engine's tables in programs of JAX; the caller keeps the engine.

    Raises: ConfigError for something else than an engine.
    """
    if not isinstance(engine, EmbeddingEngine):
        raise ConfigError(f"tables of an EmbeddingEngine can be looked up, got {type(engine).__name__}")
    number = _number_of.setdefault(engine, next(_numbers))
    _served.setdefault(number, Served(weakref.ref(engine)))
    return Tables(jnp.zeros((), jnp.float32), number)


def served(number: int) -> Served:
    """Returns what is known of the engine of this number."""
    return _served[number]


jax.tree_util.register_dataclass(Tables, data_fields=["token"], meta_fields=["engine_number"])
for _kind, _fields in (
    (Dense, ["embedding_indices", "aggregation_weights"]),
    (Ragged, ["sample_splits", "embedding_indices", "aggregation_weights"]),
    (Sparse, ["sample_indices", "embedding_indices", "aggregation_weights"]),
):
    jax.tree_util.register_dataclass(_kind, data_fields=_fields, meta_fields=[])
