"""The protocol: buffers of any sizes from each process to each, the values of all to all, and a barrier."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore.errors import TransportError
from anycore.interrupts import uninterrupted

Buffers = Sequence[NDArray[np.uint8]]


class Transport(ABC):
    """What one process of `size` sends to and receives from the others; its own number is `rank`.

    All methods but `channel` are collective: every process calls them in the same order, on one channel from one thread
    at a time.

    An adapter has `channel` and `exchange`; the rest follows from them.
    """

    rank: int
    size: int

    bytes_sent: int = 0
    bytes_received: int = 0

    _broken: str | None = None
    """Why an exchange failed. What a later one brought could be what that one waited for."""

    @abstractmethod
    def channel(self, timeout: float) -> Transport:
        """Returns another transport between the same processes, whose calls are independent of this one's.

        Its calls raise when nothing comes for `timeout` seconds. Collective.
        """

    @abstractmethod
    def exchange(self, outgoing: Buffers, incoming: Buffers) -> None:
        """Sends outgoing[p] to every other process p and fills incoming[p] with what p sends; empty ones are skipped.

        Raises: TransportError that names the processes that are gone or silent.
        """

    def all_to_all(self, outgoing: Sequence[NDArray[Any]], incoming: Sequence[NDArray[Any]]) -> None:
        """Fills incoming[p] with what process p has sent to this one: its outgoing[rank], of the same size.

        All arrays are C-contiguous. An interrupt is raised after it, for the others count on the whole of it.

        Raises: TransportError that names the processes that are gone or silent; afterwards every call does.
        """
        if self._broken is not None:
            raise TransportError(f"an earlier exchange between the processes failed: {self._broken}")
        incoming[self.rank][...] = outgoing[self.rank]
        sends = [array.reshape(-1).view(np.uint8) for array in outgoing]
        receives = [array.reshape(-1).view(np.uint8) for array in incoming]
        with uninterrupted():
            try:
                self.exchange(sends, receives)
            except BaseException as error:
                # Not the error itself: its traceback holds the engine, and with it the tables.
                self._broken = str(error) or type(error).__name__
                raise
            self.bytes_sent += sum(array.size for p, array in enumerate(sends) if p != self.rank)
            self.bytes_received += sum(array.size for p, array in enumerate(receives) if p != self.rank)

    def all_gather(self, value: bytes) -> list[bytes]:
        """Returns the values of all processes, by rank. Raises: TransportError as `all_to_all` does."""
        lengths = [np.zeros(1, np.int64) for _ in range(self.size)]
        self.all_to_all([np.array([len(value)])] * self.size, lengths)
        values = [np.zeros(length.item(), np.uint8) for length in lengths]
        self.all_to_all([np.frombuffer(bytearray(value), np.uint8)] * self.size, values)
        return [array.tobytes() for array in values]

    def barrier(self) -> None:
        """Returns when every process has called it. Raises: TransportError as `all_to_all` does."""
        self.all_to_all([np.zeros(1, np.uint8)] * self.size, [np.zeros(1, np.uint8) for _ in range(self.size)])
