from __future__ import annotations

import signal
import threading

import pytest

from anycore.interrupts import uninterrupted


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    done = []

    @uninterrupted()
    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("inner")
        done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner", "outer"]


def test_the_handler_is_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), uninterrupted():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_are_left_alone() -> None:
    results = []

    def work() -> None:
        with uninterrupted():
            results.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [signal.getsignal(signal.SIGINT)]
