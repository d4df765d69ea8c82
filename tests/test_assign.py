"""Assign: the gradient is the new value."""

from __future__ import annotations

import numpy as np
import pytest
from engines import parameters, small_engine

from anycore.optimizers import Assign


@pytest.mark.parametrize(("gradient_accumulation", "expected"), [(True, [4, 6]), (False, [3, 4])])
def test_an_id_that_occurs_twice(gradient_accumulation: bool, expected: list[float]) -> None:
    engine = small_engine(Assign(gradient_accumulation=gradient_accumulation))
    engine.enqueue([np.array([2, 2])])
    engine.receive_activations()
    engine.send_gradients([[[1.0, 2.0], [3.0, 4.0]]])
    assert parameters(engine) == [[0, 1], [2, 3], expected, [6, 7]]
