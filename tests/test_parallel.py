from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numba import njit

from anycore.errors import ConfigError
from anycore.kernels.parallel import Workers, available_threads, workers
from anycore.kernels.pointers import fetch_add

NUM_THREADS = [1, 2, 5]
# More threads than Python code of a test can need at once; none of them ends before the process does.
POOLS = {num_threads: Workers(num_threads) for num_threads in NUM_THREADS}

each_pool = pytest.mark.parametrize("pool", POOLS.values(), ids=map(str, POOLS))


def compiled(function: Callable[..., Any]) -> Any:
    return njit(nogil=True)(function)


@compiled
def count(counter: Any, done: Any) -> None:
    """Adds 1 to the place of each task that this thread draws."""
    while True:
        task = fetch_add(counter, 0)
        if task >= len(done):
            return
        done[task] += 1


# Running a kernel


@each_pool
@pytest.mark.parametrize("size", [0, 1, 3, 100_000])
def test_every_task_is_done_once(pool: Workers, size: int) -> None:
    done = np.zeros(size, np.int64)
    for times in (1, 2, 3):
        pool.run(count, done)
        assert (done == times).all()


@each_pool
@pytest.mark.parametrize("parallel", [True, False])
def test_kernel_is_called_in_every_thread_or_only_in_the_callers(pool: Workers, parallel: bool) -> None:
    barrier = threading.Barrier(pool.num_threads if parallel else 1)
    calls: list[tuple[Any, ...]] = []

    def kernel(*arguments: Any) -> None:
        barrier.wait(10)  # opens when all threads are here at the same time
        calls.append((threading.get_ident(), *arguments))

    pool.run(kernel, 1, "two", parallel=parallel)
    threads = {thread for thread, *_ in calls}
    assert len(calls) == len(threads) == barrier.parties
    assert threading.get_ident() in threads
    counter = calls[0][1]
    assert (counter.dtype, counter.tolist()) == (np.int64, [0, 0])
    assert all(call[1] is counter and call[2:] == (1, "two") for call in calls)


@pytest.mark.parametrize("failing", ["the caller", "a worker", "everyone"])
def test_an_exception_comes_after_all_threads_have_stopped(failing: str) -> None:
    caller, pool = threading.get_ident(), POOLS[5]
    barrier, stopped = threading.Barrier(5), []

    def kernel(counter: Any) -> None:
        barrier.wait(10)
        mine = threading.get_ident() == caller
        if failing == "everyone" or mine == (failing == "the caller"):
            stopped.append(mine)
            raise ValueError(failing)
        time.sleep(0.02)
        stopped.append(mine)

    with pytest.raises(ValueError, match=failing):
        pool.run(kernel)
    assert sorted(stopped) == [False] * 4 + [True]


def test_an_interrupt_waits_for_the_workers() -> None:
    """Whoever presses Ctrl-C may free the arrays; nobody may write to them then, nor be taken for the next kernel."""
    main = threading.main_thread().ident
    assert main is not None
    pool, stopped = Workers(2), []

    def kernel(counter: Any) -> None:
        if threading.get_ident() != main:
            time.sleep(0.02)  # until the caller waits
            signal.pthread_kill(main, signal.SIGINT)
            time.sleep(0.05)
            stopped.append(True)

    for times in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            pool.run(kernel)
        assert len(stopped) == times


@each_pool
def test_threads_survive_an_exception(pool: Workers) -> None:
    def kernel(counter: Any) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            pool.run(kernel)
    done = np.zeros(1000, np.int64)
    pool.run(count, done)
    assert (done == 1).all()


@each_pool
def test_arguments_are_let_go(pool: Workers) -> None:
    """A worker that waits for the next kernel keeps no array of the last one."""
    array = np.zeros(10)
    gone = weakref.ref(array)
    pool.run(lambda counter, argument: None, array)
    del array
    assert gone() is None


@each_pool
def test_many_callers_at_once(pool: Workers) -> None:
    """Whoever finds the workers busy does the work alone."""
    done = np.zeros((4, 50, 2000), np.int64)

    def call(caller: int) -> None:
        for of_run in done[caller]:
            pool.run(count, of_run)

    with ThreadPoolExecutor(4) as callers:
        list(callers.map(call, range(4)))
    assert (done == 1).all()


