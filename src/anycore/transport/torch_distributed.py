"""Processes that torchrun starts, connected by torch.distributed's gloo."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from functools import partial
from typing import Any

from anycore.errors import ConfigError, TransportError
from anycore.transport.transport import Buffers, Transport

_CONNECTING = 5.0
"""Seconds that processes get at least to be connected."""

_LONGEST = 1e8
"""Seconds, three years: what gloo can wait without an overflow of its clock."""


class TorchTransport(Transport):
    """The processes of a group of torch.distributed, by default all; gloo carries the bytes whatever its backend.

    Raises: ConfigError when torch.distributed is not initialised.
    """

    def __init__(self, group: Any = None, *, timeout: float = 60.0) -> None:
        import torch.distributed

        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            raise ConfigError(
                "torch.distributed is not initialised; start the program with torchrun and call "
                'torch.distributed.init_process_group("gloo") first'
            )
        self._group, self._timeout = group, min(timeout, _LONGEST)
        self._given_up: list[tuple[int, Any]] = []  # kept, for who is late still waits for what this one has sent
        self.rank = torch.distributed.get_rank(group)
        self.size = torch.distributed.get_world_size(group)

    def channel(self, timeout: float) -> Transport:
        """Returns a transport over a new gloo group of the same processes.

        Raises: TransportError when they cannot be connected.
        """
        import torch.distributed as dist

        ranks = dist.get_process_group_ranks(self._group or dist.group.WORLD)
        patience = timedelta(seconds=min(max(timeout, _CONNECTING), _LONGEST))
        try:
            group = dist.new_group(ranks, patience, backend="gloo", use_local_synchronization=True)
        except RuntimeError as error:
            raise TransportError(f"the {self.size} processes cannot be connected: {_reason(error)}") from error
        return type(self)(group, timeout=timeout)

    def exchange(self, outgoing: Buffers, incoming: Buffers) -> None:
        """Sends outgoing[p] to every other process p and fills incoming[p]. Raises: TransportError that names them."""
        import torch
        import torch.distributed as dist

        transfers: list[tuple[int, Any]] = []
        failed: dict[int, str] = {}
        for distance in range(1, self.size):
            # Everybody begins with the next one, so that no process is everybody's first.
            source, target = (self.rank - distance) % self.size, (self.rank + distance) % self.size
            for other, buffer, start in (
                (source, incoming[source], partial(dist.irecv, group_src=source)),
                (target, outgoing[target], partial(dist.isend, group_dst=target)),
            ):
                if buffer.size:
                    try:
                        transfers.append((other, start(torch.from_numpy(buffer), group=self._group)))
                    except RuntimeError as error:
                        failed[other] = _reason(error)
        deadline = time.monotonic() + self._timeout
        for other, work in transfers:
            # Once one is gone, waiting shortly for the others would close the connections to those that are only late.
            if failed and time.monotonic() < deadline:
                break
            try:
                work.wait(timedelta(seconds=max(0.001, deadline - time.monotonic())))
            except RuntimeError as error:
                failed.setdefault(other, _reason(error))
        if failed:
            self._given_up = transfers
            raise TransportError(
                "; ".join(f"process {other} is gone or silent ({reason})" for other, reason in sorted(failed.items()))
            )


def _reason(error: RuntimeError) -> str:
    """Returns the first sentence of what gloo says, without the place in its sources."""
    return re.sub(r"^\[[^]]*\] ", "", str(error).splitlines()[0]).split(". ")[0]
