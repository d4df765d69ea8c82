"""The update of the tables as an optimizer: rates, schedulers, and passes that are gathered."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler
from torch_models import ids, rows, small_tables

from anycore import EmbeddingConfig, FeatureConfig, InputError, TableConfig
from anycore.initializers import Constant
from anycore.optimizers import Adagrad, DynamicInput, FrequencyAwareAdagrad, StochasticGradientDescent
from anycore.torch import EmbeddingTables

DYNAMIC = StochasticGradientDescent(learning_rate=DynamicInput(0))


def make_tables(**rates: float | DynamicInput) -> EmbeddingTables:
    """Tables of one number that starts at zero, by name and learning rate."""
    tables = [
        TableConfig(name, 1, 1, StochasticGradientDescent(learning_rate=rate), initializer=Constant(0))
        for name, rate in rates.items()
    ]
    return EmbeddingTables(EmbeddingConfig(tables, [FeatureConfig(name, name, [1]) for name in rates]))


def step(tables: EmbeddingTables) -> dict[str, float]:
    """Returns the parameters of such tables after a gradient of -1 for each."""
    names = [activation.name for activation in tables.engine.activations]
    activations = tables({name: torch.zeros(1, dtype=torch.int64) for name in names})
    (-torch.stack(list(activations.values())).sum()).backward()
    return {name: tables.engine.retrieve(name)["parameters"].item() for name in names}


# Rates


def test_rates_are_set_by_tag_or_table() -> None:
    tables = make_tables(a=DynamicInput(1), b=DynamicInput(0), c=DynamicInput(1), d=0.25)
    tables.set_learning_rate(0, 2)
    tables.set_learning_rate("c", 0.5)
    assert step(tables) == {"a": 0.5, "b": 2, "c": 0.5, "d": 0.25}
    tables.set_learning_rate("b", 1)
    assert step(tables) == {"a": 1, "b": 3, "c": 1, "d": 0.5}


def test_rates_may_be_given_to_the_constructor() -> None:
    tables = small_tables(DYNAMIC, learning_rates={"t": 2.0})
    tables(ids(1, 2))["f"].sum().backward()
    assert rows(tables)[1] == [0, 1]


@pytest.mark.parametrize("which", [2, -1, "d", "nowhere", None])
def test_what_has_no_dynamic_rate_is_named(which: Any) -> None:
    tables = make_tables(a=DynamicInput(1), b=DynamicInput(0), d=0.25)
    with pytest.raises(InputError, match=rf"{which!r} has no dynamic learning rate, .* {{'a': 1, 'b': 0}}"):
        tables.set_learning_rate(which, 0.1)


def test_a_rate_must_be_there_and_finite() -> None:
    tables = small_tables(DYNAMIC)
    with pytest.raises(InputError, match="the learning rate of 't' must be finite, got nan"):
        tables.set_learning_rate("t", math.nan)
    with pytest.raises(InputError, match=r"tag 0 must be finite, got nan: call set_learning_rate\(0, …\)"):
        tables(ids(1, 2))["f"].sum().backward()
    assert rows(tables) == rows(small_tables())
    tables.set_learning_rate(0, 1)
    tables(ids(1, 2))["f"].sum().backward()
    assert rows(tables)[1] == [1, 2]


def test_other_dynamic_inputs_are_set_by_tag_and_left_alone_by_schedulers() -> None:
    optimizer = FrequencyAwareAdagrad(learning_rate=DynamicInput(0), step_counter=DynamicInput(1))
    config = EmbeddingConfig([TableConfig("t", 4, 2, optimizer)], [FeatureConfig("f", "t", [2])])
    tables = EmbeddingTables(config, learning_rates={0: 0.5, 1: 8})
    assert [group["tag"] for group in tables.optimizer.param_groups] == [0]
    assert tables.optimizer._rates() == [0.5, 8]


# Schedulers

SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda optimizer: lr_scheduler.StepLR(optimizer, 2, gamma=0.5),
    "LambdaLR": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch)),
    "CosineAnnealingLR": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 4),
    "OneCycleLR": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 1.0, 6, cycle_momentum=False),
    "SequentialLR": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.ConstantLR(optimizer, 0.5, 2), lr_scheduler.ExponentialLR(optimizer, 0.5)],
        milestones=[2],
    ),
}


@pytest.mark.parametrize("explicit", [False, True], ids=["fused", "with step()"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_set_the_rates(name: str, explicit: bool) -> None:
    ours = make_tables(a=DynamicInput(0), b=DynamicInput(1))
    ours.set_learning_rate(0, 0.5)
    ours.set_learning_rate(1, 0.25)
    a, b = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    theirs = torch.optim.SGD([{"params": [a], "lr": 0.5}, {"params": [b], "lr": 0.25}])
    schedulers = [SCHEDULERS[name](optimizer) for optimizer in (ours.optimizer, theirs)]
    for _ in range(5):
        found = step(ours)
        if explicit:
            ours.optimizer.step()
        a.grad, b.grad = -torch.ones(1), -torch.ones(1)
        theirs.step()
        assert found == pytest.approx({"a": a.item(), "b": b.item()}, rel=1e-6)
        for scheduler in schedulers:
            scheduler.step()


def test_a_scheduler_that_waits_for_a_plateau() -> None:
    tables = make_tables(a=DynamicInput(0))
    tables.set_learning_rate(0, 0.5)
    scheduler = lr_scheduler.ReduceLROnPlateau(tables.optimizer, factor=0.5, patience=0)
    assert step(tables) == {"a": 0.5}
    scheduler.step(1.0)
    scheduler.step(1.0)
    assert step(tables) == {"a": 0.75}


def test_a_scheduler_of_constant_rates_is_refused() -> None:
    with pytest.raises(KeyError, match="lr"):
        lr_scheduler.StepLR(make_tables(a=0.5).optimizer, 1)


def test_rates_are_saved_and_loaded_and_the_optimizer_is_not_copied() -> None:
    first, second = make_tables(a=DynamicInput(0)), make_tables(a=DynamicInput(0))
    first.set_learning_rate(0, 0.5)
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    assert step(second) == {"a": 0.5}
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.deepcopy(first.optimizer)


# Passes that are gathered


def test_as_many_passes_as_cores_make_one_update() -> None:
    tables = small_tables(Adagrad(learning_rate=1.0), num_tensor_cores=3)
    for found in (1, 1, 2):
        assert rows(tables, "accumulators")[1][0] == pytest.approx(0.1)
        tables(ids(found, found))["f"].sum().backward()
    assert [row[0] for row in rows(tables, "accumulators")] == pytest.approx([0.1, 16.1, 4.1, 0.1])


def test_two_lookups_of_one_loss_make_one_update() -> None:
    tables = small_tables(Adagrad(learning_rate=1.0), num_tensor_cores=2)
    (tables(ids(1, 1))["f"].sum() + tables(ids(1, 2))["f"].sum()).backward()
    assert [row[0] for row in rows(tables, "accumulators")] == pytest.approx([0.1, 9.1, 1.1, 0.1])


def test_step_updates_with_what_there_is() -> None:
    tables = small_tables(num_tensor_cores=3)
    tables(ids(1, 2))["f"].sum().backward()
    assert rows(tables) == rows(small_tables())
    tables.optimizer.step()
    tables.optimizer.step()
    assert rows(tables) == [[0, 1], [1, 2], [3, 4], [6, 7]]


def test_zero_grad_forgets_what_there_is() -> None:
    tables = small_tables(num_tensor_cores=2)
    tables(ids(1, 2))["f"].sum().backward()
    tables.optimizer.zero_grad()
    tables.optimizer.step()
    assert rows(tables) == rows(small_tables())


def test_memory_of_a_gathered_pass_may_be_used_again() -> None:
    tables = small_tables(num_tensor_cores=2)
    found, gradient = torch.tensor([1, 2]), torch.ones(2, 2)
    for _ in range(2):
        tables({**ids(0, 0), "f": (found, torch.tensor([0, 1]))})["f"].backward(gradient)
        found.fill_(3)
        gradient.fill_(2)
    assert rows(tables) == [[0, 1], [1, 2], [3, 4], [2, 3]]


def test_rates_may_change_while_passes_are_gathered() -> None:
    tables = small_tables(DYNAMIC, num_tensor_cores=2, learning_rates={0: 1})
    tables(ids(1, 2))["f"].sum().backward()
    tables.set_learning_rate(0, 0.5)
    tables(ids(1, 2))["f"].sum().backward()
    assert rows(tables)[1] == [1, 2]


def test_a_closure_is_run_and_its_passes_are_applied() -> None:
    tables = small_tables(num_tensor_cores=2)

    def closure() -> torch.Tensor:
        loss: torch.Tensor = tables(ids(1, 2))["f"].sum()
        loss.backward()
        return loss

    assert tables.optimizer.step(closure).item() == 14
    assert rows(tables)[1] == [1, 2]
