"""Processes that torchrun and mpiexec start get the bits of one engine, whatever their number."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed_program import CASES, NUM_CORES, NUM_STEPS, different, make_config, optimizers, tables_of, train
from launched import ROOT, mpiexec, torchrun

from anycore import EmbeddingEngine, ShardingStrategy
from anycore.optimizers import OPTIMIZERS

PROGRAM = ROOT / "tests" / "distributed_program.py"


@cache
def expected(strategy: ShardingStrategy, pipelined: bool) -> tuple[dict[str, str], dict[str, Any]]:
    """What one engine makes of it."""
    engine = EmbeddingEngine(make_config(strategy, pipelined), seed=7, num_threads=1)
    return train(engine, ahead=False), tables_of(engine)


def test_every_optimizer_of_the_wire_that_has_a_rule_is_there() -> None:
    trainable = {name for name, optimizer in OPTIMIZERS.items() if optimizer.rule is not None}
    assert {optimizer.wire_name for optimizer in optimizers().values()} == {*trainable, "user_defined_program"}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("carrier", ["torch", "mpi"])
def test_processes_get_the_bits_of_one_engine(carrier: str, size: int, tmp_path: Path) -> None:
    (torchrun if carrier == "torch" else mpiexec)(size, PROGRAM, carrier, str(tmp_path))
    for case, (strategy, pipelined, num_threads) in enumerate(CASES):
        digests, tables = expected(strategy, pipelined)
        assert len(digests) == NUM_STEPS * NUM_CORES
        found: dict[str, str] = {}
        for rank in range(size):
            of_process = json.loads((tmp_path / f"{case}-{rank}.json").read_text())
            assert of_process and not found.keys() & of_process.keys()
            found |= of_process
        context = f"{strategy.name}, pipelined {pipelined}, {num_threads} threads"
        assert not [place for place, digest in digests.items() if found[place] != digest], context
        with np.load(tmp_path / f"{case}.npz") as found_tables:
            assert not different(found_tables, tables), context
