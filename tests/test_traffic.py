"""What a step moves at least, counted by hand."""

from __future__ import annotations

import numpy as np

from anycore.traffic import ID_BYTES, Traffic, step_traffic

DIMENSIONS = np.array([2, 5], np.int64)


def test_rows_of_others_cost_an_id_and_their_floats_there_and_back() -> None:
    wanted = np.array([[3, 0], [1, 2], [0, 1]], np.int64)  # by process and table, of which process 1 is this one
    asked = np.array([[0, 4], [1, 2], [0, 0]], np.int64)
    traffic = step_traffic(1, wanted, asked, DIMENSIONS)
    ours = 3 * (2 * 4) + 1 * (5 * 4)  # floats of the rows that this process needs from others, one way
    theirs = 4 * (5 * 4)
    assert traffic.least_sent == (3 + 1) * ID_BYTES + ours + theirs  # ids and gradients out, and others' parameters
    assert traffic.least_received == 4 * ID_BYTES + ours + theirs
    assert (traffic.steps, traffic.entries) == (1, 4 + 1 + 2)


def test_own_rows_move_nothing() -> None:
    rows = np.array([[7, 8]])
    assert step_traffic(0, rows, rows, DIMENSIONS) == Traffic(steps=1, entries=15)


def test_steps_add_up() -> None:
    step = Traffic(steps=1, sent=2, received=3, least_sent=4, least_received=5, entries=6)
    assert Traffic() + step + step == Traffic(steps=2, sent=4, received=6, least_sent=8, least_received=10, entries=12)
