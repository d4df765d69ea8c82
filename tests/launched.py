"""Programs that torchrun starts as several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def torchrun(size: int, program: Path, *arguments: str) -> str:
    """Returns what `size` processes of a program have printed; it must end well."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    paths = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "examples"), os.environ.get("PYTHONPATH", "")]
    outcome = subprocess.run(
        [*launcher, str(program), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout[-3000:] + outcome.stderr[-5000:]
    return outcome.stdout
