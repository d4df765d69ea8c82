"""Runs the program of tensorflow_process, once in a test run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@cache
def findings() -> Any:
    """Returns what a process of its own has found out."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), str(HERE)])}
    program = [sys.executable, str(HERE / "tensorflow_process.py")]
    run = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)
