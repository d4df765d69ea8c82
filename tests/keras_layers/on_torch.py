"""Only on Keras' torch backend."""

from __future__ import annotations

import numpy as np
import pytest
from row_numbers import new_layer

from anycore import CallOrderError


def test_a_second_backward_pass_is_refused() -> None:
    layer = new_layer()
    loss = layer({"f": np.array([3, 1])}, training=True)["f"].sum()
    loss.backward(retain_graph=True)
    with pytest.raises(CallOrderError, match="updated already"):
        loss.backward()
    assert layer.updates == 1


def test_without_training_there_is_no_gradient() -> None:
    layer = new_layer()
    assert not layer({"f": np.array([3, 1])}, training=False)["f"].requires_grad
    assert layer.updates == 0
