"""Threads for kernels: each calls the same kernel, and the kernels share tasks out by an atomic counter.

Which thread does a task never shows in a result, so any number of threads gives the same bits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any

import numpy as np

from anycore.errors import ConfigError
from anycore.interrupts import uninterrupted

_VARIABLE = "ANYCORE_NUM_THREADS"


def available_threads() -> int:
    """Returns ANYCORE_NUM_THREADS, or else the number of processors that this process may use.

    Raises: ConfigError when the variable is not a positive integer.
    """
    text = os.environ.get(_VARIABLE)
    if text is not None:
        if not text.isdecimal() or int(text) < 1:
            raise ConfigError(f"{_VARIABLE} must be a positive integer, got {text!r}")
        return int(text)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """The calling thread and `num_threads - 1` threads that wait for kernels."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._threads = _Threads(num_threads - 1)

    def run(self, kernel: Callable[..., Any], *arguments: Any, parallel: bool = True) -> None:
        """Calls kernel(counter, *arguments) in every thread and returns when all are done.

        counter int64[2], zero at first: counter[0] hands out tasks, counter[1] scratch memory, to at most
        `num_threads` threads.

        With `parallel` False, or while another thread runs its kernel here, only the calling thread works: waking the
        others would cost more than a small kernel, and waiting for them more than it gains.
        """
        threads = self._threads
        if threads.process != os.getpid():
            # A forked child has none of its parent's threads.
            threads = self._threads = _Threads(self.num_threads - 1)
        counter = np.zeros(2, np.int64)
        # Every thread must leave the arrays before the caller may free them, whatever happens here.
        with uninterrupted():
            if not (parallel and threads.inboxes and threads.lock.acquire(blocking=False)):
                kernel(counter, *arguments)
                return
            try:
                for inbox in threads.inboxes:
                    inbox.put(lambda: kernel(counter, *arguments))
                try:
                    kernel(counter, *arguments)
                finally:
                    failures = [threads.finished.get() for _ in threads.inboxes]
            finally:
                threads.lock.release()
        for failure in failures:
            if failure is not None:
                raise failure

    def run_jobs(self, jobs: Iterable[Callable[[], None]]) -> None:
        """Calls every job once, each in one of the threads, and returns when all are done."""
        remaining = iter(jobs)
        lock = threading.Lock()

        def drain(counter: object) -> None:
            while True:
                with lock:
                    job = next(remaining, None)
                if job is None:
                    return
                job()

        self.run(drain)


class _Threads:
    """Threads of one process, each with an inbox; `lock` is held by the one caller that uses them."""

    def __init__(self, count: int) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.finished: SimpleQueue[BaseException | None] = SimpleQueue()
        self.inboxes: list[SimpleQueue[Callable[[], None]]] = [SimpleQueue() for _ in range(count)]
        for inbox in self.inboxes:
            threading.Thread(target=_serve, args=(inbox, self.finished), name="anycore-worker", daemon=True).start()


def _serve(inbox: SimpleQueue[Callable[[], None]], finished: SimpleQueue[BaseException | None]) -> None:
    while True:
        job = inbox.get()
        failure: BaseException | None = None
        try:
            job()
        except BaseException as error:  # the caller's to raise, whatever it is
            failure = error
        # Let go of the arrays before the caller goes on.
        del job
        finished.put(failure)


_pools: dict[int, Workers] = {}
_making = threading.Lock()


def workers(num_threads: int) -> Workers:
    """Returns the process's workers for that number of threads; engines share them.

    Raises: ConfigError when it is no positive integer.
    """
    if not isinstance(num_threads, int) or num_threads < 1:
        raise ConfigError(f"num_threads must be an integer and at least 1, got {num_threads!r}")
    with _making:
        if num_threads not in _pools:
            _pools[num_threads] = Workers(num_threads)
        return _pools[num_threads]
