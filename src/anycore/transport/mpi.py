"""Processes that mpiexec starts, connected by mpi4py."""

from __future__ import annotations

import time
from typing import Any

from anycore.errors import ConfigError, TransportError
from anycore.transport.transport import Buffers, Transport

_PAUSE = 50e-6
"""Seconds between two looks at what has arrived: short against a step, long against a look."""

_given_up: list[Any] = []
"""Requests that came to nothing in time. They keep their buffers, to which a late answer is still written."""


class MPITransport(Transport):
    """The processes of a communicator of mpi4py, by default all.

    Raises: ConfigError when MPI does not take calls from several threads.
    """

    def __init__(self, communicator: Any = None, *, timeout: float = 60.0) -> None:
        from mpi4py import MPI

        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise ConfigError(
                "MPI must take calls from several threads at once; set mpi4py.rc.thread_level = 'multiple' before "
                "mpi4py.MPI is imported, or use a build of MPI that has MPI_THREAD_MULTIPLE"
            )
        self._communicator = MPI.COMM_WORLD if communicator is None else communicator
        self._timeout = timeout
        self.rank, self.size = self._communicator.Get_rank(), self._communicator.Get_size()

    def channel(self, timeout: float) -> Transport:
        """Returns a transport over a copy of the communicator.

        Raises: TransportError when there can be no more of them.
        """
        from mpi4py import MPI

        try:
            communicator = self._communicator.Dup()
        except MPI.Exception as error:
            raise TransportError(f"the {self.size} processes cannot be connected: {_reason(error)}") from error
        return type(self)(communicator, timeout=timeout)

    def exchange(self, outgoing: Buffers, incoming: Buffers) -> None:
        """Sends outgoing[p] to every other process p and fills incoming[p]. Raises: TransportError that names them."""
        from mpi4py import MPI

        requests: list[tuple[int, int, Any]] = []  # the other process, bytes that it is to send, the request
        status, other = MPI.Status(), self.rank
        try:
            for distance in range(1, self.size):
                source, target = (self.rank - distance) % self.size, (self.rank + distance) % self.size
                if size := incoming[other := source].size:
                    requests.append((other, size, self._communicator.Irecv([incoming[other], MPI.BYTE], other)))
                if outgoing[other := target].size:
                    requests.append((other, 0, self._communicator.Isend([outgoing[other], MPI.BYTE], other)))
            deadline = time.monotonic() + self._timeout
            while requests:
                unfinished = []
                for other, size, request in requests:
                    if not request.Test(status):
                        unfinished.append((other, size, request))
                    elif size and (count := status.Get_count(MPI.BYTE)) != size:
                        raise TransportError(f"process {other} has sent {count} bytes, {size} were expected")
                requests = unfinished
                if requests and time.monotonic() > deadline:
                    silent = ", ".join(map(str, sorted({other for other, *_ in requests})))
                    raise TransportError(f"process {silent} did not answer within {self._timeout:g} s")
                if requests:
                    time.sleep(_PAUSE)
        except MPI.Exception as error:
            raise TransportError(f"process {other} cannot be talked to: {_reason(error)}") from error
        finally:
            _given_up.extend(requests)


def _reason(error: Exception) -> str:
    """Returns the last line of what MPI says, the innermost of the calls that failed."""
    return str(error).splitlines()[-1]
