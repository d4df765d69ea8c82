"""Tables in PyTorch: the bits of the engine, the numbers of PyTorch's own layers, and what autograd may ask of them."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from engines import State, assert_same_bits, state
from torch.utils.checkpoint import checkpoint
from torch_models import ids, rows, small_tables

from anycore import (
    AnycoreError,
    ConfigError,
    Dense,
    EmbeddingConfig,
    EmbeddingEngine,
    FeatureConfig,
    Mode,
    Ragged,
    TableConfig,
)
from anycore.arrays import address
from anycore.initializers import Constant
from anycore.optimizers import FTRL, Adagrad, Adam, DynamicInput, OnlineYogi, StochasticGradientDescent
from anycore.torch import EmbeddingTables

# The bits of the engine

OPTIMIZERS = [
    Adagrad(learning_rate=DynamicInput(0)),
    Adam(learning_rate=DynamicInput(1), weight_decay_factor=0.01),
    FTRL(learning_rate=0.1, l1=0.01),
]
BATCH = 16


def make_config(num_tensor_cores: int) -> EmbeddingConfig:
    tables = [TableConfig(f"t{k}", 40 + k, 8, optimizer, combiner="mean") for k, optimizer in enumerate(OPTIMIZERS)]
    features = [FeatureConfig(f"f{k}", f"t{k % 3}", [BATCH]) for k in range(5)]
    return EmbeddingConfig(tables, features, num_tensor_cores=num_tensor_cores)


def batches(number: int) -> list[dict[str, Any]]:
    """Weighted bags of features 0 and 1, one id a sample of the others."""
    random = torch.Generator().manual_seed(0)
    bags = [f"f{k}" for k in range(2)]

    def bag() -> tuple[torch.Tensor, ...]:
        lengths = torch.randint(0, 6, (BATCH,), generator=random)
        count = int(lengths.sum())
        found = torch.randint(0, 40, (count,), generator=random)
        return found, lengths.cumsum(0) - lengths, torch.rand(count, generator=random)

    return [
        {f"f{k}": bag() if f"f{k}" in bags else torch.randint(0, 40, (BATCH,), generator=random) for k in range(5)}
        for _ in range(number)
    ]


def dense_part() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    dense = torch.nn.Sequential(torch.nn.Linear(40, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    return dense, torch.optim.SGD(dense.parameters(), lr=0.1)


def loss_of(dense: torch.nn.Module, activations: dict[str, torch.Tensor]) -> torch.Tensor:
    return (dense(torch.cat(list(activations.values()), dim=1)) - 1).square().mean()


def train_in_torch(config: EmbeddingConfig, num_threads: int) -> tuple[State, torch.nn.Module]:
    tables = EmbeddingTables(config, seed=3, num_threads=num_threads, learning_rates={0: 0.2, "t1": 0.05})
    dense, optimizer = dense_part()
    for features in batches(20 * config.num_tensor_cores):
        loss_of(dense, tables(features)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return state(tables.engine), dense


def train_by_calls(config: EmbeddingConfig) -> tuple[State, torch.nn.Module]:
    engine = EmbeddingEngine(config, seed=3)
    dense, optimizer = dense_part()
    for number, features in enumerate(batches(20 * config.num_tensor_cores)):
        core = number % config.num_tensor_cores
        engine.enqueue({name: as_input(value) for name, value in features.items()}, core=core)
        if core < config.num_tensor_cores - 1:
            continue
        received = [engine.receive_activations(each) for each in range(config.num_tensor_cores)]
        for each, arrays in enumerate(received):
            leaves = {
                activation.name: torch.from_numpy(array).requires_grad_()
                for activation, array in zip(engine.activations, arrays, strict=True)
            }
            loss_of(dense, leaves).backward()
            engine.send_gradients({name: leaf.grad for name, leaf in leaves.items()}, [0.2, 0.05], each)
            optimizer.step()
            optimizer.zero_grad()
    return state(engine), dense


def as_input(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return Dense(value)
    found, offsets, weights = value
    return Ragged(torch.cat([offsets, torch.tensor([len(found)])]), found, weights)


@pytest.mark.parametrize("num_tensor_cores", [1, 3])
def test_bits_are_those_of_the_engine(num_tensor_cores: int) -> None:
    config = make_config(num_tensor_cores)
    expected, expected_dense = train_by_calls(config)
    for num_threads in (1, 2):
        trained, dense = train_in_torch(config, num_threads)
        assert_same_bits(trained, expected)
        for ours, theirs in zip(dense.parameters(), expected_dense.parameters(), strict=True):
            assert torch.equal(ours, theirs)


# The numbers of PyTorch's own layers


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (StochasticGradientDescent(learning_rate=0.3), lambda parameters: torch.optim.SGD(parameters, lr=0.3)),
        (
            Adagrad(learning_rate=0.3),
            lambda parameters: torch.optim.Adagrad(parameters, lr=0.3, initial_accumulator_value=0.1, eps=0),
        ),
    ],
    ids=["sgd", "adagrad"],
)
def test_training_agrees_with_embedding_bag(
    ours: Any, theirs: Callable[[Any], torch.optim.Optimizer], sparse: bool
) -> None:
    config = EmbeddingConfig([TableConfig("t", 40, 8, ours)], [FeatureConfig("f0", "t", [BATCH])])
    tables = EmbeddingTables(config, num_threads=2)
    layer = torch.nn.EmbeddingBag.from_pretrained(
        tables.state_dict()["t.parameters"].clone(), freeze=False, mode="sum", sparse=sparse
    )
    optimizer = theirs(layer.parameters())
    for features in batches(10):
        found, offsets, weights = features["f0"]
        activations, expected = tables({"f0": features["f0"]})["f0"], layer(found, offsets, weights)
        torch.testing.assert_close(activations, expected, rtol=1e-5, atol=1e-5)
        for each in (activations, expected):
            (each - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(tables.state_dict()["t.parameters"], layer.weight, rtol=1e-5, atol=1e-5)
    if isinstance(optimizer, torch.optim.Adagrad):
        (slots,) = optimizer.state.values()
        torch.testing.assert_close(tables.state_dict()["t.accumulators"], slots["sum"], rtol=1e-5, atol=1e-5)


# When tables are updated


def test_only_a_backward_pass_in_training_updates() -> None:
    tables = small_tables()
    with torch.no_grad():
        assert not tables(ids(1, 1))["f"].requires_grad
    assert not tables.eval()(ids(1, 1))["f"].requires_grad
    with torch.inference_mode():
        tables.train()(ids(1, 1))
    dropped = tables(ids(1, 1))["f"]
    assert dropped.requires_grad
    assert rows(tables) == rows(small_tables())
    tables(ids(1, 1))["f"].sum().backward()
    assert rows(tables)[1] == [0, 1]


def test_a_forward_pass_may_wait_while_others_train() -> None:
    tables = small_tables()
    first, second = tables(ids(1, 2)), tables(ids(1, 3))
    second["f"].sum().backward()
    first["f"].sum().backward()
    assert rows(tables)[1:] == [[0, 1], [3, 4], [5, 6]]


def test_a_config_for_inference_only_looks_up() -> None:
    config = EmbeddingConfig(
        [TableConfig("t", 4, 2, OnlineYogi(), initializer=Constant(1))],
        [FeatureConfig("f", "t", [2])],
        mode=Mode.INFERENCE,
    )
    activations = EmbeddingTables(config)({"f": torch.tensor([1, 2])})["f"]
    assert activations.tolist() == [[1, 1], [1, 1]]
    assert not activations.requires_grad


def test_a_table_without_requires_grad_is_not_updated() -> None:
    tables = small_tables(Adam(learning_rate=1.0))
    tables.requires_grad_(False)
    assert not tables(ids(1, 1))["f"].requires_grad
    optimizers = (StochasticGradientDescent(learning_rate=1.0), Adam(learning_rate=1.0))
    config = EmbeddingConfig(
        [TableConfig(name, 4, 2, optimizer) for name, optimizer in zip("ab", optimizers, strict=True)],
        [FeatureConfig(name, name, [2]) for name in "ab"],
    )
    tables = EmbeddingTables(config)
    before = state(tables.engine)
    dict(tables.named_parameters())["b.parameters"].requires_grad_(False)
    sum(each.sum() for each in tables({"a": torch.tensor([1, 1]), "b": torch.tensor([1, 1])}).values()).backward()
    assert_same_bits({"b": state(tables.engine)["b"]}, before)
    assert not np.array_equal(tables.engine.retrieve("a")["parameters"], before["a"]["parameters"])


def test_a_table_that_updates_every_row_cannot_be_without_requires_grad() -> None:
    optimizers = (StochasticGradientDescent(), Adam(use_non_lazy_adam=True))
    config = EmbeddingConfig(
        [TableConfig(name, 4, 2, optimizer) for name, optimizer in zip("ab", optimizers, strict=True)],
        [FeatureConfig(name, name, [2]) for name in "ab"],
    )
    tables = EmbeddingTables(config)
    dict(tables.named_parameters())["b.parameters"].requires_grad_(False)
    with pytest.raises(ConfigError, match="table 'b' updates every row"):
        tables({"a": torch.tensor([1, 1]), "b": torch.tensor([1, 1])})["a"].sum().backward()


@pytest.mark.parametrize(("missing_gradients", "momentum"), [("zeros", 0.5), ("untouched", 1)])
def test_features_outside_the_loss(missing_gradients: str, momentum: float) -> None:
    tables = small_tables(Adam(learning_rate=0.0, beta1=0.5), missing_gradients=missing_gradients)
    tables.engine.load("t", {"momenta": np.ones((4, 2))})
    tables({"f": torch.tensor([1, 1]), "g": torch.tensor([2, 2])})["f"].sum().backward()
    assert rows(tables, "momenta") == [[1, 1], [1.5, 1.5], [momentum, momentum], [1, 1]]


def test_what_a_constructor_refuses() -> None:
    with pytest.raises(ConfigError, match="missing_gradients must be 'zeros' or 'untouched', got 'none'"):
        small_tables(missing_gradients="none")
    config = EmbeddingConfig(
        [TableConfig("t", 4, 2, Adam())], [FeatureConfig("f", "t", [2])], pipeline_execution_with_tensor_core=True
    )
    with pytest.raises(ConfigError, match="cannot be pipelined"):
        EmbeddingTables(config)
    config = EmbeddingConfig([TableConfig("t", 4, 2, Adam())], [FeatureConfig("f", "t", [2])] * 2)
    with pytest.raises(ConfigError, match=r"some share one: \['f', 'f'\]"):
        EmbeddingTables(config)


# What autograd may ask


def test_a_second_pass_through_a_graph_is_a_second_update_or_refused() -> None:
    tables = small_tables()
    loss = tables(ids(1, 2))["f"].sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert rows(tables)[1] == [0, 1]
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    assert rows(tables)[1] == [0, 1]


def test_an_update_has_no_derivative() -> None:
    tables = small_tables()
    loss = tables(ids(1, 2))["f"].square().sum()
    with pytest.raises(AnycoreError, match="no derivative: call backward without create_graph"):
        loss.backward(create_graph=True)
    assert rows(tables) == rows(small_tables())


def test_gradients_of_activations_or_of_the_dense_part_alone_update_nothing() -> None:
    tables, dense = small_tables(), torch.nn.Linear(2, 1)
    activations = tables(ids(1, 2))["f"]
    loss = dense(activations).square().sum()
    (gradient,) = torch.autograd.grad(loss, activations, create_graph=True)
    torch.autograd.grad(loss + gradient.square().sum(), list(dense.parameters()))
    assert rows(tables) == rows(small_tables())


def test_ids_that_were_overwritten_before_the_backward_pass_are_noticed() -> None:
    tables = small_tables()
    found = torch.tensor([1, 2, 3])
    loss = tables({**ids(0, 0), "f": (found, torch.tensor([0, 1]))})["f"].sum()
    found[0] = 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    assert rows(tables) == rows(small_tables())


def test_transforms_of_functions_are_refused() -> None:
    tables = small_tables()
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda scale: (scale * tables(ids(1, 2))["f"]).sum())(torch.tensor(1.0))
    assert rows(tables) == rows(small_tables())


def test_activations_may_be_changed_in_place_and_hooked() -> None:
    tables = small_tables()
    activations = tables(ids(1, 2))["f"]
    activations.register_hook(lambda gradient: 2 * gradient)
    activations.mul_(3).sum().backward()
    assert rows(tables)[1] == [-4, -3]


def test_a_checkpoint_looks_up_twice_and_updates_once() -> None:
    tables = small_tables()
    lift = torch.zeros(1, requires_grad=True)

    def part(lift: torch.Tensor) -> torch.Tensor:
        return tables(ids(1, 2))["f"].sum() + lift

    checkpoint(part, lift, use_reentrant=False).backward()
    assert rows(tables)[1] == [1, 2]


def test_anomaly_detection_and_autocast() -> None:
    tables, dense = small_tables(), torch.nn.Linear(2, 1)
    with torch.autograd.set_detect_anomaly(True), torch.autocast("cpu", torch.bfloat16):
        activations = tables(ids(1, 2))["f"]
        scores = dense(activations)
        assert (activations.dtype, scores.dtype) == (torch.float32, torch.bfloat16)
        scores.sum().backward()
    weight = dense.weight.detach().bfloat16().float()
    assert rows(tables)[1] == (torch.tensor([2.0, 3.0]) - weight[0]).tolist()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_model_breaks_its_graph_at_the_tables() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables, self.dense = small_tables(), torch.nn.Linear(2, 1, bias=False)
            torch.nn.init.ones_(self.dense.weight)

        def forward(self, features: Any) -> torch.Tensor:
            return self.dense(self.tables(features)["f"] * 2).sum()

    model = Model()
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):
        compiled(ids(1, 2)).backward()
    assert rows(model.tables) == [[0, 1], [-2, -1], [0, 1], [6, 7]]


# Memory


def test_ids_activations_and_gradients_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = small_tables()
    looked_up, sent = tables.engine.look_up, tables.engine._tables.prepare_update
    seen: dict[str, int] = {}

    def look_up(inputs: Any, **options: Any) -> Any:
        activations = looked_up(inputs, **options)
        seen.update(ids=address(inputs[0].embedding_indices), activations=address(activations[0]))
        return activations

    def prepare_update(sorted_ids: Any, gradients: Any, rates: Any) -> Any:
        seen.update(gradients=gradients[0][0].address)
        return sent(sorted_ids, gradients, rates)

    monkeypatch.setattr(tables.engine, "look_up", look_up)
    monkeypatch.setattr(tables.engine._tables, "prepare_update", prepare_update)
    found = torch.tensor([1, 2, 3])
    activations = tables({**ids(0, 0), "f": (found, torch.tensor([0, 1]))})["f"]
    theirs = {"ids": found.data_ptr(), "activations": activations.data_ptr()}
    activations.register_hook(lambda gradient: theirs.update(gradients=gradient.data_ptr()))
    activations.square().sum().backward()
    assert seen == theirs


def test_tables_are_freed_with_their_module() -> None:
    tables = small_tables()
    tables(ids(1, 2))["f"].sum().backward()
    engine = weakref.ref(tables.engine)
    gc.disable()
    try:
        del tables
        assert engine() is None
    finally:
        gc.enable()


# Processes


def test_a_fork_and_a_group_of_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = small_tables()
    with monkeypatch.context() as patch:
        patch.setattr(torch.distributed, "is_initialized", lambda: True)
        patch.setattr(torch.distributed, "get_world_size", lambda: 2)
        tables.eval()(ids(1, 2))
        with pytest.raises(AnycoreError, match="each of several processes would train tables of its own"):
            tables.train()(ids(1, 2))
    process = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: process + 1)
    with pytest.raises(AnycoreError, match="a fork lacks the threads of the tables"):
        tables.eval()(ids(1, 2))
