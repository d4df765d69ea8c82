"""Ctrl-C while a kernel runs: kept, except while it waits."""

from __future__ import annotations

import os
import signal
import threading
import time
from ctypes import addressof, c_int64
from typing import Any

import pytest
import tensorflow as tf
from tensorflow_findings import findings
from tensorflow_scenarios import BY_FEATURE

from anycore import ops
from anycore.tensorflow import kernels, register_kernels
from anycore.tensorflow.answers import Answer
from anycore.tensorflow.guard import ANSWERED, INTERRUPTED


def answered(function: Any) -> int:
    """Returns what an answer leaves for native code."""
    state = c_int64(0)
    answer = Answer(addressof(state))
    try:
        with answer:
            function()
        answer.succeed()
    except ValueError as error:
        answer.fail(error)
    return state.value


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def refuse() -> None:
    press()
    raise ValueError


def test_an_interrupt_is_kept() -> None:
    handler = signal.getsignal(signal.SIGINT)
    assert answered(lambda: None) == ANSWERED
    assert answered(press) == INTERRUPTED
    assert signal.getsignal(signal.SIGINT) is handler


def test_after_a_failure_an_interrupt_takes_effect_a_moment_later() -> None:
    assert answered(refuse) == ANSWERED
    with pytest.raises(KeyboardInterrupt):
        time.sleep(5)


def test_other_threads_and_other_handlers_are_left_alone() -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(answered(lambda: None)))
    thread.start()
    thread.join()
    assert found == [ANSWERED]
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert answered(press) == ANSWERED
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, handler)


def test_an_operation_ends_before_the_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    register_kernels()
    finished = []

    def function(**_: Any) -> bool:
        press()
        finished.append(True)
        return True

    monkeypatch.setattr(kernels._operations["IsTPUEmbeddingInitialized"], "function", function)
    with pytest.raises(KeyboardInterrupt):
        tf.raw_ops.IsTPUEmbeddingInitialized()
    assert finished


def test_an_operation_that_waits_is_interrupted() -> None:
    register_kernels()
    ops.configure_tpu_embedding(BY_FEATURE, timeout=60)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(tf.errors.CancelledError):
        tf.raw_ops.RecvTPUEmbeddingActivations(num_outputs=2, config=BY_FEATURE)
    with pytest.raises(KeyboardInterrupt):
        time.sleep(5)
    assert time.monotonic() - started < 10
    ops.shutdown_tpu_system()


def test_random_interrupts_are_never_lost() -> None:
    assert findings()["interrupts"] == {"handled": 40, "raised": ["KeyboardInterrupt"]}
