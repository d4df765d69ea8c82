"""One thread that does one job after another."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any


class Background:
    """A thread for jobs, done in the order in which they come; it ends with this object."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True).start()
        weakref.finalize(self, self._jobs.put, None)

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        """Returns what the job will have returned."""
        future: Future[Any] = Future()
        self._jobs.put((job, future))
        return future


def _serve(jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]) -> None:
    while (entry := jobs.get()) is not None:
        job, future = entry
        try:
            future.set_result(job())
        except BaseException as error:  # whoever asks for the result raises it
            future.set_exception(error)
        del entry, job, future
