"""Transports between threads, and what every transport makes of an exchange."""

from __future__ import annotations

import signal
from collections import defaultdict
from queue import SimpleQueue
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


@pytest.mark.parametrize("nested", [False, True])
def test_channels_do_not_meet(nested: bool) -> None:
    def program(transport: Transport) -> Any:
        first = transport.channel(10)
        second = first.channel(10) if nested else transport.channel(10)
        # Sent on one before anything is received on the other, which a shared mailbox would mix up.
        for channel, value in ((first, 1), (second, 2)) if transport.rank else ((second, 2), (first, 1)):
            channel.exchange([np.array([value], np.uint8)] * 2, [np.zeros(0, np.uint8)] * 2)
        found = np.zeros((2, 1), np.uint8)
        for channel, place in ((first, found[0]), (second, found[1])):
            channel.exchange([np.zeros(0, np.uint8)] * 2, [place] * 2)
        return found.ravel().tolist()

    assert unless_raised(in_processes(2, program)) == [[1, 2]] * 2


def test_a_silent_process_is_named() -> None:
    first, _ = InProcessTransport.group(2)
    with pytest.raises(TransportError, match=r"process 1 did not answer within 0\.05 s"):
        first.channel(0.05).barrier()


def test_another_number_of_bytes_is_refused() -> None:
    def program(transport: Transport) -> Any:
        size = 1 + transport.rank
        with pytest.raises(
            TransportError, match=f"process {1 - transport.rank} sent {3 - size} bytes instead of {size}"
        ):
            transport.all_to_all([np.zeros(size, np.uint8)] * 2, [np.zeros(size, np.uint8) for _ in range(2)])

    unless_raised(in_processes(2, program))


def test_after_a_failed_exchange_nothing_is_sent_any_more() -> None:
    """What is sent then could be taken for what the late process waits for."""
    first, second = (transport.channel(0.05) for transport in InProcessTransport.group(2))
    with pytest.raises(TransportError):
        first.barrier()
    with pytest.raises(TransportError, match=r"an earlier exchange .* failed: process 1 did not answer within 0\.05 s"):
        first.barrier()
    second.barrier()  # with what the first one sent before it gave up
    with pytest.raises(TransportError, match="process 0 did not answer"):
        second.barrier()


def test_an_interrupt_waits_for_the_end_of_an_exchange() -> None:
    class Interrupted(InProcessTransport):
        finished = False

        def exchange(self, outgoing: Any, incoming: Any) -> None:
            signal.raise_signal(signal.SIGINT)
            self.finished = True

    transport = Interrupted(0, 1, defaultdict(SimpleQueue))
    for _ in range(2):  # the exchange is whole, so another may follow
        with pytest.raises(KeyboardInterrupt):
            transport.barrier()
        assert transport.finished
        transport.finished = False
