"""Starting values from TensorFlow's initializers, brought into the engine piece by piece."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from anycore.engine import EmbeddingEngine
from anycore.sharding import Sharding
from anycore.tensorflow.configuration import Table

PIECE_FLOATS = 1 << 22
"""How much of a variable is made at once, where it can be made in pieces."""

_MEMORYLESS = (
    tf.ones_initializer,
    tf.random_normal_initializer,
    tf.random_uniform_initializer,
    tf.zeros_initializer,
    type(tf.tpu.experimental.embedding.TableConfig(1, 1, name="any").initializer),  # truncated normal
)


class _ShardInfo(NamedTuple):
    """The part of a variable that an initializer with an argument `shard_info` makes."""

    shape: tuple[int, int]
    offset: tuple[int, int]


def load_initial_values(engine: EmbeddingEngine, table: Table) -> dict[str, Any]:
    """Overwrites all state variables of the table with their starting values.

    Returns the variables that `slot_variable_creation_fn` has made for its slots; without one, nothing.

    Raises: InputError for an initializer that returns another shape; ValueError for a function that makes other slots.
    """
    if getattr(table.optimizer, "slot_variable_creation_fn", None) is not None:
        return _load_with_own_slots(engine, table)
    _load_parameters(engine, table)
    for slot, value in table.initial_slots.items():
        _load_pieces(engine, table, slot, _pieces(table), partial(_constant, value))
    return {}


def _load_parameters(engine: EmbeddingEngine, table: Table) -> None:
    initializer = table.config.initializer
    if _takes_shard_info(initializer):

        def values(shape: tuple[int, int], first_row: int) -> Any:
            return initializer(table.shape, dtype=tf.float32, shard_info=_ShardInfo(shape, (first_row, 0)))

        _load_pieces(engine, table, "parameters", _pieces(table), values)
    else:
        pieces = _pieces(table) if _is_memoryless(initializer) else 1
        _load_pieces(engine, table, "parameters", pieces, lambda shape, _: initializer(shape, dtype=tf.float32))


def _load_with_own_slots(engine: EmbeddingEngine, table: Table) -> dict[str, Any]:
    parameters = tf.Variable(table.config.initializer(table.shape, dtype=tf.float32), name=table.name, trainable=False)
    initializers = [tf.constant_initializer(value) for value in table.initial_slots.values()]
    slots = dict(table.optimizer.slot_variable_creation_fn(parameters, list(table.initial_slots), initializers))
    if slots.keys() != table.initial_slots.keys():
        raise ValueError(
            f"table {table.name!r}: slot_variable_creation_fn must return variables named {list(table.initial_slots)}, "
            f"got {list(slots)}"
        )
    engine.load(table.name, {name: np.asarray(value) for name, value in {"parameters": parameters, **slots}.items()})
    return slots


def _load_pieces(
    engine: EmbeddingEngine,
    table: Table,
    variable: str,
    pieces: int,
    values: Callable[[tuple[int, int], int], Any],
) -> None:
    """Loads `values(shape, first_row)` of each piece; only one piece is in memory at a time."""
    rows, dimension = table.shape
    sharding = Sharding(table.name, rows, pieces, engine.config.sharding_strategy)
    for piece in range(pieces):
        first, last, _ = sharding.ids_of_shard(piece).indices(rows)
        array = np.asarray(values((last - first, dimension), first))
        engine.load(table.name, {variable: array}, num_shards=pieces, shard_id=piece)


def _constant(value: float, shape: tuple[int, int], first_row: int) -> Any:
    return np.full(shape, value, np.float32)


def _pieces(table: Table) -> int:
    rows, dimension = table.shape
    return min(rows, math.ceil(rows * dimension / PIECE_FLOATS))


def _takes_shard_info(initializer: Any) -> bool:
    try:
        return "shard_info" in inspect.signature(initializer).parameters
    except (TypeError, ValueError):
        return False


def _is_memoryless(initializer: Any) -> bool:
    """Returns whether pieces made one after another are as good as the whole: their values depend on no row.

    Others may hold a value for every row, or begin the same sequence anew at each call, as a seeded one may.
    """
    return isinstance(initializer, _MEMORYLESS) and getattr(initializer, "seed", None) is None
