"""Real processes: one of them is refused, makes another call, falls silent or dies; what the others see, and go on.

ANYCORE_KILLS sets how many times the run that resumes is killed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed_program import different, tables_of
from fault_program import GRADIENTS, IDS, LAST, PHASES, REFUSALS, SEED, STEPS, WRONG_STEP, do_step, make_config
from launched import MPIEXEC, ROOT, TORCHRUN, environment, mpiexec, torchrun

from anycore import EmbeddingEngine

PROGRAM = str(ROOT / "tests" / "fault_program.py")
KILLS = int(os.environ.get("ANYCORE_KILLS", "20"))
SIZE = 3

# Refusals

WRONG_IDS = "feature 'watched': embedding_indices[1] must be an id in [0, 23) of table 'movies', got 999"
WRONG_GRADIENT = "gradient of 'watched' must have the shape of its activations, [3, 4], got [2, 4] (inputs)"
FIELDS = {
    "seed": "'seed: 4' where process 0 has 'seed: 3'",
    "dimension": "'config.tables[0].dimension: 5' where process 0 has 'config.tables[0].dimension: 4'",
    "learning_rate": "'config.tables[0].optimizer.learning_rate: 0.2' where process 0 has",
    "pipeline_execution_with_tensor_core": "'config.pipeline_execution_with_tensor_core: True' where process 0 has",
}


@cache
def tables_after(steps: int, skipped: int | None = None, *, pipelined: bool = False) -> dict[str, Any]:
    """What one engine has after some steps."""
    engine = EmbeddingEngine(make_config(pipelined=pipelined), seed=SEED, num_threads=1)
    for step in range(steps):
        if step != skipped:
            do_step(engine, step)
    return tables_of(engine)


@pytest.fixture(scope="module", params=["torch", "mpi"])
def refused(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What three processes have found in each scenario."""
    folder = tmp_path_factory.mktemp(request.param)
    launch = torchrun if request.param == "torch" else mpiexec
    launch(SIZE, Path(PROGRAM), request.param, str(folder), "refusals")
    return folder


def found_in(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in range(SIZE)]


def assert_tables(file: Path, expected: dict[str, Any]) -> None:
    with np.load(file) as tables:
        assert not different(tables, expected)


@pytest.mark.parametrize("name", [name for name in REFUSALS if name.startswith(IDS)])
def test_a_step_that_one_process_is_refused_is_none_on_all(refused: Path, name: str) -> None:
    wrong = 0 if "second core" in name else 1
    for rank, found in enumerate(found_in(refused, name)):
        assert found["unchanged"]
        if rank == wrong:
            assert found["errors"] == [["InputError", WRONG_IDS]]
        else:
            num_cores = 2 if rank == 0 else 1
            assert [kind for kind, _ in found["errors"]] == ["InputError"] * num_cores
            assert all(text.endswith(f"process {wrong}: {WRONG_IDS}") for _, text in found["errors"])
    assert_tables(
        refused / f"{name}.npz", tables_after(STEPS, WRONG_STEP, pipelined="pipelined" in name or "infer" in name)
    )


@pytest.mark.parametrize("name", [name for name in REFUSALS if name.startswith(GRADIENTS)])
def test_gradients_that_one_process_is_refused_all_send_again(refused: Path, name: str) -> None:
    pipelined, wrong = "pipelined" in name, 0 if "second core" in name else 1
    for rank, found in enumerate(found_in(refused, name)):
        assert found["unchanged"]
        if pipelined and rank != wrong:
            assert not found["errors"]  # the update was not due yet
        else:
            ((kind, text),) = found["errors"]
            assert kind == "InputError"
            assert text.endswith(WRONG_GRADIENT if pipelined else f"process {wrong}: {WRONG_GRADIENT}")
    assert_tables(refused / f"{name}.npz", tables_after(STEPS, pipelined=pipelined))


def test_all_processes_have_one_config_and_seed(refused: Path) -> None:
    for found in found_in(refused, "different starts"):
        assert found["errors"].keys() == FIELDS.keys()
        for name, (kind, text) in found["errors"].items():
            assert kind == "ConfigError"
            assert f"process 1 has {FIELDS[name]}" in text
    assert_tables(refused / "different starts.npz", tables_after(STEPS))


