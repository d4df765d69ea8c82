"""What processes of a launcher see when something goes wrong in one of them; each writes what it has seen.

`python fault_program.py torch|mpi FOLDER refusals | loses RANK HOW TIMEOUT [LATE] | resumes KILLS`
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from distributed_program import connected, cores_of, enqueue, gradients, inputs, rates, receive, send, tables_of

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, ShardingStrategy, TableConfig
from anycore.errors import AnycoreError, TransportError
from anycore.optimizers import Adagrad, Adam, DynamicInput
from anycore.transport import Transport

STEPS, WRONG_STEP, SEED = 6, 3, 3
LAST, EVERY = 60, 5
"""Steps of the run that resumes, and how many lie between its checkpoints."""

PHASES = ("begun", "enqueued", "received", "sent", "saving")
"""Moments of a step at which a process can die."""


def make_config(*, pipelined: bool = False, dimension: int = 4, learning_rate: float = 0.1) -> EmbeddingConfig:
    """Two tables and three features on four cores."""
    return EmbeddingConfig(
        [
            TableConfig("movies", 23, dimension, Adagrad(learning_rate=learning_rate), combiner="mean"),
            TableConfig("users", 11, 3, Adam(learning_rate=DynamicInput(0))),
        ],
        [
            FeatureConfig("watched", "movies", [3]),
            FeatureConfig("liked", "movies", [3]),
            FeatureConfig("user", "users", [3]),
        ],
        num_tensor_cores=4,
        sharding_strategy=ShardingStrategy.MOD,
        pipeline_execution_with_tensor_core=pipelined,
    )


def do_step(engine: EmbeddingEngine, step: int) -> None:
    """Trains one step on all cores of the engine."""
    enqueue(engine, step)
    receive(engine)
    send(engine, step)


def error_of(call: Callable[[], Any]) -> list[str] | None:
    """Returns the kind and the text of the error that a call raises, or None."""
    try:
        call()
    except AnycoreError as error:
        return [type(error).__name__, str(error)]
    return None


def bits_of(engine: EmbeddingEngine) -> bytes:
    """Returns what this process keeps of all tables, without asking others."""
    return b"".join(view.tobytes() for table in engine.config.tables for view in engine.views(table.name).values())


# Refusals: `wrong` is the one process, and its local core, whose argument is refused.

Found = tuple[dict[str, Any], EmbeddingEngine]


def refused_ids(
    transport: Transport, wrong: tuple[int, int], *, pipelined: bool, ahead: bool = False, mode: str | None = None
) -> Found:
    """One process enqueues an id that there is not; with `ahead`, all enqueue the next step before they receive."""
    engine = EmbeddingEngine(make_config(pipelined=pipelined), seed=SEED, transport=transport, timeout=20)
    rank, wrong_core = wrong
    for step in range(WRONG_STEP):
        do_step(engine, step)
    before, errors = bits_of(engine), []
    for local, core in enumerate(cores_of(engine)):
        ids = inputs(engine.config, WRONG_STEP, core)
        if wrong == (transport.rank, local):
            ids[0][1] = 999
        errors.append(error_of(partial(engine.enqueue, ids, core=local, mode=mode)))
        if transport.rank == rank and local == wrong_core:
            break
    if ahead:
        enqueue(engine, WRONG_STEP + 1)
    if transport.rank != rank:
        errors += [error_of(partial(engine.receive_activations, local)) for local in range(engine.num_cores)]
    unchanged = bits_of(engine) == before
    for step in range(WRONG_STEP + 1, STEPS):
        if not (ahead and step == WRONG_STEP + 1):
            enqueue(engine, step)
        receive(engine)
        send(engine, step)
    return {"errors": [error for error in errors if error], "unchanged": unchanged}, engine


def refused_gradients(transport: Transport, wrong: tuple[int, int], *, pipelined: bool) -> Found:
    """One process sends a gradient of a wrong shape; who gets an error sends again."""
    engine = EmbeddingEngine(make_config(pipelined=pipelined), seed=SEED, transport=transport, timeout=20)
    for step in range(WRONG_STEP):
        do_step(engine, step)
    enqueue(engine, WRONG_STEP)
    receive(engine)
    before, errors = bits_of(engine), []
    for local, core in enumerate(cores_of(engine)):
        values = gradients(engine, WRONG_STEP, core)
        if wrong == (transport.rank, local):
            values[0] = values[0][:-1]
        errors.append(error_of(partial(engine.send_gradients, values, rates(engine.config, WRONG_STEP), core=local)))
    unchanged = bits_of(engine) == before
    if any(errors):
        for local, core in enumerate(cores_of(engine)):
            # Of its own refused call a process repeats that one alone.
            if transport.rank != wrong[0] or errors[local]:
                values = gradients(engine, WRONG_STEP, core)
                engine.send_gradients(values, rates(engine.config, WRONG_STEP), core=local)
    for step in range(WRONG_STEP + 1, STEPS):
        do_step(engine, step)
    return {"errors": [error for error in errors if error], "unchanged": unchanged}, engine


def different_starts(transport: Transport) -> Found:
    """Process 1 has another config or seed; then all have the same."""
    errors = {}
    for name, changes, seed in (
        ("seed", {}, 4),
        ("dimension", {"dimension": 5}, SEED),
        ("learning_rate", {"learning_rate": 0.2}, SEED),
        ("pipeline_execution_with_tensor_core", {"pipelined": True}, SEED),
    ):
        config: dict[str, Any] = changes if transport.rank == 1 else {}
        own_seed = seed if transport.rank == 1 else SEED
        make = partial(EmbeddingEngine, make_config(**config), seed=own_seed, transport=transport, timeout=20)
        errors[name] = error_of(make)
    engine = EmbeddingEngine(make_config(), seed=SEED, transport=transport, timeout=20)
    for step in range(STEPS):
        do_step(engine, step)
    return {"errors": errors}, engine


def different_calls(transport: Transport) -> Found:
    """Process 1 retrieves or loads while the others receive or send, and sends other rates; then all do the same."""
    engine = EmbeddingEngine(make_config(), seed=SEED, transport=transport, timeout=20)
    errors = []
    for step in range(STEPS):
        enqueue(engine, step)
        if step == WRONG_STEP:
            rows = {"parameters": np.zeros((23, 4))}
            for other in (partial(engine.retrieve, "movies"), partial(engine.load, "movies", rows)):
                errors.append(error_of(other if transport.rank == 1 else engine.receive_activations))
        receive(engine)
        if step == WRONG_STEP:
            for other in (partial(engine.retrieve, "movies"), partial(send, engine, step, later=1)):
                errors.append(error_of(other if transport.rank == 1 else partial(send, engine, step)))
        send(engine, step)
    return {"errors": errors}, engine


def different_modes(transport: Transport) -> Found:
    """Process 1 enqueues a step for inference, the others for training; that step is none."""
    engine = EmbeddingEngine(make_config(), seed=SEED, transport=transport, timeout=20)
    errors = []
    for step in range(STEPS):
        if step == WRONG_STEP:
            for local, core in enumerate(cores_of(engine)):
                mode = "inference" if transport.rank == 1 else None
                engine.enqueue(inputs(engine.config, step, core), core=local, mode=mode)
            errors = [error_of(partial(engine.receive_activations, local)) for local in range(engine.num_cores)]
        else:
            do_step(engine, step)
    return {"errors": errors}, engine


IDS, GRADIENTS = "refused ids", "refused gradients"
REFUSALS: dict[str, Callable[[Transport], Found]] = {
    IDS: partial(refused_ids, wrong=(1, 0), pipelined=False),
    f"{IDS}, pipelined": partial(refused_ids, wrong=(1, 0), pipelined=True),
    f"{IDS}, next enqueued": partial(refused_ids, wrong=(1, 0), pipelined=False, ahead=True),
    f"{IDS}, pipelined, next enqueued": partial(refused_ids, wrong=(1, 0), pipelined=True, ahead=True),
    f"{IDS} of inference": partial(refused_ids, wrong=(1, 0), pipelined=True, mode="inference"),
    f"{IDS} of the second core": partial(refused_ids, wrong=(0, 1), pipelined=False),
    GRADIENTS: partial(refused_gradients, wrong=(1, 0), pipelined=False),
    f"{GRADIENTS}, pipelined": partial(refused_gradients, wrong=(1, 0), pipelined=True),
    f"{GRADIENTS} of the second core": partial(refused_gradients, wrong=(0, 1), pipelined=False),
    "different starts": different_starts,
    "different calls": different_calls,
    "different modes": different_modes,
}


def refusals(transport: Transport, folder: Path) -> None:
    """Lets everything be refused, one after another, and writes what each process has found and what is in the end."""
    for name, scenario in REFUSALS.items():
        found, engine = scenario(transport)
        (folder / f"{name}-{transport.rank}.json").write_text(json.dumps(found))
        tables: Any = tables_of(engine)
        if transport.rank == 0:
            np.savez(folder / f"{name}.npz", **tables)


# Processes that are gone


def loses(transport: Transport, folder: Path, rank: int, how: str, timeout: float, late: int | None = None) -> None:
    """Trains until a process is killed, stopped or asleep, and writes what the others find and how long it took.

    Process `late` makes the others wait a second before that step.
    """
    engine = EmbeddingEngine(make_config(), seed=SEED, transport=transport, timeout=timeout)
    began = time.monotonic()
    try:
        for step in itertools.count():
            if transport.rank == rank and step == 10:
                if how == "sleep":
                    time.sleep(60)
                os.kill(os.getpid(), getattr(signal, how))
            if transport.rank == late and step == 10:
                time.sleep(1)
            began = time.monotonic()
            do_step(engine, step)
    except TransportError as error:
        found = {"error": str(error), "seconds": time.monotonic() - began}
        (folder / f"{transport.rank}.json").write_text(json.dumps(found))
        # What libraries tidy up at the end may wait for the dead.
        sys.stdout.flush()
        time.sleep(2)  # so that no survivor mistakes this one for dead
        os._exit(0)


# A run that is started again


def save(engine: EmbeddingEngine, part: Path, rank: int, size: int) -> None:
    """Writes this process's rows of all tables. Collective."""
    rows: Any = {
        f"{table.name}/{name}": values
        for table in engine.config.tables
        for name, values in engine.retrieve(table.name, num_shards=size, shard_id=rank).items()
    }
    np.savez(part, **rows)


