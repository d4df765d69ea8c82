"""The operations that load and retrieve state variables: of all tables, and per algorithm, made from OPTIMIZERS."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore.arrays import as_array
from anycore.engine import EmbeddingEngine
from anycore.errors import InputError
from anycore.ops.system import engine_of, text
from anycore.optimizers import OPTIMIZERS, Optimizer

_AUXILIARIES = 7
_NOTHING_ACCUMULATED = np.array([1], np.uint32).view(np.float32)[0]
"""The smallest denormal marks an element without an accumulated gradient.

Source: `tpu_embedding_optimization_parameters_utils`, TensorFlow.
"""


def load_all_tpu_embedding_parameters(
    parameters: Sequence[Any],
    auxiliary1: Sequence[Any],
    auxiliary2: Sequence[Any],
    auxiliary3: Sequence[Any],
    auxiliary4: Sequence[Any],
    auxiliary5: Sequence[Any],
    auxiliary6: Sequence[Any],
    auxiliary7: Sequence[Any],
    config: Any,
    num_shards: int,
    shard_id: int,
) -> None:
    """Overwrites one shard of every table; auxiliary k holds the k-th slot of each table, an empty array where unused.

    The position after a table's slots, its gradient accumulators, may be given; between steps they hold nothing.

    Raises: InputError; then nothing has changed.
    """
    op = "load_all_tpu_embedding_parameters"
    engine = engine_of(config, op)
    auxiliaries = (auxiliary1, auxiliary2, auxiliary3, auxiliary4, auxiliary5, auxiliary6, auxiliary7)
    tables = engine.config.tables
    for name, values in zip(
        ["parameters", *(f"auxiliary{k + 1}" for k in range(_AUXILIARIES))], [parameters, *auxiliaries], strict=True
    ):
        if len(values) != len(tables):
            raise InputError(f"{op}: {name} must hold {len(tables)} arrays, one per table, got {len(values)}")
    loads = {}
    for index, table in enumerate(tables):
        slots = table.optimizer.slots
        loads[table.name] = {"parameters": parameters[index]}
        loads[table.name] |= {slot.name: auxiliaries[k][index] for k, slot in enumerate(slots)}
        if _has_accumulators(table.optimizer):
            shape = as_array(auxiliaries[len(slots)][index], "gradient accumulators").shape
            if 0 not in shape and shape != as_array(parameters[index], "parameters").shape:
                raise InputError(
                    f"{op}: table {table.name!r}: auxiliary{len(slots) + 1}[{index}], its gradient accumulators, must "
                    f"be empty or have the shape of its parameters, got {list(shape)}"
                )
        for k in range(len(slots) + _has_accumulators(table.optimizer), _AUXILIARIES):
            size = as_array(auxiliaries[k][index], f"auxiliary{k + 1}[{index}]").size
            if size:
                raise InputError(
                    f"{op}: table {table.name!r} has {len(slots)} slots, auxiliary{k + 1}[{index}] must be empty, "
                    f"got {size} elements"
                )
    engine.load_tables(loads, num_shards=num_shards, shard_id=shard_id)


def retrieve_all_tpu_embedding_parameters(
    num_tables: int, config: Any, num_shards: int, shard_id: int
) -> tuple[list[NDArray[np.float32]], ...]:
    """Returns eight lists with one array per table: parameters, auxiliary 1 … 7, the unused ones empty [0, 0].

    With gradient accumulation the position after a table's slots holds its gradient accumulators; between steps every
    element is the smallest denormal, which stands for nothing.

    Raises: InputError for a wrong count of tables or shard.
    """
    op = "retrieve_all_tpu_embedding_parameters"
    engine = engine_of(config, op)
    if num_tables != len(engine.config.tables):
        raise InputError(f"{op}: num_tables must be {len(engine.config.tables)}, got {num_tables}")
    lists: tuple[list[NDArray[np.float32]], ...] = tuple([] for _ in range(1 + _AUXILIARIES))
    for table in engine.config.tables:
        variables = list(engine.retrieve(table.name, num_shards=num_shards, shard_id=shard_id).values())
        if _has_accumulators(table.optimizer):
            variables.append(np.full(variables[0].shape, _NOTHING_ACCUMULATED))
        for k, values in enumerate(lists):
            values.append(variables[k] if k < len(variables) else np.empty((0, 0), np.float32))
    return lists


def _has_accumulators(optimizer: Optimizer) -> bool:
    return optimizer.gradient_accumulation and len(optimizer.slots) < _AUXILIARIES


def _load_op(optimizer: type[Optimizer]) -> Callable[..., None]:
    name = f"load_tpu_embedding_{optimizer.wire_name}_parameters"
    variables = ("parameters", *(slot.name for slot in optimizer.slots))

    def load(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        shard = given.arguments
        engine, table = _table(name, optimizer, shard)
        state_variables = {variable: shard[variable] for variable in variables}
        engine.load(table, state_variables, num_shards=shard["num_shards"], shard_id=shard["shard_id"])

    signature = _signature(variables)
    load.__doc__ = (
        f"Overwrites {', '.join(variables)}, float32 [rows, D], of one shard of a table with {optimizer.wire_name}.\n\n"
        "Exactly one of `table_id` and `table_name` names the table. Raises: InputError; then nothing has changed."
    )
    return _named(load, name, signature)


def _retrieve_op(optimizer: type[Optimizer]) -> Callable[..., Any]:
    name = f"retrieve_tpu_embedding_{optimizer.wire_name}_parameters"
    variables = ("parameters", *(slot.name for slot in optimizer.slots))

    def retrieve(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        shard = given.arguments
        engine, table = _table(name, optimizer, shard)
        values = engine.retrieve(table, num_shards=shard["num_shards"], shard_id=shard["shard_id"])
        return tuple(values.values()) if len(values) > 1 else values["parameters"]

    signature = _signature(())
    retrieve.__doc__ = (
        f"Returns {', '.join(variables)}, float32 [rows, D], of one shard of a table with {optimizer.wire_name}.\n\n"
        "Exactly one of `table_id` and `table_name` names the table. Raises: InputError for an unknown table or shard."
    )
    return _named(retrieve, name, signature)


def _signature(variables: Sequence[str]) -> inspect.Signature:
    required = [*variables, "num_shards", "shard_id"]
    defaults = {"table_id": -1, "table_name": "", "config": ""}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature(
        [inspect.Parameter(name, kind) for name in required]
        + [inspect.Parameter(name, kind, default=value) for name, value in defaults.items()]
    )


def _named(function: Callable[..., Any], name: str, signature: inspect.Signature) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _table(op: str, optimizer: type[Optimizer], shard: dict[str, Any]) -> tuple[EmbeddingEngine, str]:
    """Returns the engine and the name of the table that a per-algorithm op means."""
    engine = engine_of(shard["config"], op, config_may_be_empty=True)
    table_id, table_name, tables = shard["table_id"], text(shard["table_name"]), engine.config.tables
    if (table_id >= 0) == (table_name != ""):
        raise InputError(
            f"{op}: exactly one of table_id or table_name must be non-default, got {table_id} and {table_name!r}"
        )
    matching = [t for index, t in enumerate(tables) if t.name == table_name or index == table_id]
    if not matching:
        raise InputError(
            f"{op}: there is no table {table_name or table_id!r}, the tables are {[t.name for t in tables]}"
        )
    if not isinstance(matching[0].optimizer, optimizer):
        raise InputError(
            f"{op}: table {matching[0].name!r} is trained by {matching[0].optimizer.wire_name}, "
            f"not {optimizer.wire_name} (TableDescriptor.optimization_parameters)"
        )
    return engine, matching[0].name


PARAMETER_OPS = {
    op.__name__: op
    for optimizer in OPTIMIZERS.values()
    if optimizer.op_name
    for op in (_load_op(optimizer), _retrieve_op(optimizer))
}
"""`load_tpu_embedding_<algorithm>_parameters` and its `retrieve` twin of every algorithm that has them, by name."""
