"""What a step moves at least, counted by hand."""

from __future__ import annotations

import numpy as np

from anycore.traffic import ID_BYTES, Traffic

DIMENSIONS = np.array([2, 5], np.int64)


def test_rows_of_others_cost_an_id_and_their_floats_there_and_back() -> None:
    traffic = Traffic()
    wanted = np.array([[3, 0], [1, 2], [0, 1]], np.int64)  # by process and table, of which process 1 is this one
    asked = np.array([[0, 4], [1, 2], [0, 0]], np.int64)
    traffic.count(1, wanted, asked, DIMENSIONS)
    ours = 3 * (2 * 4) + 1 * (5 * 4)  # floats of the rows that this process needs from others, one way
    theirs = 4 * (5 * 4)
    assert traffic.least_sent == (3 + 1) * ID_BYTES + ours + theirs  # ids and gradients out, and others' parameters
    assert traffic.least_received == 4 * ID_BYTES + ours + theirs
    assert (traffic.steps, traffic.entries) == (1, 4 + 1 + 2)


def test_own_rows_move_nothing() -> None:
    traffic = Traffic()
    for _ in range(3):
        traffic.count(0, np.array([[7, 8]]), np.array([[7, 8]]), DIMENSIONS)
    assert (traffic.least_sent, traffic.least_received, traffic.steps, traffic.entries) == (0, 0, 3, 45)
