"""A result that is worked out once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from anycore.pending import Pending


class Counted:
    """Returns the number of its calls, but fails the first `failures` times."""

    def __init__(self, failures: int = 0) -> None:
        self.calls, self.failures = 0, failures

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise ValueError("busy")
        return self.calls


def test_it_is_worked_out_once_by_whoever_asks_first() -> None:
    compute = Counted()
    pending = Pending(compute)
    assert compute.calls == 0
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: pending.result(), range(20))) == [1] * 20
    assert compute.calls == 1


def test_after_a_failure_it_is_tried_again() -> None:
    pending = Pending(Counted(failures=1))
    with pytest.raises(ValueError, match="busy"):
        pending.result()
    assert [pending.result(), pending.result()] == [2, 2]
