"""One thread that does one job after another."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

_Jobs = SimpleQueue["tuple[Callable[[], Any], Future[Any]] | None"]

_running: weakref.WeakKeyDictionary[threading.Thread, _Jobs] = weakref.WeakKeyDictionary()


class Background:
    """A thread for jobs, done in the order in which they come; it ends with this object.

    The interpreter ends when all jobs are done.
    """

    def __init__(self, name: str) -> None:
        self._jobs: _Jobs = SimpleQueue()
        thread = threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True)
        _running[thread] = self._jobs
        thread.start()
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        """Returns what the job will have returned."""
        future: Future[Any] = Future()
        self._jobs.put((job, future))
        return future


@atexit.register
def _finish() -> None:
    """Waits for all jobs: others may need them, and a thread that is inside a library then would end with a crash."""
    running = dict(_running)
    for jobs in running.values():
        jobs.put(None)
    for thread in running:
        thread.join()


def _serve(jobs: _Jobs) -> None:
    while (entry := jobs.get()) is not None:
        job, future = entry
        try:
            future.set_result(job())
        except BaseException as error:  # whoever asks for the result raises it
            future.set_exception(error)
        del entry, job, future
