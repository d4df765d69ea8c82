"""Bytes between processes that mpiexec starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from launched import MPIEXEC, environment, mpiexec
from transports import PROGRAM, SIZE, check_all_got_everything


def test_every_process_gets_everything(tmp_path: Path) -> None:
    mpiexec(SIZE, PROGRAM, "mpi", str(tmp_path))
    check_all_got_everything(tmp_path)


def printed(size: int, code: str) -> list[str]:
    """Returns the lines that processes print, which also may abort."""
    command = [MPIEXEC, "-n", str(size), sys.executable, "-c", code]
    outcome = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    return sorted(outcome.stdout.splitlines())


EXCHANGE = """
import numpy as np
from anycore import TransportError
from anycore.transport import MPITransport

transport = MPITransport()
rank = transport.rank
sizes = {sizes}
buffers = [[np.zeros(size, np.uint8) for size in each] for each in sizes[rank]]
try:
    transport.exchange(*buffers)
except TransportError as error:
    print(rank, error, flush=True)
"""


@pytest.mark.parametrize(("sent", "said"), [(4, "has sent 4 bytes, 8 were expected"), (16, "cannot be talked to: ")])
def test_a_message_of_another_size_is_refused(sent: int, said: str) -> None:
    (line,) = printed(2, EXCHANGE.format(sizes=[[[0, 0], [0, 8]], [[sent, 0], [0, 0]]]))
    assert line.startswith(f"0 process 1 {said}")


def test_what_mpi_does_not_start_names_the_process() -> None:
    code = """
from mpi4py import MPI
import numpy as np
from anycore import TransportError
from anycore.transport import MPITransport

communicator = MPI.COMM_SELF.Dup()
transport = MPITransport(communicator)
transport.size = 2
buffers = [np.zeros(0, np.uint8), np.zeros(8, np.uint8)]
try:
    transport.exchange(buffers, buffers)
except TransportError as error:
    print(error, flush=True)
"""
    (line,) = printed(1, code)
    assert line.startswith("process 1 cannot be talked to: ")


def test_channels_come_to_an_end_with_an_error() -> None:
    code = """
from anycore import TransportError
from anycore.transport import MPITransport

transport = MPITransport()
try:
    channels = [transport.channel(5) for _ in range(100_000)]
except TransportError as error:
    print(error, flush=True)
"""
    said = "".join(printed(2, code))  # the launcher may mix what they print
    assert said.count("the 2 processes cannot be connected: ") == 2


def test_mpi_must_take_calls_from_several_threads() -> None:
    code = """
import mpi4py

mpi4py.rc.thread_level = "serialized"

from anycore import ConfigError
from anycore.transport import MPITransport

try:
    MPITransport()
except ConfigError as error:
    print(error, flush=True)
"""
    (line,) = printed(1, code)
    assert "set mpi4py.rc.thread_level = 'multiple' before" in line
