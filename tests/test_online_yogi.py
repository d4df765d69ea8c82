"""Optimizers whose arithmetic is not published do all but train, until the caller supplies a rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engines import parameters, small_engine
from operations import configured

import anycore.ops
from anycore import ConfigError, EmbeddingConfig, EmbeddingEngine
from anycore.optimizers import MDLAdagradLight, OnlineYogi, Optimizer
from anycore.optimizers.vocabulary import ONE

UNPUBLISHED = pytest.mark.parametrize("optimizer", [MDLAdagradLight(), OnlineYogi()], ids=lambda o: o.wire_name)


@UNPUBLISHED
def test_it_loads_looks_up_and_retrieves(optimizer: Optimizer) -> None:
    engine = small_engine(optimizer)
    for slot in optimizer.slots:
        np.testing.assert_array_equal(engine.retrieve("t")[slot.name], np.full((4, 2), np.float32(slot.initial_value)))
    engine.load("t", {slot.name: np.full((4, 2), 3.0) for slot in optimizer.slots})
    engine.enqueue([[1, 0]], mode="inference")
    assert engine.receive_activations()[0].tolist() == [[2, 3], [0, 1]]
    assert all((engine.retrieve("t")[slot.name] == 3).all() for slot in optimizer.slots)


@UNPUBLISHED
def test_operations_do_all_but_train(optimizer: Optimizer) -> None:
    loaded = [np.full((4, 2), k, np.float32) + np.arange(4)[:, None] for k in range(1 + len(optimizer.slots))]
    with configured(optimizer, 4, 2) as table:
        table.load(loaded)
        assert table.look_up([3, 0], "inference").tolist() == [[3, 3], [0, 0]]
        with pytest.raises(ConfigError, match=f"the arithmetic of {optimizer.wire_name} is not published"):
            table.look_up([3, 0], "training")
        np.testing.assert_array_equal(table.retrieve(len(loaded)), loaded)


def test_the_operations_of_one_algorithm() -> None:
    names = [f"{verb}_tpu_embedding_mdl_adagrad_light_parameters" for verb in ("load", "retrieve")]
    load, retrieve = (getattr(anycore.ops, name) for name in names)
    loaded = np.random.default_rng(0).normal(0, 1, (4, 4, 2)).astype(np.float32)
    with configured(MDLAdagradLight(), 4, 2):
        load(*loaded, num_shards=1, shard_id=0, table_name="t")
        np.testing.assert_array_equal(retrieve(num_shards=1, shard_id=0, table_id=0), loaded)
    # None is registered for the other.
    assert not hasattr(anycore.ops, names[0].replace("mdl_adagrad_light", "online_yogi"))


@UNPUBLISHED
def test_training_says_what_to_do(optimizer: Optimizer) -> None:
    message = rf"table 't': the arithmetic of {optimizer.wire_name} is not published.*supply a rule"
    with pytest.raises(ConfigError, match=message):
        small_engine(optimizer).enqueue([[1, 0]])


def online_yogi(w: Any, g: Any, lr: Any, vs: Any, linears: Any, beta2: Any) -> Any:
    return w - lr * g, beta2 * vs, linears + ONE


class Trained(OnlineYogi):
    rule = staticmethod(online_yogi)


def test_a_supplied_rule_trains() -> None:
    message = small_engine(OnlineYogi(learning_rate=0.5, beta2=0.25)).config.to_proto()
    engine = EmbeddingEngine(EmbeddingConfig.from_proto(message, optimizers={"online_yogi": Trained}))
    engine.load("t", {"parameters": np.arange(8).reshape(4, 2), "vs": np.ones((4, 2))})
    engine.enqueue([[1, 0]])
    engine.receive_activations()
    engine.send_gradients([np.ones((2, 2))])
    assert parameters(engine) == [[-0.5, 0.5], [1.5, 2.5], [4, 5], [6, 7]]
    assert engine.retrieve("t")["vs"][:, 0].tolist() == [0.25, 0.25, 1, 1]
    assert engine.retrieve("t")["linears"][:, 0].tolist() == [1, 1, 0, 0]
    assert engine.config.to_proto() == message
