"""Moves bytes between the processes of a launcher in every way; each process writes what it got.

`python transport_program.py torch|mpi FOLDER`
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from distributed_program import connected

from anycore.transport import MPITransport, TorchTransport, Transport

LENGTHS = [0, 1, 400_000]
"""Of arrays of eight bytes, by how far the receiver is from the sender: nothing, next to nothing, megabytes."""

ROUNDS = 200


def exchanged(transport: Transport) -> dict[str, Any]:
    """Returns the length and the values of what came from each process, and the bytes counted."""
    rank, size = transport.rank, transport.size
    outgoing = [np.full(LENGTHS[(other - rank) % size], 10 * rank + other) for other in range(size)]
    incoming = [np.zeros(LENGTHS[(rank - other) % size], np.int64) for other in range(size)]
    transport.all_to_all(outgoing, incoming)
    return {
        "arrays": [[len(array), np.unique(array).tolist()] for array in incoming],
        "bytes": [transport.bytes_sent, transport.bytes_received],
    }


def gathered(transport: Transport) -> list[str]:
    """Returns the values of all processes, longer from each."""
    return [value.decode() for value in transport.all_gather(b"x" * transport.rank)]


def on_channels(transport: Transport) -> list[int]:
    """Returns what comes on two channels that two threads use at once."""

    def sums(number: int, channel: Transport) -> int:
        total = 0
        for turn in range(ROUNDS):
            values = channel.all_gather(f"{number} {turn}".encode())
            total += sum(value == f"{number} {turn}".encode() for value in values)
        return total

    channels = [transport.channel(30), transport.channel(30)]
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(sums, range(2), channels))


def among_some(carrier: str, rank: int) -> list[Any] | None:
    """Returns rank, size and what is gathered on a channel of processes 0 and 2 alone; None in others."""
    transport: Transport
    if carrier == "mpi":
        from mpi4py import MPI

        transport = MPITransport(MPI.COMM_WORLD.Split(color=rank % 2))
    else:
        import torch.distributed

        group = torch.distributed.new_group([0, 2], backend="gloo")
        if rank == 1:
            return None
        transport = TorchTransport(group)
    if rank == 1:
        return None
    values = transport.channel(30).all_gather(str(rank).encode())
    return [transport.rank, transport.size, [int(value) for value in values]]


def main(carrier: str, folder: Path) -> None:
    """Does everything once."""
    with connected(carrier) as transport:
        found = {
            "exchanged": exchanged(transport),
            "gathered": gathered(transport),
            "on channels": on_channels(transport),
            "among some": among_some(carrier, transport.rank),
        }
        transport.barrier()
        (folder / f"{transport.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
