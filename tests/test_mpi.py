"""Bytes between processes that mpiexec starts."""

from __future__ import annotations

from pathlib import Path

from launched import mpiexec
from transports import PROGRAM, SIZE, check_all_got_everything


def test_every_process_gets_everything(tmp_path: Path) -> None:
    mpiexec(SIZE, PROGRAM, "mpi", str(tmp_path))
    check_all_got_everything(tmp_path)
