"""Contenders must do the same work: after one step from the same start their numbers agree."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from peers.batches import Batch, Floats
from peers.contenders.contender import Contender
from peers.workloads import Workload

REFERENCE = "anycore"
TOLERANCE = 1e-3
"""Relative and absolute, of activations and parameters: a hundredth of a step's usual change. Sums of thousands of
gradients, in orders of their own, leave that much where they happen to cancel."""
_UNTOUCHED = 100


class DisagreementError(Exception):
    """A contender computes something else."""


def check_agreement(workload: Workload, contenders: Mapping[str, Contender], batch: Batch) -> dict[str, float]:
    """Returns how far each contender is from anycore after a step of this batch, which all of them take.

    Compared are the activations, the rows that the step has changed and some that it has not.

    Raises: DisagreementError for more than the tolerance.
    """
    others = np.arange(0, workload.vocabulary_size, max(1, workload.vocabulary_size // _UNTOUCHED))
    rows = [np.union1d(touched, others) for touched in batch.rows(workload)]
    expected: list[Floats] = []
    deviations = {}
    for name, contender in contenders.items():
        returned = contender.step(contender.prepare(batch), lambda stage: None)
        found = [*contender.activations(returned), *(contender.parameters(t, ids) for t, ids in enumerate(rows))]
        if name == REFERENCE:
            expected = found
            continue
        deviations[name] = max(_deviation(a, b) for a, b in zip(found, expected, strict=True))
        if not deviations[name] <= TOLERANCE:
            raise DisagreementError(f"{workload.key}: {name} is {deviations[name]:g} from {REFERENCE}")
    return deviations


def _deviation(found: Floats, expected: Floats) -> float:
    if found.shape != expected.shape:
        raise DisagreementError(f"shape {found.shape} beside {expected.shape}")
    return float(np.max(np.abs(found - expected) / (1 + np.abs(expected)), initial=0.0))
