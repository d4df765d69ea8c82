"""Features in the forms that PyTorch programs have them → rows of ids."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from anycore.batch import Ragged
from anycore.errors import InputError
from anycore.plan import Activation


class Rows(NamedTuple):
    """Row r of an activation combines ids[splits[r]] … ids[splits[r + 1] - 1]; integer [n] and [rows + 1]."""

    ids: torch.Tensor
    splits: torch.Tensor
    weights: torch.Tensor | None

    def as_input(self) -> Ragged:
        """Returns what an engine takes, in the same memory."""
        return Ragged(self.splits.numpy(), self.ids.numpy(), None if self.weights is None else self.weights.numpy())


class _Bags(NamedTuple):
    """What `torch.nn.EmbeddingBag` takes."""

    ids: Any
    offsets: Any = None
    weights: Any = None
    included: bool | None = None
    """Whether the number of ids follows the offsets; None to see it by their number."""


def by_name(features: Any) -> dict[str, Any]:
    """Returns the features of a mapping, or those of a `KeyedJaggedTensor` in the memory where they lie."""
    if not hasattr(features, "weights_or_none"):
        return dict(features)
    if getattr(features, "variable_stride_per_key", bool)():
        raise InputError("a KeyedJaggedTensor must have one batch size for all keys")
    keys, (ids, offsets, weights, _) = features.keys(), _of_torchrec(features)
    size = (len(offsets) - 1) // max(1, len(keys))
    named = {}
    for place, key in enumerate(keys):
        own = offsets[place * size : (place + 1) * size + 1]
        part = slice(own[0], own[-1])
        named[key] = _Bags(ids[part], own - own[0], None if weights is None else weights[part], True)
    return named


def read_feature(activation: Activation, value: Any, padding_id: int, included: bool | None) -> tuple[Rows, int]:
    """Returns rows for a whole activation and the number of samples that `value` has; the rows of others are empty.

    Raises: InputError that names the feature.
    """
    try:
        bags = _bags(value, included)
        for name, tensor in zip(("ids", "offsets", "weights"), bags[:3], strict=True):
            if tensor is not None or name == "ids":
                _check(name, tensor)
        if bags.weights is not None:
            bags = bags._replace(weights=bags.weights.detach().float())
        return _padded(activation, bags, padding_id) if bags.offsets is None else _jagged(activation, bags)
    except InputError as error:
        raise InputError(f"feature {activation.name!r}: {error}") from None


def _bags(value: Any, included: bool | None) -> _Bags:
    if isinstance(value, _Bags):
        return value
    if hasattr(value, "weights_or_none"):  # a JaggedTensor
        return _of_torchrec(value)
    parts = value if isinstance(value, tuple | list) else (value,)
    if not 1 <= len(parts) <= 3:
        raise InputError(f"must be ids or (ids, offsets, weights), got {len(parts)} parts")
    bags = _Bags(*parts)._replace(included=included)
    if not _is_jagged(bags.ids):
        return bags
    # Contiguous, a jagged tensor has none of the gaps that narrow() leaves.
    ids = bags.ids.contiguous()
    weights = bags.weights.contiguous().values() if _is_jagged(bags.weights) else bags.weights
    return _Bags(ids.values(), ids.offsets(), weights, True)


def _of_torchrec(jagged: Any) -> _Bags:
    if hasattr(jagged, "offsets"):
        offsets = jagged.offsets()
    else:
        offsets = torch.nn.functional.pad(jagged.lengths().cumsum(0), (1, 0))
    return _Bags(jagged.values(), offsets, jagged.weights_or_none(), True)


def _is_jagged(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout is torch.jagged


def _check(name: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise InputError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_nested:
        raise InputError(f"{name} must be a dense or jagged tensor on the CPU, got {tensor.layout} on {tensor.device}")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise InputError(f"{name} require a gradient but get none: detach them")


def _jagged(activation: Activation, bags: _Bags) -> tuple[Rows, int]:
    ids, offsets, weights, included = bags
    shape = activation.input_shape
    # Of a feature with two axes or more, the last one holds a sequence.
    most = math.prod(shape[:-1]) if len(shape) > 1 else shape[0]
    if ids.ndim != 1 or offsets.ndim != 1:
        raise InputError(f"ids and offsets must have one axis, got shapes {list(ids.shape)} and {list(offsets.shape)}")
    if included is None:
        if not most <= len(offsets) <= most + 1:
            raise InputError(
                f"offsets must be {most}, or {most + 1} with the last one, got {len(offsets)}: for smaller batches "
                "give include_last_offset to EmbeddingTables"
            )
        included = len(offsets) > most
    if not included:
        offsets = torch.cat([offsets, offsets.new_tensor([len(ids)])])
    rows, per_sample = len(offsets) - 1, most // shape[0]
    if not 0 <= rows <= most or rows % per_sample:
        raise InputError(f"offsets must be for at most {most} rows, {per_sample} a sample, got {rows}")
    if rows < most:
        offsets = torch.cat([offsets, offsets[-1:].expand(most - rows)])
    return Rows(ids, offsets, weights), rows // per_sample


def _padded(activation: Activation, bags: _Bags, padding_id: int) -> tuple[Rows, int]:
    ids, _, weights, _ = bags
    shape, rank = activation.input_shape, len(activation.input_shape)
    if ids.ndim not in (rank, rank + 1) or ids.shape[1:rank] != shape[1:] or ids.shape[0] > shape[0]:
        raise InputError(f"ids must have shape {list(shape)} or one more axis, or fewer samples; got {list(ids.shape)}")
    if weights is not None and weights.shape != ids.shape:
        raise InputError(f"weights must have the shape of the ids, {list(ids.shape)}, got {list(weights.shape)}")
    kept = ids != padding_id
    rows = ids.shape[:rank].numel()
    splits = torch.zeros(activation.num_samples + 1, dtype=torch.int64)
    splits[1 : rows + 1] = kept.reshape(rows, math.prod(ids.shape[rank:])).sum(1).cumsum(0)
    splits[rows + 1 :] = splits[rows]
    return Rows(ids[kept], splits, None if weights is None else weights[kept]), ids.shape[0]