def test_all_processes_make_the_same_calls(refused: Path) -> None:
    receive, send = (
        f"activations of step {WRONG_STEP}, mode TRAINING",
        f"gradients of step {WRONG_STEP}, learning_rates ",
    )
    calls = [
        (receive, "retrieve"),
        (receive, "load, tables: 1"),
        (f"{send}(4.0,)", "retrieve"),
        (f"{send}(4.0,)", f"{send}(5.0,)"),
    ]
    for found in found_in(refused, "different calls"):
        for (kind, text), (ours, other) in zip(found["errors"], calls, strict=True):
            assert kind == "CallOrderError"
            assert text.endswith(f"process 0: {ours}; process 1: {other}; process 2: {ours}")
    assert_tables(refused / "different calls.npz", tables_after(STEPS))


def test_a_step_of_different_modes_is_none(refused: Path) -> None:
    ids = [f"process {rank}: ids of step {WRONG_STEP}, mode TRAINING" for rank in range(SIZE)]
    ids[1] = ids[1].replace("TRAINING", "INFERENCE")
    for rank, found in enumerate(found_in(refused, "different modes")):
        assert [kind for kind, _ in found["errors"]] == ["CallOrderError"] * (2 if rank == 0 else 1)
        assert all(text.endswith("; ".join(ids)) for _, text in found["errors"])
    assert_tables(refused / "different modes.npz", tables_after(STEPS, WRONG_STEP))


# Processes that are gone


def start(rank: int, port: int, *arguments: str) -> subprocess.Popen[bytes]:
    """Returns a process of a group that no launcher watches over."""
    place = {"RANK": str(rank), "WORLD_SIZE": str(SIZE), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return subprocess.Popen([sys.executable, PROGRAM, "torch", *arguments], env=environment(**place))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def check_survivors(folder: Path, gone: int, size: int, timeout: float) -> None:
    """Each process but one has named that one and no other, in time."""
    for rank in set(range(size)) - {gone}:
        found = json.loads((folder / f"{rank}.json").read_text())
        assert re.findall(r"process (\d+)", found["error"]) == [str(gone)]
        assert found["seconds"] < timeout + 2


@pytest.mark.parametrize(
    ("how", "gone", "timeout", "late"),
    [
        ("SIGKILL", 1, 10, []),
        ("SIGKILL", 0, 10, []),
        ("SIGSTOP", 1, 3, []),
        ("SIGKILL", 1, 10, [0]),
    ],
)
def test_a_process_that_is_gone_is_named(how: str, gone: int, timeout: float, late: list[int], tmp_path: Path) -> None:
    arguments = (str(tmp_path), "loses", str(gone), how, str(timeout), *map(str, late))
    port = free_port()
    processes = [start(rank, port, *arguments) for rank in range(SIZE)]
    try:
        codes = [process.wait(60) for rank, process in enumerate(processes) if rank != gone]
        assert codes == [0, 0]
        if how == "SIGKILL":
            assert processes[gone].wait(10) == -signal.SIGKILL
    finally:
        for process in processes:
            process.kill()
            process.wait()
    check_survivors(tmp_path, gone, SIZE, timeout)


def test_a_process_of_mpi_that_is_silent_is_named(tmp_path: Path) -> None:
    command = [MPIEXEC, "-n", "2", sys.executable, PROGRAM, "mpi", str(tmp_path), "loses", "1", "sleep", "3"]
    began = time.monotonic()
    subprocess.run(command, env=environment(), timeout=60, check=False, capture_output=True)
    assert time.monotonic() - began < 40  # the launcher does not wait for the one that sleeps for a minute
    check_survivors(tmp_path, 1, 2, 3)


def test_a_run_that_is_killed_again_and_again_ends_with_the_bits_of_one_that_is_not(tmp_path: Path) -> None:
    """Checkpoints stand in for a user's own: each process saves its shard, and all resume from the last whole one."""
    command = [*TORCHRUN, "--nproc-per-node=2", f"--max-restarts={KILLS}", "--monitor-interval=0.1"]
    outcome = subprocess.run(
        [*command, PROGRAM, "torch", str(tmp_path), "resumes", str(KILLS)],
        env=environment(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"),
        timeout=60 + 20 * KILLS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr[-5000:]
    kills = [line.split() for line in (tmp_path / "kills").read_text().splitlines()]
    assert [int(number) for number, *_ in kills] == list(range(KILLS))
    assert {phase for *_, phase in kills} <= set(PHASES)
    assert_tables(tmp_path / "tables.npz", tables_after(LAST))
