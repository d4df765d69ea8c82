"""The host's work as a part of torch's autograd graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import torch
from torch.autograd.function import once_differentiable

from anycore.errors import CallOrderError
from anycore.keras.host import Call
from anycore.keras.inputs import Tensors

SUPPORTS_JIT = False


def tensors(ids: torch.Tensor, weights: torch.Tensor | None) -> Tensors:
    """Returns the tensors that a tensor of ids and its weights are made of."""
    return Tensors("dense", tuple(ids.shape), [ids], weights)


def look_up(call: Call, anchor: torch.Tensor, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns the number of updates before, and the activations."""
    if anchor.is_meta:  # Keras wants to know the shapes
        return [anchor.to(torch.int32), *(torch.empty(shape, device="meta") for shape in call.shapes)]
    return [torch.from_numpy(array).to(anchor.device) for array in call.look_up(*map(_array, arrays))]


def train(
    call: Call,
    anchor: torch.Tensor,
    updates: torch.Tensor,
    rates: torch.Tensor,
    arrays: Sequence[torch.Tensor],
    activations: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Returns the activations, such that computing the gradient of `anchor` updates the tables."""
    del updates
    if anchor.is_meta:
        return list(activations)
    return list(_Hook.apply(call, [rates, *arrays], anchor, *activations))


class _Hook(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, call: Call, operands: list[torch.Tensor], anchor: torch.Tensor, *activations: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.call, ctx.operands, ctx.device = call, operands, anchor.device
        return tuple(activation.view_as(activation) for activation in activations)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        operands, ctx.operands = ctx.operands, None
        if operands is None:
            raise CallOrderError("the tables are updated already with the gradients of this forward pass")
        done = ctx.call.update(*map(_array, (*operands, *gradients)))
        return None, None, torch.from_numpy(done).to(ctx.device), *[None] * len(gradients)


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().numpy()


@contextmanager
def eagerly() -> Iterator[None]:
    """Computes values at once and on the CPU, also while Keras is after shapes alone."""
    with keras.device("cpu"), torch.no_grad():
        yield


def wait() -> None:
    """Returns when all that a step has begun is done, as it is here."""
