"""Contenders must do the same work: after one step from the same start their numbers agree."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from peers.batches import Batch, Floats, Integers
from peers.contenders.contender import Contender
from peers.workloads import Workload

REFERENCE = "anycore"
TOLERANCE = 1e-3
"""Relative and absolute, of activations and parameters: a hundredth of a step's usual change. Sums of thousands of
gradients, in orders of their own, leave that much where they happen to cancel."""
_COMPARED = 2000
"""Rows of each table: those that are looked up most often, as many of the others that are, and untouched ones."""


class DisagreementError(Exception):
    """A contender computes something else."""


def check_agreement(workload: Workload, contenders: Mapping[str, Contender], batch: Batch) -> dict[str, float]:
    """Returns how far each contender is from anycore after a step of this batch, which all of them take.

    Compared are the activations, and many rows of every table.

    Raises: DisagreementError for more than the tolerance.
    """
    rows = [_sample(ids, workload.vocabulary_size) for ids in batch.ids_of_tables(workload)]
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


def _sample(ids: Integers, vocabulary_size: int) -> Integers:
    touched, counts = np.unique(ids, return_counts=True)
    frequent = touched[np.argsort(-counts, kind="stable")[:_COMPARED]]
    some = touched[:: 1 + len(touched) // _COMPARED]
    any_rows = np.arange(0, vocabulary_size, 1 + vocabulary_size // _COMPARED)
    return np.unique(np.concatenate([frequent, some, any_rows]))


def _deviation(found: Floats, expected: Floats) -> float:
    if found.shape != expected.shape:
        raise DisagreementError(f"shape {found.shape} beside {expected.shape}")
    return float(np.max(np.abs(found - expected) / (1 + np.abs(expected)), initial=0.0))
