"""The opcodes of XLA that are no element-wise operation on real numbers, and why.

Source: `HloOpcode`, hlo_opcode.h, TensorFlow 2.21.
"""

from __future__ import annotations

_REASONS = {
    "it computes with more than one element": (
        "batch-norm-grad batch-norm-inference batch-norm-training cholesky concatenate convolution dot dynamic-reshape "
        "dynamic-slice dynamic-update-slice fft gather get-dimension-size iota pad ragged-dot reduce reduce-window "
        "reverse scaled-dot scan scatter select-and-scatter set-dimension-size slice sort topk triangular-solve"
    ),
    "it chooses what is run": "conditional while",
    "it runs code from outside the program": "custom-call",
    "it takes random numbers": ("rng rng-bit-generator rng-get-and-update-state stochastic-convert"),
    "it makes a complex number": "complex",
    "it reads or writes outside the program": ("infeed outfeed recv recv-done send send-done"),
    "it involves other devices": (
        "all-gather all-gather-done all-gather-start all-reduce all-reduce-done all-reduce-start all-to-all "
        "collective-broadcast collective-permute collective-permute-done collective-permute-start partition-id "
        "ragged-all-to-all reduce-scatter replica-id"
    ),
    "it orders operations in time": (
        "add-dependency after-all async-done async-start async-update copy-done copy-start domain"
    ),
}

REFUSED = {opcode: reason for reason, opcodes in _REASONS.items() for opcode in opcodes.split()}
"""Opcode → why it is refused."""
