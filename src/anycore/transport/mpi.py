"""Processes that mpiexec starts, connected by mpi4py."""

from __future__ import annotations

import time
from typing import Any

from anycore.errors import TransportError
from anycore.transport.transport import Buffers, Transport

_PAUSE = 50e-6
"""Seconds between two looks at what has arrived: short against a step, long against a look."""

_given_up: list[Any] = []
"""Requests that came to nothing in time. They keep their buffers, to which a late answer is still written."""


class MPITransport(Transport):
    """The processes of a communicator of mpi4py, by default all."""

    def __init__(self, communicator: Any = None, *, timeout: float = 60.0) -> None:
        from mpi4py import MPI

        self._communicator = MPI.COMM_WORLD if communicator is None else communicator
        self._timeout = timeout
        self.rank, self.size = self._communicator.Get_rank(), self._communicator.Get_size()

    def channel(self, timeout: float) -> Transport:
        """Returns a transport over a copy of the communicator."""
        return type(self)(self._communicator.Dup(), timeout=timeout)

    def exchange(self, outgoing: Buffers, incoming: Buffers) -> None:
        """Sends outgoing[p] to every other process p and fills incoming[p]. Raises: TransportError that names them."""
        from mpi4py import MPI

        requests = []
        for distance in range(1, self.size):
            source, target = (self.rank - distance) % self.size, (self.rank + distance) % self.size
            if incoming[source].size:
                requests.append((source, self._communicator.Irecv([incoming[source], MPI.BYTE], source)))
            if outgoing[target].size:
                requests.append((target, self._communicator.Isend([outgoing[target], MPI.BYTE], target)))
        deadline = time.monotonic() + self._timeout
        try:
            while requests := [(other, request) for other, request in requests if not request.Test()]:
                if time.monotonic() > deadline:
                    silent = ", ".join(map(str, sorted({other for other, _ in requests})))
                    raise TransportError(f"process {silent} did not answer within {self._timeout:g} s")
                time.sleep(_PAUSE)
        except MPI.Exception as error:
            raise TransportError(f"a process is gone: {error}") from error
        finally:
            _given_up.extend(requests)