def test_a_caller_does_not_wait_for_another_ones_kernel() -> None:
    entered, release, seen = threading.Event(), threading.Event(), []

    def slow(counter: Any) -> None:
        entered.set()
        assert release.wait(10)

    with ThreadPoolExecutor(1) as other:
        running = other.submit(POOLS[2].run, slow)
        assert entered.wait(10)
        POOLS[2].run(lambda counter: seen.append(threading.get_ident()))
        assert seen == [threading.get_ident()]
        release.set()
        running.result(10)


def test_a_kernel_may_run_another() -> None:
    done = np.zeros((5, 100), np.int64)
    remaining = list(done)
    POOLS[5].run(lambda counter: POOLS[5].run(count, remaining.pop()))
    assert (done == 1).all()


# Jobs


@each_pool
@pytest.mark.parametrize("number", [0, 1, 2, 500])
def test_every_job_is_done_once(pool: Workers, number: int) -> None:
    done: list[int] = []
    pool.run_jobs((lambda job=job: done.append(job)) for job in range(number))  # type: ignore[misc]
    assert sorted(done) == list(range(number))


def test_jobs_are_shared_out() -> None:
    barrier = threading.Barrier(2)

    def job() -> None:
        barrier.wait(10)  # opens when two threads are here at the same time

    POOLS[2].run_jobs([job] * 6)


@each_pool
def test_a_failing_job_reaches_the_caller(pool: Workers) -> None:
    def fail() -> None:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        pool.run_jobs([lambda: None, fail, lambda: None])


# Threads of a process


@pytest.mark.parametrize("number", [0, -1, 1.5, None])
def test_the_number_of_threads_is_a_positive_integer(number: Any) -> None:
    with pytest.raises(ConfigError, match=f"num_threads must be an integer and at least 1, got {number}"):
        workers(number)


def test_workers_are_shared() -> None:
    assert workers(2) is workers(2)
    assert workers(2) is not workers(3)
    assert [workers(n).num_threads for n in (1, 2, 3)] == [1, 2, 3]


def test_available_threads_are_those_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANYCORE_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 7}, raising=False)
    assert available_threads() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    for processors, expected in [(4, 4), (None, 1)]:
        monkeypatch.setattr(os, "cpu_count", lambda processors=processors: processors)
        assert available_threads() == expected


@pytest.mark.parametrize("text", ["1", "7", "007"])
def test_environment_sets_the_threads(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("ANYCORE_NUM_THREADS", text)
    assert available_threads() == int(text)


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "1.5", " ", "1e3", "+2", "\N{SUPERSCRIPT TWO}"])
def test_environment_that_says_no_number(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("ANYCORE_NUM_THREADS", text)
    with pytest.raises(ConfigError, match=r"^ANYCORE_NUM_THREADS must be a positive integer, got '"):
        available_threads()


FORK = """
import os, signal, threading
import numpy as np
from test_parallel import POOLS, count
from anycore.kernels.parallel import workers

def work():
    for pool in (*POOLS.values(), workers(3)):
        done = np.zeros(10_000, np.int64)
        pool.run(count, done)
        assert (done == 1).all()

work()
entered, release = threading.Event(), threading.Event()
def busy(counter):
    entered.set()
    assert release.wait(20)
threading.Thread(target=POOLS[2].run, args=(busy,)).start()  # its workers are taken while the process forks
assert entered.wait(10)
child = os.fork()
if child == 0:
    signal.alarm(20)
    work()
    threads = {thread.name for thread in threading.enumerate()}
    os._exit(0 if "anycore-worker" in threads else 3)
release.set()
_, status = os.waitpid(child, 0)
work()
print("child", status)
"""


def test_a_forked_child_gets_threads_of_its_own() -> None:
    paths = os.pathsep.join(path for path in sys.path if path)
    result = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert (result.stdout, result.stderr) == ("child 0\n", "")
