"""Calls that several processes make together: all make the same one, and all can, or all of them raise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

import numpy as np

from anycore.config import EmbeddingConfig
from anycore.errors import CallOrderError, ConfigError, InputError
from anycore.transport import Transport

_DIGEST = 15
_PLAIN: Any = object.__repr__
"""Shows where an object is in memory, which differs between processes."""


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
    texts = [json.loads(text) for text in transport.all_gather(json.dumps([call, error and str(error)]).encode())]
    refusals = [f"process {rank}: {text}" for rank, (_, text) in enumerate(texts) if text is not None]
    if refusals:
        raise InputError(f"{call}: refused, nothing has changed on any process; {'; '.join(refusals)}") from error
    calls = "; ".join(f"process {rank}: {other}" for rank, (other, _) in enumerate(texts))
    raise CallOrderError(f"the processes must make the same calls in the same order, got {calls}")


def agree_on_config(transport: Transport, config: EmbeddingConfig, seed: int) -> None:
    """Returns when every process has come here with the same config and seed. Collective.

    Functions, such as initializers, are the same if they have the same name.

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


def _lines(value: Any, path: str) -> Iterator[str]:
    """Yields a line for each field of a config, the same in every process."""
    if is_dataclass(value):
        yield f"{path}: {type(value).__name__}"
        for field in fields(value):
            yield from _lines(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, tuple | list):
        for index, element in enumerate(value):
            yield from _lines(element, f"{path}[{index}]")
    elif callable(value) or type(value).__repr__ is _PLAIN:
        yield f"{path}: {getattr(value, '__qualname__', type(value).__name__)}"
    else:
        yield f"{path}: {value!r}"
