"""What comes of steps in Triton, which runs in a process of its own."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

from updates import Steps

_PROGRAM = Path(__file__).with_name("triton_program.py")


def outcomes(jobs: dict[str, Steps], interpret: bool, cache: Path) -> dict[str, Any]:
    """Returns what comes of each job in the program."""
    done = subprocess.run(
        [sys.executable, str(_PROGRAM)],
        input=pickle.dumps(list(jobs.values())),
        env={**os.environ, "TRITON_INTERPRET": str(int(interpret)), "TRITON_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return dict(zip(jobs, pickle.loads(done.stdout), strict=True))
