"""What has moved between processes, and how much of it had to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anycore.kernels.pointers import FLOAT_BYTES

ID_BYTES = 4


@dataclass
class Traffic:
    """Sums over the steps of one process so far."""

    steps: int = 0
    least_sent: int = 0
    least_received: int = 0
    entries: int = 0
    """Rows that this process keeps and that cores asked for."""

    def count(
        self, rank: int, wanted: NDArray[np.int64], asked: NDArray[np.int64], dimensions: NDArray[np.int64]
    ) -> None:
        """Adds a step: wanted, asked int64[W, T], rows that this process needs of each and each of it.

        The least is an id of each row that is not kept where it is needed, and its floats there and back.
        """
        self.steps += 1
        self.entries += int(asked.sum())
        floats = dimensions * FLOAT_BYTES
        theirs, ours = wanted.sum(axis=0) - wanted[rank], asked.sum(axis=0) - asked[rank]
        self.least_sent += int((theirs * (ID_BYTES + floats)).sum() + (ours * floats).sum())
        self.least_received += int((ours * (ID_BYTES + floats)).sum() + (theirs * floats).sum())
