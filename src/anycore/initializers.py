"""Starting values of tables.

A value depends on the seed, the table's name, the row id and the column, and on nothing else: not on sharding, threads
or machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from math import sqrt
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from anycore.errors import ConfigError, InputError
from anycore.kernels import initialize

_LARGEST = float(np.finfo(np.float32).max)

Rows = NDArray[np.float32]
"""float32[R, D], values of a row side by side, rows any distance apart; owned by the caller."""


@runtime_checkable
class Initializer(Protocol):
    """Writes the starting values of rows; several threads may fill different rows at once."""

    def fill(self, parameters: Rows, first_row: int, seed: int, table_name: str, row_step: int = 1) -> None:
        """Overwrites `parameters`: its row i gets the values of row id `first_row + i·row_step`."""


@dataclass(frozen=True)
class Constant:
    """Every value is `value`."""

    value: float

    def __post_init__(self) -> None:
        _require_float32(self)

    def fill(self, parameters: Rows, first_row: int, seed: int, table_name: str, row_step: int = 1) -> None:
        """Overwrites `parameters` with `value`."""
        _run(initialize.constant, parameters, first_row, seed, table_name, row_step, self.value)


@dataclass(frozen=True)
class Uniform:
    """Every value between `low` and `high` is equally likely, on a grid of 2²⁴ steps; both ends may occur.

    Raises:
        ConfigError: a bound is not a finite float32, or `low` is above `high`.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _require_float32(self)
        if self.low > self.high:
            raise ConfigError(f"{self}: low must not be above high")

    def fill(self, parameters: Rows, first_row: int, seed: int, table_name: str, row_step: int = 1) -> None:
        """Overwrites `parameters`: its row i gets the values of row id `first_row + i·row_step`."""
        _run(initialize.uniform, parameters, first_row, seed, table_name, row_step, self.low, self.high)


@dataclass(frozen=True)
class TruncatedNormal:
    """Normally distributed values, those beyond two standard deviations drawn anew.

    `stddev` is that of the distribution before truncation; the values' own is 0.8796 of it.

    Raises:
        ConfigError: a parameter is not a finite float32, or `stddev` is negative.
    """

    mean: float = 0.0
    stddev: float = 1.0

    def __post_init__(self) -> None:
        _require_float32(self)
        if self.stddev < 0:
            raise ConfigError(f"{self}: stddev must not be negative")

    def fill(self, parameters: Rows, first_row: int, seed: int, table_name: str, row_step: int = 1) -> None:
        """Overwrites `parameters`: its row i gets the values of row id `first_row + i·row_step`."""
        _run(initialize.truncated_normal, parameters, first_row, seed, table_name, row_step, self.mean, self.stddev)


@dataclass(frozen=True)
class RowFunction:
    """Values are what `function(rows, dimension)` returns: float32[n, dimension] for the row ids int64[n].

    The function may be called with any ids, in any order and from several threads; it has to depend on the ids alone.
    """

    function: Callable[[NDArray[np.int64], int], Any]

    def fill(self, parameters: Rows, first_row: int, seed: int, table_name: str, row_step: int = 1) -> None:
        """Overwrites `parameters`: its row i gets the values of row id `first_row + i·row_step`.

        Raises:
            ConfigError: the function returned another shape.
        """
        rows, dimension = parameters.shape
        values = np.asarray(self.function(first_row + row_step * np.arange(rows, dtype=np.int64), dimension))
        if values.shape != parameters.shape:
            raise ConfigError(
                f"table {table_name!r}: initializer must return shape {parameters.shape} for {rows} rows, "
                f"got {values.shape} (TableConfig.initializer)"
            )
        parameters[:] = values


def resolve(
    initializer: Initializer | Callable[[NDArray[np.int64], int], Any] | None, table_name: str, dimension: int
) -> Initializer:
    """Returns the initializer that a table's configuration means; None is a truncated normal with stddev 1/√dimension.

    Raises:
        ConfigError: `initializer` is neither an initializer nor callable.

    Source: `tf.tpu.experimental.embedding.TableConfig`, TensorFlow 2.21 (the default).
    """
    if initializer is None:
        return TruncatedNormal(0.0, 1 / sqrt(dimension))
    if isinstance(initializer, Initializer):
        return initializer
    if callable(initializer):
        return RowFunction(initializer)
    raise ConfigError(
        f"table {table_name!r}: initializer must be Constant, Uniform, TruncatedNormal, a function of (rows, "
        f"dimension) or None, got {initializer!r} (TableConfig.initializer)"
    )


def _require_float32(initializer: Constant | Uniform | TruncatedNormal) -> None:
    for name, value in vars(initializer).items():
        if not abs(value) <= _LARGEST:
            raise ConfigError(f"{initializer}: {name} must be a finite float32")


def _run(
    kernel: Callable[..., None],
    parameters: Rows,
    first_row: int,
    seed: int,
    table_name: str,
    row_step: int,
    *settings: float,
) -> None:
    """Lets a kernel fill `parameters` with the key of (seed, table_name)."""
    if parameters.dtype != np.float32 or not parameters[:1].flags.c_contiguous:
        raise InputError(
            f"table {table_name!r}: parameters must be float32 with the values of a row side by side, "
            f"got {parameters.dtype} with strides {parameters.strides}"
        )
    rows, dimension = parameters.shape
    key = int.from_bytes(blake2b(f"{seed}:{table_name}".encode(), digest_size=8).digest(), "little")
    kernel(
        parameters.ctypes.data,
        parameters.strides[0],
        rows,
        dimension,
        np.uint64(key),
        first_row,
        row_step,
        *map(np.float32, settings),
    )
