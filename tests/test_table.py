from __future__ import annotations

import ctypes
import math
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import anycore.table
from anycore.config import TableConfig
from anycore.errors import ConfigError, InputError
from anycore.initializers import Constant, TruncatedNormal
from anycore.optimizers import OPTIMIZERS, Adagrad, Adam, Optimizer, Slot, StochasticGradientDescent
from anycore.table import Table

SEED = 11


@dataclass(frozen=True, kw_only=True)
class ByRow(Optimizer):
    """Has one accumulator a row beside one number a column."""

    slots = (Slot("accumulators", 0.5, per_row=True), Slot("momenta"))
    wire_name = "user_defined_program"


def table(optimizer: Optimizer | None = None, rows: int = 50, dimension: int = 5, initializer: Any = None) -> Table:
    return Table(TableConfig("user", rows, dimension, optimizer or Adagrad(), initializer=initializer))


def initialised(rows: int = 50, dimension: int = 5, initializer: Any = None) -> Table:
    made = table(Adagrad(), rows, dimension, initializer)
    for job in made.initialise(SEED):
        job()
    return made


# Memory


@pytest.mark.parametrize("optimizer", [StochasticGradientDescent(), Adagrad(), Adam()], ids=lambda o: o.wire_name)
def test_records_are_padded_to_cache_lines_where_that_is_cheap(optimizer: Optimizer) -> None:
    padded_widths = 0
    for dimension in range(1, 140):
        _, stride, *_ = table(optimizer, 3, dimension).descriptor()
        width = 4 * dimension * len(optimizer.state_variables)
        whole_lines = math.ceil(width / 64) * 64
        assert stride == (whole_lines if whole_lines <= 1.1 * width else width)
        padded_widths += stride > width
    assert padded_widths > 10


@pytest.mark.parametrize("rows", [1, 2, 1000])
@pytest.mark.parametrize("dimension", [1, 15, 16, 31, 64, 130])
def test_records_start_at_a_cache_line(rows: int, dimension: int) -> None:
    tables = [table(Adagrad(), rows, dimension) for _ in range(5)]
    assert [t.descriptor()[0] % 64 for t in tables] == [0] * 5


def test_descriptor_says_where_the_state_variables_are() -> None:
    made = table(Adam(), rows=3, dimension=5)
    address, stride, dimension, rows = made.descriptor()
    assert (stride, dimension, rows) == (64, 5, 3)
    for k, variable in enumerate(made.state_variables):
        made.view(variable)[:] = 100 * k + np.arange(15).reshape(3, 5)
    for row in range(3):
        record = np.array((ctypes.c_float * 15).from_address(address + row * stride))
        expected = [100 * k + 5 * row + d for k in range(3) for d in range(5)]
        assert record.tolist() == expected


def test_view_is_the_table_itself() -> None:
    made = initialised()
    parameters = made.view("parameters")
    assert parameters.shape == (50, 5) and parameters.dtype == np.float32
    parameters[7, 2] = 42
    assert made.view("parameters")[7, 2] == 42
    assert np.shares_memory(parameters, made.view("parameters"))
    assert (made.view("accumulators") == np.float32(0.1)).all()


def test_a_slot_per_row_is_one_number_wide() -> None:
    made = table(ByRow(), rows=3, dimension=7)
    address, stride, *_ = made.descriptor()
    assert stride == 64  # 7 + 1 + 7 floats and one of padding
    for job in made.initialise(SEED):
        job()
    assert [made.view(name).shape for name in made.state_variables] == [(3, 7), (3, 1), (3, 7)]
    assert (made.view("accumulators") == 0.5).all()
    record = np.array((ctypes.c_float * 15).from_address(address + stride))
    np.testing.assert_array_equal(record, [*made.view("parameters")[1], 0.5, *made.view("momenta")[1]])
    made.checked({"accumulators": np.zeros((2, 1)), "momenta": np.zeros((2, 7))}, 2)
    with pytest.raises(InputError, match=r"accumulators must have shape \(2, 1\), got \(2, 7\)"):
        made.checked({"accumulators": np.zeros((2, 7))}, 2)


@pytest.mark.parametrize(
    ("rows", "dimension"),
    [(2**62, 16), (2**46, 1 << 14)],
    ids=["more bytes than a number holds", "more than any machine has"],
)
def test_a_table_that_memory_cannot_hold(rows: int, dimension: int) -> None:
    gibibytes = f"{rows * dimension * 2 * 4 / 2**30:,.1f}"
    with pytest.raises(
        ConfigError, match=rf"^table 'user': no memory for {gibibytes} GiB: {rows} rows of {dimension} x 2"
    ):
        table(Adagrad(), rows, dimension)


