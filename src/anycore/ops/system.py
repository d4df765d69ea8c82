"""The one embedding system of this process, as a TPU has one, and the operations that set it up."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anycore.config import EmbeddingConfig, parse
from anycore.engine import EmbeddingEngine
from anycore.errors import CallOrderError, ConfigError
from anycore.optimizers import Optimizer


@dataclass
class _System:
    message: Any
    serialized: bytes
    engine: EmbeddingEngine
    others: tuple[bytes, ...] = ()
    """Other bytes that have turned out to say the same, the latest first."""


_MOST_OTHERS = 2

_current: _System | None = None
_lock = threading.Lock()


def configure_tpu_embedding(
    config: Any,
    *,
    seed: int = 0,
    num_threads: int | None = None,
    timeout: float = 60.0,
    optimizers: Mapping[str, type[Optimizer]] | None = None,
) -> None:
    """Makes the process's embedding system of a serialized TPUEmbeddingConfiguration, in place of the present one.

    Calls that wait in the present one then end with a CallOrderError. The keywords are those of EmbeddingEngine and
    EmbeddingConfig.from_proto.

    Raises: ConfigError; then the present system stays.
    """
    message = parse(config)
    parsed = EmbeddingConfig.from_proto(message, optimizers=optimizers)
    engine = EmbeddingEngine(parsed, seed=seed, num_threads=num_threads, timeout=timeout)
    _replace(_System(message, message.SerializeToString(), engine))


def is_tpu_embedding_initialized(config: Any = "") -> np.bool_:
    """Returns whether a system is configured and, unless `config` is empty, has that config."""
    system = _current
    return np.bool_(system is not None and (_is_empty(config) or _matches(system, config)))


def shutdown_tpu_system() -> np.bool_:
    """Forgets the system, frees its tables and ends calls that wait in it; returns whether there was one."""
    return np.bool_(_replace(None))


def engine_of(config: Any, op: str, *, config_may_be_empty: bool = False) -> EmbeddingEngine:
    """Returns the engine that `op` acts on.

    Raises: CallOrderError when nothing is configured; ConfigError when `config` is another one.
    """
    system = _current
    if system is None:
        raise CallOrderError(
            f"{op}: the embedding system is not configured; call configure_tpu_embedding(config) first"
        )
    if _is_empty(config) and config_may_be_empty:
        return system.engine
    if not _matches(system, config):
        raise ConfigError(f"{op}: config is not the one that the embedding system was configured with")
    return system.engine


def _replace(system: _System | None) -> bool:
    global _current
    with _lock:
        was, _current = _current, system
    if was is not None:
        was.engine.close()
    return was is not None


def _is_empty(config: Any) -> bool:
    return isinstance(config, (bytes, str)) and not config


def _matches(system: _System, config: Any) -> bool:
    # Every step passes the config; known bytes need no parsing.
    if config == system.serialized or config in system.others:
        return True
    message = parse(config)
    # Other bytes may say the same: statuses that mean their default, names of features that are not given.
    if message != system.message and EmbeddingConfig.from_proto(message) != system.engine.config:
        return False
    if isinstance(config, bytes):
        system.others = (config, *system.others)[:_MOST_OTHERS]
    return True


def text(value: str | bytes) -> str:
    """Returns a string attribute as str; TensorFlow's front ends pass bytes."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
