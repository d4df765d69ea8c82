"""Only on Keras' JAX backend."""

from __future__ import annotations

from typing import Any

import jax
import keras_models
import numpy as np
from engines import assert_same_bits, state
from jax.experimental import sparse
from row_numbers import looked_up, new_layer

from anycore.keras import TPUEmbedding

IDS = {"f": np.array([8, 8, 2])}


def test_sparse_arrays() -> None:
    indices = np.array([[0, 0], [0, 2], [2, 1]])
    ids = sparse.BCOO((np.array([3, 1, 8]), indices), shape=(3, 3))
    weights = sparse.BCOO((np.array([2.0, 4.0, 0.5], np.float32), indices), shape=(3, 3))
    assert looked_up(new_layer(), ids) == [4, 0, 8]
    assert looked_up(new_layer(), ids, weights) == [10, 0, 4]
    assert looked_up(new_layer((1, 3)), ids) == [[3, 0, 1], [0, 0, 0], [0, 8, 0]]


def total(layer: TPUEmbedding, training: bool | None) -> Any:
    """Returns a function of the anchor: the sum of the activations."""
    layer.build()
    constants = [variable.value for variable in layer.non_trainable_variables]

    def function(anchor: Any) -> Any:
        activations, _ = layer.stateless_call([anchor], constants, IDS, training=training)
        return activations["f"].sum()

    return function


def test_nothing_but_the_anchor_orders_steps_of_ones_own() -> None:
    layer = new_layer()
    step = jax.jit(jax.value_and_grad(total(layer, training=None)))
    anchor, losses = jax.numpy.float32(0), []
    for _ in range(5):
        loss, gradient = step(anchor)
        anchor = anchor - gradient
        losses.append(loss)
    assert [float(loss) for loss in losses] == [36 - 10 * i for i in range(5)]
    assert layer.updates == 5
    assert float(anchor) == 0


def test_without_training_there_is_no_gradient() -> None:
    layer = new_layer()
    assert jax.jit(jax.grad(total(layer, training=False)))(jax.numpy.float32(0)) == 0
    assert layer.updates == 0


def test_several_steps_an_execution() -> None:
    layer = keras_models.new_layer()
    model = keras_models.new_model(layer)
    assert model.jit_compile
    model.compile("sgd", model.loss, steps_per_execution=4)
    keras_models.fit(model)
    assert_same_bits(keras_models.tables(layer), state(keras_models.trained_engine()))
