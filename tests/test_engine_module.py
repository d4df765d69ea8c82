"""Tables as state of a module: saved, loaded, looked at, and neither moved nor copied."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from engines import assert_same_bits, state
from torch_models import ids, rows, small_tables

from anycore import AnycoreError, EmbeddingConfig, FeatureConfig, TableConfig
from anycore.arrays import address
from anycore.optimizers import Adagrad, Adam, RowWiseAdagrad
from anycore.torch import EmbeddingTables


class Model(torch.nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.tables = make_tables(seed)
        self.dense = torch.nn.Linear(3, 1)


def make_tables(seed: int = 0) -> EmbeddingTables:
    """Records with and without padding, a slot of one number a row, a name with a dot."""
    tables = [TableConfig("a.b", 5, 3, Adam()), TableConfig("forward", 7, 16, RowWiseAdagrad())]
    return EmbeddingTables(
        EmbeddingConfig(tables, [FeatureConfig(table.name, table.name, [2]) for table in tables]), seed=seed
    )


KEYS = ["a.b.parameters", "forward.parameters", "a.b.momenta", "a.b.velocities", "forward.accumulators"]


def test_state_is_the_memory_of_the_engine() -> None:
    tables = make_tables()
    assert list(tables.state_dict()) == KEYS
    for name in ("a.b", "forward"):
        for variable, view in tables.engine.views(name).items():
            tensor = tables.state_dict()[f"{name}.{variable}"]
            assert tensor.data_ptr() == address(view)
            np.testing.assert_array_equal(tensor.numpy(), tables.engine.retrieve(name)[variable])
            tensor[1] = 7
            assert (tables.engine.retrieve(name)[variable][1] == 7).all()


def test_state_lives_and_a_clone_stays() -> None:
    tables = small_tables()
    live = tables.state_dict()["t.parameters"]
    kept = live.clone()
    tables(ids(1, 1))["f"].sum().backward()
    assert live.tolist() == rows(tables) != kept.tolist()


def test_tables_are_parameters_that_no_optimizer_of_the_dense_part_changes() -> None:
    model = Model()
    assert [name for name, _ in model.named_parameters()][:2] == ["tables.a.b.parameters", "tables.forward.parameters"]
    before = state(model.tables.engine)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.5)
    activations = model.tables({"a.b": torch.tensor([1, 1]), "forward": torch.tensor([1, 1])})
    model.dense(activations["a.b"].detach()).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert_same_bits(state(model.tables.engine), before)


def test_initialising_a_parameter_initialises_the_table() -> None:
    tables = make_tables()
    for parameter in tables.parameters():
        torch.nn.init.constant_(parameter, 0.5)
    assert (tables.engine.retrieve("a.b")["parameters"] == 0.5).all()
    assert (tables.engine.retrieve("a.b")["momenta"] == 0).all()


def test_a_model_is_saved_and_loaded_bit_for_bit() -> None:
    model, other = Model(), Model(seed=1)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert_same_bits(state(other.tables.engine), state(model.tables.engine))


def test_a_file_holds_every_record_once() -> None:
    tables = EmbeddingTables(EmbeddingConfig([TableConfig("t", 20_000, 16, Adam())], [FeatureConfig("f", "t", [2])]))
    file = io.BytesIO()
    torch.save(tables.state_dict(), file)
    assert file.tell() < 1.01 * 20_000 * 3 * 16 * 4


def test_training_goes_on_after_loading_as_if_there_had_been_no_stop() -> None:
    first, second = small_tables(Adagrad(learning_rate=0.5)), small_tables(Adagrad(learning_rate=0.5), seed=1)
    first(ids(1, 2))["f"].square().sum().backward()
    second.load_state_dict(first.state_dict())
    for tables in (first, second):
        tables(ids(1, 3))["f"].square().sum().backward()
    assert_same_bits(state(first.engine), state(second.engine))


def test_loading_copies_what_other_dtypes_hold_and_keeps_the_memory() -> None:
    tables = make_tables()
    before = {key: tensor.data_ptr() for key, tensor in tables.state_dict().items()}
    tables.load_state_dict({key: torch.full_like(t, 2, dtype=torch.bfloat16) for key, t in tables.state_dict().items()})
    assert (tables.engine.retrieve("a.b")["velocities"] == 2).all()
    tables.load_state_dict({key: torch.ones_like(t) for key, t in tables.state_dict().items()}, assign=True)
    assert (tables.engine.retrieve("forward")["accumulators"] == 1).all()
    assert {key: tensor.data_ptr() for key, tensor in tables.state_dict().items()} == before


def test_a_part_may_be_loaded() -> None:
    tables = make_tables()
    before = state(tables.engine)
    outcome = tables.load_state_dict({"a.b.momenta": torch.ones(5, 3), "else": torch.ones(1)}, strict=False)
    assert outcome.unexpected_keys == ["else"]
    assert outcome.missing_keys == [key for key in KEYS if key != "a.b.momenta"]
    before["a.b"]["momenta"][:] = 1
    assert_same_bits(state(tables.engine), before)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"a.b.parameters": None}, "Missing key.*a.b.parameters"),
    "unexpected": ({"a.b.linears": torch.ones(5, 3)}, "Unexpected key.*a.b.linears"),
    "another shape": ({"forward.parameters": torch.ones(6, 16)}, r"must be a tensor of shape \[7, 16\], got \[6, 16\]"),
    "no tensor": ({"a.b.momenta": 3}, r"a.b.momenta must be a tensor of shape \[5, 3\], got 3"),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_a_refused_load_changes_nothing(problem: str) -> None:
    change, message = REFUSED[problem]
    tables = make_tables()
    before = state(tables.engine)
    values = {key: torch.ones_like(tensor) for key, tensor in tables.state_dict().items()} | change
    with pytest.raises(RuntimeError, match=message):
        tables.load_state_dict({key: value for key, value in values.items() if value is not None})
    assert_same_bits(state(tables.engine), before)


def test_a_load_of_another_shape_is_refused_as_part_of_a_model_too() -> None:
    model = Model()
    before = state(model.tables.engine)
    values = {key: torch.ones_like(tensor) for key, tensor in model.state_dict().items()}
    values["tables.a.b.momenta"] = torch.ones(4, 3)
    with pytest.raises(RuntimeError, match=r"tables.a.b.momenta must be a tensor of shape \[5, 3\]"):
        model.load_state_dict(values, strict=False)
    assert_same_bits(state(model.tables.engine), before)


def test_hooks_see_what_is_loaded() -> None:
    tables = make_tables()

    def rename(module: Any, state_dict: dict[str, Any], *_: Any) -> None:
        state_dict["a.b.momenta"] = state_dict.pop("a.b.m")

    tables.register_load_state_dict_pre_hook(rename)
    tables.load_state_dict({"a.b.m": torch.ones(5, 3)}, strict=False)
    assert (tables.engine.retrieve("a.b")["momenta"] == 1).all()


@pytest.mark.parametrize("move", ["half", "double", "bfloat16", "to_meta", "to_empty"])
def test_tables_stay_where_a_model_does_not(move: str) -> None:
    model = Model()
    moves = {"to_meta": lambda: model.to("meta"), "to_empty": lambda: model.to_empty(device="cpu")}
    pointers = {key: tensor.data_ptr() for key, tensor in model.tables.state_dict().items()}
    before = state(model.tables.engine)
    moves.get(move, lambda: getattr(model, move)())()
    assert {key: tensor.data_ptr() for key, tensor in model.tables.state_dict().items()} == pointers
    assert_same_bits(state(model.tables.engine), before)
    features = {"a.b": torch.tensor([1, 1]), "forward": torch.tensor([1, 1])}
    assert model.tables(features)["a.b"].dtype == torch.float32


def test_tables_are_neither_shared_nor_replicated_nor_copied() -> None:
    model = Model()
    with pytest.raises(AnycoreError, match="cannot be shared among processes"):
        model.share_memory()
    parallel: Any = torch.nn.DataParallel(model)
    parallel.device_ids, parallel.src_device_obj = [0, 1], torch.device("cuda:0")  # as where there are two GPUs
    with pytest.raises(RuntimeError, match="must have its parameters and buffers on device cuda:0"):
        parallel({})
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps, lambda tables: torch.save(tables, io.BytesIO())):
        with pytest.raises(TypeError, match="EmbeddingTables cannot be copied or pickled"):
            attempt(model.tables)
    with pytest.raises(TypeError, match="EmbeddingTables cannot be copied or pickled"):
        copy.deepcopy(model)
