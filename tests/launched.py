"""Programs that torchrun or mpiexec starts as several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
MPIEXEC = str(Path(sys.executable).with_name("mpiexec"))


def environment(**more: str) -> dict[str, str]:
    """Returns the environment of a program that imports from our folders."""
    paths = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "examples"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", **more}


def torchrun(size: int, program: Path, *arguments: str) -> str:
    """Returns what `size` processes of a program have printed; it must end well."""
    return _printed([*TORCHRUN, f"--nproc-per-node={size}", str(program), *arguments])


def mpiexec(size: int, program: Path, *arguments: str) -> str:
    """Returns what `size` processes of a program have printed; it must end well."""
    return _printed([MPIEXEC, "-n", str(size), sys.executable, str(program), *arguments])


def _printed(command: list[str]) -> str:
    outcome = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL
    )
    assert outcome.returncode == 0, outcome.stdout[-3000:] + outcome.stderr[-5000:]
    return outcome.stdout