def load(engine: EmbeddingEngine, file: Path, rank: int, size: int) -> None:
    """Reads what `save` has written. Collective."""
    tables: dict[str, dict[str, Any]] = {table.name: {} for table in engine.config.tables}
    with np.load(file) as rows:
        for key in rows:
            table, name = key.split("/")
            tables[table][name] = rows[key]
    engine.load_tables(tables, num_shards=size, shard_id=rank)


def kill_at(first: int, size: int) -> tuple[int, int, str]:
    """Returns which process of this start kills itself, at which step from `first` on, and at which moment of it."""
    random = np.random.default_rng([SEED, int(os.environ["TORCHELASTIC_RESTART_COUNT"])])
    rank, phase = int(random.integers(size)), PHASES[random.integers(len(PHASES))]
    step = first + int(random.integers(2 * EVERY - 2))
    if phase == "saving":
        step = first + EVERY - 1
    return rank, min(step, LAST - 1), phase


def resumes(transport: Transport, folder: Path, kills: int) -> None:
    """Trains from the newest complete checkpoint; in each of the first `kills` starts one process kills itself."""
    engine = EmbeddingEngine(make_config(), seed=SEED, transport=transport, timeout=20)
    rank, size = transport.rank, transport.size
    saved = range(EVERY, LAST + 1, EVERY)
    complete = [step for step in saved if all((folder / f"{step}-{other}.npz").exists() for other in range(size))]
    first = max(complete, default=0)
    if first:
        load(engine, folder / f"{first}-{rank}.npz", rank, size)
    start, death = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), kill_at(first, size)

    def may_die(phase: str) -> None:
        if start < kills and (rank, step, phase) == death:
            with (folder / "kills").open("a") as file:
                file.write(f"{start} {rank} {step} {phase}\n")
            os.kill(os.getpid(), signal.SIGKILL)

    for step in range(first, LAST):
        may_die("begun")
        enqueue(engine, step)
        may_die("enqueued")
        receive(engine)
        may_die("received")
        send(engine, step)
        may_die("sent")
        if step + 1 in saved:
            part = folder / f"{step + 1}-{rank}.part.npz"
            save(engine, part, rank, size)
            may_die("saving")
            part.replace(folder / f"{step + 1}-{rank}.npz")
    tables: Any = tables_of(engine)
    if rank == 0:
        np.savez(folder / "tables.npz", **tables)


def main(carrier: str, folder: Path, what: str, *arguments: str) -> None:
    """Does what the command line says."""
    with connected(carrier) as transport:
        if what == "refusals":
            refusals(transport, folder)
        elif what == "loses":
            loses(transport, folder, int(arguments[0]), arguments[1], float(arguments[2]), *map(int, arguments[3:]))
        else:
            resumes(transport, folder, int(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
