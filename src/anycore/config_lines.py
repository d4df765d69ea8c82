"""A config as lines of text, the same in every process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import blake2b
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

_PARTS: dict[type, tuple[str, ...]] = {
    partial: ("func", "args", "keywords"),
    MethodType: ("__func__", "__self__"),
    FunctionType: ("__defaults__", "__kwdefaults__", "__code__", "__closure__"),
    CodeType: ("co_code", "co_names", "co_consts"),
    CellType: ("cell_contents",),
}
"""What a function does and holds."""
_EMPTY = CellType()
"""A variable without a value; reading it would raise."""


def lines(value: Any, path: str, inside: tuple[int, ...] = ()) -> Iterator[str]:
    """Yields a line for each part of a config; every line begins with the part's path.

    Functions, such as initializers, have the same lines if name, code and defaults are the same, and what their
    closures, and `functools.partial`, hold. Globals that they read have none, other objects what their `repr` shows.
    """
    parts = _parts(value)
    yield f"{path}: {type(value).__name__ if parts and not callable(value) else _shown(value)}"
    if id(value) not in inside:  # a function's closure may hold itself
        for name, part in parts.items():
            yield from lines(part, path + name, (*inside, id(value)))


def _parts(value: Any) -> dict[str, Any]:
    """Returns what a value consists of, by the end of its path."""
    if isinstance(value, tuple | list):
        return {f"[{index}]": element for index, element in enumerate(value)}
    if isinstance(value, dict):
        return {f"[{_shown(key)}]": value[key] for key in sorted(value, key=_shown)}
    if isinstance(value, np.ndarray):
        data = value.tolist() if value.dtype.hasobject else value.tobytes()
        return {".dtype": value.dtype, ".shape": value.shape, ".data": data}
    if is_dataclass(value) and not isinstance(value, type):
        return {f".{field.name}": getattr(value, field.name) for field in fields(value)}
    names = next((names for kind, names in _PARTS.items() if isinstance(value, kind) and value != _EMPTY), ())
    return {f".{name}": getattr(value, name) for name in names}


def _shown(value: Any) -> str:
    """Returns a value in one line, without where it is in memory."""
    if isinstance(value, bytes):
        return blake2b(value, digest_size=16).hexdigest()
    if isinstance(value, set | frozenset):
        return str(sorted(map(_shown, value)))
    if callable(value) or isinstance(value, ModuleType):
        return getattr(value, "__qualname__", getattr(value, "__name__", type(value).__name__))
    return re.sub(" at 0x[0-9a-fA-F]+", "", repr(value))
