"""Every optimizer that trains, as it is without settings."""

from __future__ import annotations

from anycore.optimizers import OPTIMIZERS, Optimizer, RowWiseAdagrad


def trained_optimizers() -> dict[str, Optimizer]:
    """Returns those of the wire whose arithmetic is published, by name, and row-wise Adagrad."""
    of_wire = {name: optimizer() for name, optimizer in OPTIMIZERS.items() if optimizer.rule is not None}
    return of_wire | {"row_wise_adagrad": RowWiseAdagrad()}
