"""One thread that does jobs in order."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from anycore.background import Background


def test_jobs_are_done_in_order_and_give_results() -> None:
    done: list[int] = []

    def job(number: int) -> int:
        done.append(number)
        return number

    background = Background("test")
    futures = [background.submit(partial(job, number)) for number in range(50)]
    assert [future.result(10) for future in futures] == done == list(range(50))


def test_a_failure_is_raised_by_whoever_asks_and_the_next_job_is_done() -> None:
    background = Background("test")
    failure = background.submit(lambda: 1 // 0)
    assert background.submit(lambda: 2).result(10) == 2
    with pytest.raises(ZeroDivisionError):
        failure.result()


def test_the_thread_ends_with_its_object() -> None:
    background = Background("test-that-ends")
    assert background.submit(lambda: 1).result(10) == 1
    del background
    gc.collect()
    deadline = time.monotonic() + 10
    while any(thread.name == "test-that-ends" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_interpreter_ends_when_all_jobs_are_done() -> None:
    program = """
import time
from anycore.background import Background

background = Background("test")
for number in range(3):
    background.submit(lambda number=number: (time.sleep(0.1), print(number)))
raise SystemExit(3)
"""
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (outcome.returncode, outcome.stdout.split(), outcome.stderr) == (3, ["0", "1", "2"], "")
