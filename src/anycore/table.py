"""One table in memory, or the shard of it that this process holds: its parameters and slots, row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore.arrays import address, as_floats
from anycore.config import TableConfig
from anycore.errors import ConfigError, InputError
from anycore.initializers import Constant

_LINE_FLOATS = 16
"""Floats of a cache line."""
_MOST_PADDING = 1.1
_FILL_ROWS = 1 << 14


class Table:
    """The records [parameters | slot | …] of one table, or of the ids of a shard; owner of their memory.

    A record starts at a cache line where that costs at most a tenth more memory.
    """

    def __init__(self, config: TableConfig, ids: range | None = None) -> None:
        self.config = config
        self._ids = range(config.vocabulary_size) if ids is None else ids
        self.state_variables = config.optimizer.state_variables
        widths = [config.dimension, *(1 if slot.per_row else config.dimension for slot in config.optimizer.slots)]
        ends = np.cumsum(widths).tolist()
        self._columns = {
            name: slice(end - width, end) for name, width, end in zip(self.state_variables, widths, ends, strict=True)
        }
        width = ends[-1]
        padded = math.ceil(width / _LINE_FLOATS) * _LINE_FLOATS
        self._stride = padded if padded <= _MOST_PADDING * width else width
        self._records = self._allocate()

    def _allocate(self) -> NDArray[np.float32]:
        rows, stride = len(self._ids), self._stride
        try:
            block = np.empty(rows * stride + _LINE_FLOATS, np.float32)
        except (MemoryError, ValueError) as error:
            raise ConfigError(
                f"table {self.config.name!r}: no memory for {rows * stride * 4 / 2**30:,.1f} GiB: "
                f"{rows} rows of {self.config.dimension} x {len(self.state_variables)} state variables, use fewer "
                "(TableDescriptor.vocabulary_size)"
            ) from error
        start = -address(block) // block.itemsize % _LINE_FLOATS
        return block[start : start + rows * stride].reshape(rows, stride)

    def descriptor(self) -> tuple[int, int, int, int]:
        """Returns the table's row of `kernels.records`; valid as long as the table lives."""
        return address(self._records), self._stride * 4, self.config.dimension, len(self._ids)

    def view(self, variable: str) -> NDArray[np.float32]:
        """Returns float32[rows, dimension or 1], the state variable itself and no copy."""
        return self._records[:, self._columns[variable]]

    def initialise(self, seed: int) -> Iterable[Callable[[], None]]:
        """Returns jobs that together write every starting value; they may run in any order and thread."""
        rows = len(self._ids)
        for first in range(0, rows, _FILL_ROWS):
            yield partial(self._initialise_rows, first, min(first + _FILL_ROWS, rows), seed)

    def _initialise_rows(self, first: int, last: int, seed: int) -> None:
        first_id, name = self._ids[first], self.config.name
        self.config.initial_parameters.fill(self.view("parameters")[first:last], first_id, seed, name, self._ids.step)
        for slot in self.config.optimizer.slots:
            Constant(slot.initial_value).fill(self.view(slot.name)[first:last], first_id, seed, name)

    def checked(self, state_variables: Mapping[str, Any], rows: int) -> dict[str, NDArray[np.float32]]:
        """Returns the given state variables as float32[rows, dimension], or [rows, 1] for a slot that is per row.

        Raises: InputError for a name that the table does not have or a wrong shape.
        """
        arrays = {}
        for name, value in state_variables.items():
            if name not in self.state_variables:
                raise InputError(
                    f"table {self.config.name!r}: there is no state variable {name!r}, "
                    f"{self.config.optimizer.wire_name} has {', '.join(self.state_variables)}"
                )
            arrays[name] = as_floats(value, f"table {self.config.name!r}: {name}")
            shape = (rows, self.view(name).shape[1])
            if arrays[name].shape != shape:
                raise InputError(
                    f"table {self.config.name!r}: {name} must have shape {shape}, got {arrays[name].shape}"
                )
        return arrays
