"""A result that is worked out once, by whoever needs it first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Pending(Generic[Result]):
    """What `compute` returns, when somebody asks for it."""

    def __init__(self, compute: Callable[[], Result]) -> None:
        self._compute: Callable[[], Result] | None = compute
        self._lock = threading.Lock()

    def result(self) -> Result:
        """Returns it; a failure is raised, and the next call tries again."""
        with self._lock:
            if self._compute is not None:
                self._result = self._compute()
                self._compute = None
            return self._result
