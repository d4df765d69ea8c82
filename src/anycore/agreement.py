"""Calls that several processes make together: all make the same one, and all can, or all of them raise."""

from __future__ import annotations

import json
from hashlib import blake2b
from itertools import zip_longest

import numpy as np

from anycore.config import EmbeddingConfig
from anycore.config_lines import lines
from anycore.errors import CallOrderError, ConfigError, InputError
from anycore.interrupts import uninterrupted
from anycore.transport import Transport

_DIGEST = 15


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

    `config_lines.lines` says what is compared.

    Raises: ConfigError on every process, with the first field in which one differs from process 0.
    """
    text = "\n".join([f"seed: {seed}", *lines(config, "config")]).encode()
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
