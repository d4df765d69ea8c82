"""Runs or compiles Triton kernels, in a process of its own: beside TensorFlow, importing Triton aborts.

Standard input is a pickled list of `Job`s, standard output a pickled list of what came of them. In Triton's interpreter
(TRITON_INTERPRET=1) that is the variables after the job's steps, else the text of the code that a GPU would run.
"""

from __future__ import annotations

import pickle
import sys

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from updates import Steps, Variables

from anycore.kernels.triton import triton_kernel, triton_update

_HOPPER = GPUTarget("cuda", 90, 32)


def run(steps: Steps) -> Variables:
    """Returns the variables after the steps."""
    update = triton_update(steps.optimizer)
    w, *slots = map(torch.tensor, steps.variables)
    with np.errstate(all="ignore"):
        for gradient, settings in zip(steps.gradients, steps.settings(), strict=True):
            update(w, torch.tensor(gradient), settings, *slots)
    return [variable.numpy() for variable in (w, *slots)]


def compiled(steps: Steps) -> str:
    """Returns the PTX of the kernel."""
    kernel = triton_kernel(steps.optimizer)
    types = {"rows": "i32", "dimension": "i32", "ROWS": "constexpr", "COLUMNS": "constexpr"}
    signature = {
        name: types.get(name, "*fp32" if name.endswith("_address") else "fp32") for name in kernel.arg_names
    }
    source = ASTSource(kernel, signature, {"ROWS": 16, "COLUMNS": 64})
    return triton.compile(source, target=_HOPPER, options={"enable_fp_fusion": False}).asm["ptx"]


if __name__ == "__main__":
    job = run if triton.knobs.runtime.interpret else compiled
    sys.stdout.buffer.write(pickle.dumps([job(steps) for steps in pickle.load(sys.stdin.buffer)]))
