"""How a kernel's Python function ends: with success or failure, and with Ctrl-C in the right place."""

from __future__ import annotations

import signal
import threading
from ctypes import c_int64
from types import FrameType
from typing import Any

from anycore.schedule import Schedule
from anycore.tensorflow.guard import ANSWERED, INTERRUPTED

_WAITING = {Schedule.next_to_receive.__code__, Schedule.wait_until_whole.__code__}

_A_MOMENT = 0.01
"""Seconds that TensorFlow may take to turn a status into an exception."""


class Answer:
    """What a function called by `guard` writes to `state`.

    In its with block Ctrl-C is kept, unless the function waits for another call: then it ends that. What is kept takes
    effect when TensorFlow has returned, as Python's functions in C do it.
    """

    def __init__(self, state: int) -> None:
        self._state = c_int64.from_address(state)
        self._interrupted = False
        self._handler: Any = None

    def __enter__(self) -> None:
        if threading.get_ident() == threading.main_thread().ident:  # the only one that Python interrupts
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._handler = handler
                signal.signal(signal.SIGINT, self._keep)

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)

    def succeed(self) -> None:
        """Says that the kernel has set its outputs."""
        self._state.value = INTERRUPTED if self._interrupted else ANSWERED

    def fail(self, error: BaseException) -> None:
        """Says that the kernel has reported `error`."""
        if self._interrupted or isinstance(error, KeyboardInterrupt):
            # At once, it would interrupt TensorFlow's making of its exception, and both would be lost.
            interrupt = (threading.main_thread().ident, signal.SIGINT)
            timer = threading.Timer(_A_MOMENT, signal.pthread_kill, interrupt)
            timer.daemon = True
            timer.start()
        self._state.value = ANSWERED

    def _keep(self, number: int, frame: FrameType | None) -> None:
        if _waits(frame):
            self._handler(number, frame)
        else:
            self._interrupted = True


def _waits(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _WAITING:
            return True
        frame = frame.f_back
    return False