# Starting values


@pytest.mark.parametrize("optimizer", [o for name, o in OPTIMIZERS.items() if name != "user_defined_program"])
def test_slots_start_from_their_initial_values(optimizer: type[Optimizer]) -> None:
    made = table(optimizer(), dimension=optimizer.only_dimension or 5, initializer=Constant(0.25))
    for variable in made.state_variables:
        made.view(variable)[:] = np.nan
    for job in made.initialise(SEED):
        job()
    assert (made.view("parameters") == 0.25).all()
    for slot in optimizer.slots:
        assert (made.view(slot.name) == np.float32(slot.initial_value)).all()


@pytest.mark.parametrize("chunk", [1, 7, 50, 1000])
@pytest.mark.parametrize("dimension", [5, 15])
def test_starting_values_depend_on_no_cut_and_no_order(
    monkeypatch: pytest.MonkeyPatch, chunk: int, dimension: int
) -> None:
    expected = np.empty((50, dimension), np.float32)
    TruncatedNormal(0.0, 1 / math.sqrt(dimension)).fill(expected, 0, SEED, "user")
    np.testing.assert_array_equal(initialised(dimension=dimension).view("parameters"), expected)
    monkeypatch.setattr(anycore.table, "_FILL_ROWS", chunk)
    made = table(dimension=dimension)
    jobs = list(made.initialise(SEED))
    assert len(jobs) == math.ceil(50 / chunk)
    random.Random(0).shuffle(jobs)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda job: job(), jobs))
    np.testing.assert_array_equal(made.view("parameters"), expected)
    assert (made.view("accumulators") == np.float32(0.1)).all()


def test_a_big_table_is_initialised_in_several_jobs() -> None:
    """The default cut leaves no row out."""
    rows = 40_000
    made = table(rows=rows, dimension=1, initializer=lambda ids, dimension: ids[:, None])
    made.view("parameters")[:] = np.nan
    jobs = list(made.initialise(SEED))
    assert len(jobs) > 1
    for job in jobs:
        job()
    np.testing.assert_array_equal(made.view("parameters")[:, 0], np.arange(rows))


def test_seed_and_name_determine_the_values() -> None:
    def parameters(name: str, seed: int) -> Any:
        made = Table(TableConfig(name, 50, 5, Adagrad()))
        for job in made.initialise(seed):
            job()
        return made.view("parameters")

    np.testing.assert_array_equal(parameters("user", 1), parameters("user", 1))
    assert (parameters("user", 1) != parameters("user", 2)).all()
    assert (parameters("user", 1) != parameters("movie", 1)).all()


# What is loaded


def test_checked_gives_float32_arrays() -> None:
    made = table()
    values = np.arange(15.0).reshape(3, 5)
    arrays = made.checked({"accumulators": values.tolist(), "parameters": values.T.copy().T}, 3)
    assert list(arrays) == ["accumulators", "parameters"]
    for array in arrays.values():
        assert array.dtype == np.float32 and array.flags.c_contiguous
        np.testing.assert_array_equal(array, values)
    assert made.checked({}, 3) == {}


@pytest.mark.parametrize(
    ("state_variables", "message"),
    [
        (
            {"momenta": np.zeros((3, 5))},
            "there is no state variable 'momenta', adagrad has parameters, accumulators",
        ),
        ({"parameters": np.zeros((3, 4))}, r"parameters must have shape \(3, 5\), got \(3, 4\)"),
        ({"parameters": np.zeros((50, 5))}, r"parameters must have shape \(3, 5\), got \(50, 5\)"),
        ({"parameters": np.zeros((3, 5)), "accumulators": np.zeros(15)}, r"accumulators must have .*got \(15,\)"),
        ({"parameters": np.zeros((3, 5, 1))}, r"parameters must have .*got \(3, 5, 1\)"),
        ({"parameters": 1.0}, r"parameters must have shape \(3, 5\), got \(\)"),
        ({"accumulators": np.zeros((3, 5), complex)}, "accumulators must be real numbers, got complex128"),
        ({"accumulators": [["x"] * 5] * 3}, "accumulators must be real numbers, got <U1"),
        ({"accumulators": [[1], [1, 2]]}, "accumulators: cannot be read as an array"),
    ],
)
def test_checked_refuses(state_variables: dict[str, Any], message: str) -> None:
    made = initialised()
    before = made.view("parameters").copy()
    with pytest.raises(InputError, match=f"^table 'user': {message}"):
        made.checked(state_variables, 3)
    np.testing.assert_array_equal(made.view("parameters"), before)
