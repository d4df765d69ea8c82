"""What has moved between processes, and how much of it had to."""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from anycore.kernels.pointers import FLOAT_BYTES

ID_BYTES = 4


@dataclass(frozen=True)
class Traffic:
    """Sums over steps of one process."""

    steps: int = 0
    sent: int = 0
    """Bytes that went ahead, in the background."""
    received: int = 0
    least_sent: int = 0
    least_received: int = 0
    entries: int = 0
    """Rows that this process keeps and that cores asked for."""

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))


def step_traffic(
    rank: int, wanted: NDArray[np.int64], asked: NDArray[np.int64], dimensions: NDArray[np.int64]
) -> Traffic:
    """Returns a step's least traffic; wanted, asked int64[W, T], rows that this process needs of each and each of it.

    The least is an id of each row that is not kept where it is needed, and its floats there and back.
    """
    floats = dimensions * FLOAT_BYTES
    theirs, ours = wanted.sum(axis=0) - wanted[rank], asked.sum(axis=0) - asked[rank]
    return Traffic(
        steps=1,
        least_sent=int((theirs * (ID_BYTES + floats)).sum() + (ours * floats).sum()),
        least_received=int((ours * (ID_BYTES + floats)).sum() + (theirs * floats).sum()),
        entries=int(asked.sum()),
    )
