"""The operations of the dense part: activations out, gradients in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore.arrays import as_array
from anycore.errors import InputError
from anycore.ops.system import engine_of


def recv_tpu_embedding_activations(
    num_outputs: int, config: Any, *, core: int = 0, out: Sequence[NDArray[np.float32]] | None = None
) -> Sequence[NDArray[np.float32]]:
    """Returns the activations of the core's next step, one float32 array per feature (in table mode: per table).

    They are written into the arrays `out`, if given.

    Raises: InputError when `num_outputs` is another count; CallOrderError when the enqueue is missing.
    """
    return receive("recv_tpu_embedding_activations", "num_outputs", num_outputs, config, core, out)


def receive(
    op: str, name: str, count: int, config: Any, core: int, out: Sequence[NDArray[np.float32]] | None
) -> Sequence[NDArray[np.float32]]:
    """Does as `recv_tpu_embedding_activations` for an operation that has another name, and another one for `count`."""
    engine = engine_of(config, op)
    if count != len(engine.activations):
        raise InputError(f"{op}: {name} must be {len(engine.activations)}, got {count}")
    return engine.receive_activations(core, out=out)


def send_tpu_embedding_gradients(
    inputs: Sequence[Any], learning_rates: Sequence[Any], config: Any, *, core: int = 0
) -> None:
    """Updates the tables with `inputs`, the gradients of the core's activations, once all cores have sent theirs.

    `inputs` has the count, order and shapes of the activations; `learning_rates` one float32 scalar per dynamic tag, in
    tag order, and is empty when all rates are constant.

    Raises: InputError for every mismatch; CallOrderError when no step waits for gradients. Then nothing has changed.
    Source: `SendTPUEmbeddingGradients`, TensorFlow 2.21.
    """
    engine_of(config, "send_tpu_embedding_gradients").send_gradients(inputs, learning_rates, core)


def tpu_embedding_activations(
    embedding_variable: Any, sliced_activations: Any, table_id: int, lookup_id: int
) -> NDArray[Any]:
    """Returns `sliced_activations` as they are; the other arguments tell a gradient function where they come from.

    Source: `TPUEmbeddingActivations`, TensorFlow 2.21.
    """
    return as_array(sliced_activations, "sliced_activations")
