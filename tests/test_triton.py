"""Every rule as a Triton kernel: run by Triton's interpreter on a CPU, and compiled for a GPU that need not be there."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden import GOLDEN, Golden
from updates import (
    EXTREMES,
    FORMS,
    Steps,
    Variables,
    assert_close,
    extreme_steps,
    form_name,
    golden_steps,
    in_float64,
    random_steps,
    updated,
)
from word_rules import Exact, OnGpus, Rounded

from anycore.optimizers import Adam, Optimizer, StochasticGradientDescent

Jobs = Mapping[Any, Steps]

PROGRAM = Path(__file__).with_name("triton_program.py")


def outcomes(jobs: Jobs, interpret: bool, cache: Path) -> dict[Any, Any]:
    """Returns what comes of each of the jobs in the program."""
    environment = {**os.environ, "TRITON_INTERPRET": str(int(interpret)), "TRITON_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        input=pickle.dumps(list(jobs.values())),
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    return dict(zip(jobs, pickle.loads(done.stdout), strict=True))


# The dimension is no power of two, and the rows are more than one program's.
TEN_STEPS = {optimizer: random_steps(optimizer) for optimizer in FORMS}
GOLDEN_STEPS = {str(case): golden_steps(case) for case in GOLDEN}
EXTREME_STEPS = {
    (optimizer, kind, rate): extreme_steps(optimizer, size, rate)
    for optimizer in FORMS
    for kind, size in EXTREMES.items()
    for rate in (0.05, 0.0)
}
AROUND: dict[str, Any] = {
    "gradient_clipping_limits": (0.1, 0.5),
    "weight_decay_factor": 0.25,
    "multiply_weight_decay_factor_by_learning_rate": True,
    "clipping_limits": (-0.5, None),
}
COMPOSED = {optimizer: random_steps(optimizer, rows=130) for optimizer in (*(form(**AROUND) for form in (Adam,)),)}
