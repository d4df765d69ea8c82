"""Several engines in one process, each in a thread of its own: for tests, and to see what a cluster would do."""

from __future__ import annotations

import itertools
from collections import defaultdict
from queue import Empty, SimpleQueue

import numpy as np
from numpy.typing import NDArray

from anycore.errors import TransportError
from anycore.transport.transport import Buffers, Transport

_Mailboxes = defaultdict[tuple[tuple[int, ...], int, int], "SimpleQueue[NDArray[np.uint8]]"]
"""By channel, sender and receiver. A channel is the path of numbers that lead to it."""


class InProcessTransport(Transport):
    """One of the transports that `group` returns."""

    def __init__(
        self, rank: int, size: int, mailboxes: _Mailboxes, path: tuple[int, ...] = (), timeout: float = 60.0
    ) -> None:
        self.rank, self.size = rank, size
        self._mailboxes, self._path, self._timeout = mailboxes, path, timeout
        self._numbers = itertools.count(1)

    @classmethod
    def group(cls, size: int) -> list[InProcessTransport]:
        """Returns `size` transports that are connected with each other."""
        mailboxes: _Mailboxes = defaultdict(SimpleQueue)
        return [cls(rank, size, mailboxes) for rank in range(size)]

    def channel(self, timeout: float) -> Transport:
        """Returns the transport that the others get at their call of the same place."""
        return type(self)(self.rank, self.size, self._mailboxes, (*self._path, next(self._numbers)), timeout)

    def exchange(self, outgoing: Buffers, incoming: Buffers) -> None:
        """Sends outgoing[p] to every other process p and fills incoming[p].

        Raises: TransportError that names one that did not answer in time, or sent another number of bytes.
        """
        others = [other for other in range(self.size) if other != self.rank]
        for other in others:
            if outgoing[other].size:
                self._mailboxes[self._path, self.rank, other].put(outgoing[other].copy())
        for other in others:
            if incoming[other].size:
                try:
                    array = self._mailboxes[self._path, other, self.rank].get(timeout=self._timeout)
                except Empty:
                    raise TransportError(f"process {other} did not answer within {self._timeout:g} s") from None
                if array.size != incoming[other].size:
                    raise TransportError(f"process {other} sent {array.size} bytes instead of {incoming[other].size}")
                incoming[other][...] = array
