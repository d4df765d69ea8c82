"""Runs or compiles Triton kernels, in a process of its own: beside TensorFlow, importing Triton aborts.

Standard input is a pickled list of `Steps`, standard output a pickled list of what came of them: with Triton's
interpreter (TRITON_INTERPRET=1) the variables after the steps, without it the code for a GPU, or the error raised.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from updates import Steps, Variables

from anycore import AnycoreError
from anycore.kernels.triton import triton_kernel, triton_update

_HOPPER = GPUTarget("cuda", 90, 32)


def run(steps: Steps) -> Variables:
    """Returns the variables after the steps."""
    update = triton_update(steps.optimizer)
    w, *slots = (torch.from_numpy(variable.copy(order="K")) for variable in steps.variables)
    with np.errstate(all="ignore"):
        for gradient, settings in zip(steps.gradients, steps.settings(), strict=True):
            update(w, torch.from_numpy(gradient), settings, *slots)
    return [variable.numpy() for variable in (w, *slots)]


def compiled(steps: Steps) -> str:
    """Returns the PTX of the kernel."""
    kernel = triton_kernel(steps.optimizer)
    types = {"rows": "i32", "dimension": "i32", "ROWS": "constexpr", "COLUMNS": "constexpr"}
    signature = {name: types.get(name, "*fp32" if name.endswith("_address") else "fp32") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, {"ROWS": 2, "COLUMNS": 64})
    return triton.compile(source, target=_HOPPER, options={"enable_fp_fusion": False}).asm["ptx"]


def outcome(steps: Steps) -> Any:
    """Returns what came of the steps."""
    try:
        return run(steps) if triton.knobs.runtime.interpret else compiled(steps)
    except AnycoreError as error:
        return error


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps([outcome(steps) for steps in pickle.load(sys.stdin.buffer)]))
