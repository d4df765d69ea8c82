"""The Keras layers on each of its backends, of which a process has one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "keras_layers"
CHECKS = sorted(FOLDER.glob("check_*.py"))

# Keras' get_weights means this warning of NumPy's.
KERAS_OWN = "ignore:__array__ implementation:DeprecationWarning"


@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
def test_layers(backend: str) -> None:
    outcome = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            KERAS_OWN,
            *CHECKS,
            FOLDER / f"on_{backend}.py",
        ],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout[-5000:] + outcome.stderr[-1000:]
