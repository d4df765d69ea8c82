"""State variables of any ids, read from and written to the processes that keep them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore.sharding import overlap
from anycore.table import Table
from anycore.transport import Transport

Shards = Sequence[Sequence[range]]
"""By table and process, the ids that it keeps."""


def retrieve_shards(
    transport: Transport, tables: Sequence[Table], shards: Shards, table: int, ids: range
) -> dict[str, NDArray[np.float32]]:
    """Returns copies of the state variables of the given ids of a table. Collective; each may ask for others."""
    asked = [(number, range(*limits)) for number, limits in _all(transport, [table, _limits(ids)])]
    answers = [_columns(tables[number], _common(shards[number][transport.rank], wanted)) for number, wanted in asked]
    found = [overlap(ids, shard) for shard in shards[table]]
    widths = {name: tables[table].view(name).shape[1] for name in tables[table].state_variables}
    parts = [np.empty((len(part), sum(widths.values())), np.float32) for part in found]
    transport.all_to_all(answers, parts)
    values = {name: np.empty((len(ids), width), np.float32) for name, width in widths.items()}
    for part, columns in zip(found, parts, strict=True):
        _unpack(columns, values, _places(part, ids))
    return values


def load_shards(
    transport: Transport,
    tables: Sequence[Table],
    shards: Shards,
    table: int,
    ids: range,
    values: Mapping[str, NDArray[np.float32]],
) -> None:
    """Overwrites state variables of the given ids of a table. Collective; each may give others.

    A row gets the values of the last process that gives it, except that its keeper takes none from a process that gives
    the same ids and state variables as itself.
    """
    names = list(values)
    given = _all(transport, [table, _limits(ids), names])
    own = given[transport.rank]
    common = [
        overlap(ids, shard) if process == transport.rank or given[process] != own else range(0)
        for process, shard in enumerate(shards[table])
    ]
    outgoing = [_pack([values[name][_places(part, ids)] for name in names], len(part)) for part in common]
    incoming, targets = [], []
    for process, (number, limits, theirs) in enumerate(given):
        shard = shards[number][transport.rank]
        keeps = process == transport.rank or given[process] != own
        part = overlap(range(*limits), shard) if keeps else range(0)
        views = {name: tables[number].view(name) for name in theirs}
        incoming.append(np.empty((len(part), sum(view.shape[1] for view in views.values())), np.float32))
        targets.append((views, _places(part, shard)))
    transport.all_to_all(outgoing, incoming)
    for columns, (views, rows) in zip(incoming, targets, strict=True):
        _unpack(columns, views, rows)


def _all(transport: Transport, value: Any) -> list[Any]:
    return [json.loads(text) for text in transport.all_gather(json.dumps(value).encode())]


def _limits(ids: range) -> tuple[int, int, int]:
    return ids.start, ids.stop, ids.step


def _common(shard: range, ids: range) -> slice:
    """Returns the rows of a shard that are among the ids."""
    return _places(overlap(shard, ids), shard)


def _places(part: range, whole: range) -> slice:
    """Returns where in a range the values of a part of it stand."""
    if not part:
        return slice(0, 0)
    step = part.step // whole.step if len(part) > 1 else 1
    first = whole.index(part[0])
    return slice(first, first + (len(part) - 1) * step + 1, step)


def _columns(table: Table, rows: slice) -> NDArray[np.float32]:
    """Returns all state variables of the rows side by side."""
    views = [table.view(name)[rows] for name in table.state_variables]
    return _pack(views, len(views[0]))


def _pack(arrays: Sequence[NDArray[np.float32]], rows: int) -> NDArray[np.float32]:
    return np.concatenate([np.empty((rows, 0), np.float32), *arrays], axis=1)


def _unpack(columns: NDArray[np.float32], targets: Mapping[str, NDArray[np.float32]], rows: slice) -> None:
    first = 0
    for target in targets.values():
        target[rows] = columns[:, first : first + target.shape[1]]
        first += target.shape[1]
