"""Whether configs are the same in every process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from shared_engines import in_processes, unless_raised

from anycore import EmbeddingConfig, FeatureConfig, TableConfig
from anycore.agreement import agree_on_config
from anycore.errors import ConfigError
from anycore.optimizers import Adagrad
from anycore.transport import Transport


def constant(value: Any, rows: NDArray[np.int64], dimension: int) -> Any:
    return np.full((len(rows), dimension), value, np.float32)


def closure(value: Any) -> Any:
    return lambda rows, dimension: constant(value, rows, dimension)


def closure_of_itself(value: Any) -> Any:
    def initializer(rows: NDArray[np.int64], dimension: int) -> Any:
        return constant(value, rows, dimension) if len(rows) == 1 else [initializer(row, dimension) for row in rows]

    return initializer


def with_default(value: Any) -> Any:
    return lambda rows, dimension, chosen=value: constant(chosen, rows, dimension)


def with_keyword(value: Any) -> Any:
    return lambda rows, dimension, *, chosen=value: constant(chosen, rows, dimension)


def with_empty_cell(value: Any) -> Any:
    if value is None:
        later = value
    return partial(constant, [value, lambda rows, dimension: constant(later, rows, dimension)])


class Method:
    """Compared by the names of class and method."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def rows(self, rows: NDArray[np.int64], dimension: int) -> Any:
        return constant(self.value, rows, dimension)


HOLDERS = {
    "partial": lambda value: partial(constant, value),
    "keyword of partial": lambda value: partial(constant, value=value),
    "closure": closure,
    "closure of itself": closure_of_itself,
    "default": with_default,
    "keyword-only default": with_keyword,
    "function in a closure": lambda value: closure(closure(value)),
    "array": lambda value: closure(np.append(np.zeros(5000), value)),
    "object array": lambda value: closure(np.array([{"value": value}], object)),
    "dictionary": lambda value: closure({Method: value}),
    "empty cell": with_empty_cell,
}


def configured(initializer: Any, transport: Transport) -> None:
    table = TableConfig("t", 4, 2, Adagrad(), initializer=initializer)
    agree_on_config(transport, EmbeddingConfig([table], [FeatureConfig("f", "t", [2])]), 0)


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
def test_functions_that_hold_other_values_are_told_apart(holder: Callable[[Any], Any]) -> None:
    def program(transport: Transport) -> None:
        configured(holder(3.0), transport)
        with pytest.raises(ConfigError, match=r"process 1 has ['\"]config\.tables\[0\]\.initializer\."):
            configured(holder(float(transport.rank)), transport)

    unless_raised(in_processes(2, program))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda rows, dimension: np.zeros((len(rows), dimension)), lambda rows, dimension: np.ones((len(rows), 2))),
        (lambda rows, dimension: constant(1.0, rows, 2), lambda rows, dimension: constant(2.5, rows, 2)),
        (
            lambda rows, dimension: [(lambda: 1000)() for _ in rows],
            lambda rows, dimension: [(lambda: 1001)() for _ in rows],
        ),
    ],
    ids=["names", "constants", "constants of inner functions"],
)
def test_functions_of_the_same_name_that_do_other_things_are_told_apart(one: Any, other: Any) -> None:
    def program(transport: Transport) -> None:
        with pytest.raises(ConfigError, match=r"initializer\.__code__\.co_"):
            configured(other if transport.rank else one, transport)

    unless_raised(in_processes(2, program))


@pytest.mark.parametrize("holds", [object, threading.Lock, lambda: Method(1).rows, lambda: np, np.random.default_rng])
def test_where_something_is_in_memory_makes_no_difference(holds: Callable[[], Any]) -> None:
    unless_raised(in_processes(2, lambda transport: configured(closure(holds()), transport)))


def test_the_order_of_a_set_makes_no_difference() -> None:
    def program(transport: Transport) -> None:
        chosen = [8, 16, 0] if transport.rank else [16, 0, 8]  # these collide
        configured(closure(set(chosen)), transport)

    unless_raised(in_processes(2, program))
