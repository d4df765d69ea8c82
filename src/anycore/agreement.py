"""Calls that several processes make together: all make the same one, and all can, or all of them raise."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import blake2b
from itertools import zip_longest
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from anycore.config import EmbeddingConfig
from anycore.errors import CallOrderError, ConfigError, InputError
from anycore.interrupts import uninterrupted
from anycore.transport import Transport

_DIGEST = 15
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


@uninterrupted()  # the others count on all of its messages
def agree(transport: Transport, call: str, error: BaseException | None = None) -> None:
    """Returns when every process has come here with the same call and without an error. Collective.

    Raises: InputError that names the processes whose call was refused, with their reasons; CallOrderError when calls
    differ. Every process raises, also one that has given an error; TransportError as `Transport.all_to_all` does.
    """
    # One small message suffices as long as all is well.
    own = bytes([error is not None]) + blake2b(call.encode(), digest_size=_DIGEST).digest()
    headers = [np.zeros(len(own), np.uint8) for _ in range(transport.size)]
    transport.all_to_all([np.frombuffer(bytearray(own), np.uint8)] * transport.size, headers)
    if all(header.tobytes() == own for header in headers) and error is None:
        return
    reason = None if error is None else str(error) or type(error).__name__
    texts = [json.loads(text) for text in transport.all_gather(json.dumps([call, reason]).encode())]
    refusals = [f"process {rank}: {text}" for rank, (_, text) in enumerate(texts) if text is not None]
    if refusals:
        raise InputError(f"{call}: refused, nothing has changed on any process; {'; '.join(refusals)}") from error
    calls = "; ".join(f"process {rank}: {other}" for rank, (other, _) in enumerate(texts))
    raise CallOrderError(f"the processes must make the same calls in the same order, got {calls}")


def agree_on_config(transport: Transport, config: EmbeddingConfig, seed: int) -> None:
    """Returns when every process has come here with the same config and seed. Collective.

    Functions, such as initializers, are the same if name, code and defaults are, and what their closures, and
    `functools.partial`, hold. Global variables that they read, and the insides of other objects, are not compared.

    Raises: ConfigError on every process, with the first field in which one differs from process 0.
    """
    lines = [f"seed: {seed}", *_lines(config, "config")]
    text = "\n".join(lines).encode()
    digest = blake2b(text).digest()
    if all(other == digest for other in transport.all_gather(digest)):
        return
    first, *others = [gathered.decode().splitlines() for gathered in transport.all_gather(text)]
    for rank, theirs in enumerate(others, 1):
        for one, other in zip_longest(first, theirs, fillvalue="nothing more"):
            if one != other:
                raise ConfigError(
                    f"all processes must have the same config and seed, but process {rank} has {other!r} where process "
                    f"0 has {one!r} (TPUEmbeddingConfiguration)"
                )


def _lines(value: Any, path: str, inside: tuple[int, ...] = ()) -> Iterator[str]:
    """Yields a line for each part of a config, the same in every process."""
    parts = _parts(value)
    yield f"{path}: {type(value).__name__ if parts and not callable(value) else _shown(value)}"
    if id(value) not in inside:  # a function's closure may hold itself
        for name, part in parts.items():
            yield from _lines(part, path + name, (*inside, id(value)))


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
        return blake2b(value, digest_size=_DIGEST).hexdigest()
    if isinstance(value, set | frozenset):
        return str(sorted(map(_shown, value)))
    if callable(value) or isinstance(value, ModuleType):
        return getattr(value, "__qualname__", getattr(value, "__name__", type(value).__name__))
    return re.sub(" at 0x[0-9a-fA-F]+", "", repr(value))
