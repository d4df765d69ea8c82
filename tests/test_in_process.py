"""Transports between threads, and what every transport makes of an exchange."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shared_engines import in_processes, unless_raised

from anycore.errors import TransportError
from anycore.transport import InProcessTransport, Transport


@pytest.mark.parametrize("size", [1, 2, 5])
def test_buffers_of_any_sizes_reach_everyone(size: int) -> None:
    def program(transport: Transport) -> Any:
        outgoing = [np.full((other, 2), 10 * transport.rank + other, np.int32) for other in range(size)]
        incoming = [np.zeros((transport.rank, 2), np.int32) for _ in range(size)]
        transport.all_to_all(outgoing, incoming)
        assert transport.bytes_sent == 8 * (sum(range(size)) - transport.rank)
        assert transport.bytes_received == 8 * transport.rank * (size - 1)
        return [array.tolist() for array in incoming]

    for rank, found in enumerate(unless_raised(in_processes(size, program))):
        assert found == [[[10 * other + rank] * 2] * rank for other in range(size)]


def test_values_of_any_length_are_gathered() -> None:
    results = unless_raised(in_processes(3, lambda transport: transport.all_gather(b"x" * transport.rank)))
    assert results == [[b"", b"x", b"xx"]] * 3


def test_channels_do_not_meet() -> None:
    def program(transport: Transport) -> Any:
        first, second = transport.channel(10), transport.channel(10)
        order = [first, second] if transport.rank else [second, first]
        # Each waits for nobody on a channel that the other one does not use first.
        for channel in order:
            channel.exchange([np.array([channel is first], np.uint8)] * 2, [np.zeros(0, np.uint8)] * 2)
        found = [np.zeros(1, np.uint8) for _ in range(2)]
        for channel in (first, second):
            channel.exchange([np.zeros(0, np.uint8)] * 2, [found[0]] * 2 if channel is first else [found[1]] * 2)
        return [int(array[0]) for array in found]

    assert unless_raised(in_processes(2, program)) == [[1, 0], [1, 0]]


def test_a_silent_process_is_named() -> None:
    first, _ = InProcessTransport.group(2)
    with pytest.raises(TransportError, match=r"process 1 did not answer within 0\.05 s"):
        first.channel(0.05).barrier()
