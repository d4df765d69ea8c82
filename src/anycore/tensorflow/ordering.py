"""The order of operations in a tf.function."""

from __future__ import annotations

from collections.abc import Iterable

from tensorflow.python.framework import auto_control_deps


def keep_order(operations: Iterable[str]) -> None:
    """Makes operations run where they stand in functions that are traced from now on.

    TensorFlow does so with whatever has a state, but not with enqueue operations: a TPU does not care when its ids
    come. Here activations would wait for them in a thread that they may need, and for the whole timeout where they are
    refused.
    """
    unordered = auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS
    auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS = unordered - frozenset(operations)
