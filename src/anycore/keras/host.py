"""The engine of a layer, called with NumPy arrays from inside a backend's step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from anycore.config import TableConfig
from anycore.engine import EmbeddingEngine
from anycore.keras.host_variable import HostVariable
from anycore.keras.inputs import Form
from anycore.keras.layer_config import LayerConfig

Array = NDArray[np.float32]
Cells = Sequence[tuple[int, ...]]


class Host:
    """An engine that takes batches of any size, its forward and backward passes apart.

    A forward pass looks up and leaves nothing behind; a backward pass brings ids and gradients together. So one without
    the other, or an evaluation between the two, does no harm.
    """

    def __init__(self, layer_config: LayerConfig, seed: int, wait: Callable[[], None]) -> None:
        self._engine = EmbeddingEngine(layer_config.config, seed=seed)
        self._rates = layer_config.rates
        self._wait = wait
        self._lock = threading.Lock()
        self._updates = 0
        for table in layer_config.config.tables:
            for name, start in layer_config.starts.get(table.name, {}).items():
                shape = _shapes(table)[name]
                values = start(shape, dtype="float32") if callable(start) else np.full(shape, start)
                self._engine.load(table.name, {name: keras.ops.convert_to_numpy(values)})

    def settled_engine(self) -> EmbeddingEngine:
        """Returns the engine, once no backend has anything to do with it any more."""
        self._wait()
        return self._engine

    def updates(self) -> int:
        """Returns the number of updates so far."""
        self._wait()
        return self._updates

    def set_updates(self, value: Any) -> None:
        """Sets the number of updates."""
        self._wait()
        self._updates = int(value)

    def variables(self) -> list[HostVariable]:
        """Returns all state variables by table, `parameters` first, then the number of updates."""
        tables = [
            HostVariable(
                f"{table.name}/{name}",
                shape,
                "float32",
                partial(self._read, table.name, name),
                partial(self._write, table.name, name),
            )
            for table in self._engine.config.tables
            for name, shape in _shapes(table).items()
        ]
        return [*tables, HostVariable("updates", (), "int64", lambda: np.array(self.updates()), self.set_updates)]

    def _read(self, table: str, name: str) -> Array:
        return self.settled_engine().retrieve(table)[name]

    def _write(self, table: str, name: str, value: Any) -> None:
        self.settled_engine().load(table, {name: np.asarray(value)})

    def look_up(self, inputs: Sequence[Any], cells: Cells) -> tuple[Sequence[Array], int]:
        """Returns the activations, float32 [*cells, dimension], the caller's, and the number of updates before."""
        with self._lock:
            self._reshape(cells)
            return self._engine.look_up(inputs), self._updates

    def update(self, inputs: Sequence[Any], cells: Cells, gradients: Sequence[Any], rates: Sequence[float]) -> None:
        """Updates the tables with the gradients of the activations of `inputs`, and what Keras knew of the rates."""
        with self._lock:
            now = [rate.after(value, self._updates + 1) for rate, value in zip(self._rates, rates, strict=True)]
            self._reshape(cells)
            self._engine.update(inputs, gradients, now)
            self._updates += 1

    def _reshape(self, cells: Cells) -> None:
        if [feature.input_shape for feature in self._engine.config.features] != list(cells):
            self._engine.reshape(cells)


def _shapes(table: TableConfig) -> dict[str, tuple[int, int]]:
    widths = {"parameters": table.dimension}
    widths.update({slot.name: 1 if slot.per_row else table.dimension for slot in table.optimizer.slots})
    return {name: (table.vocabulary_size, width) for name, width in widths.items()}


@dataclass(frozen=True)
class Call:
    """What a backend runs on the host for a call of the layer; all arguments and results are NumPy's."""

    host: Host
    forms: Sequence[Form]

    @property
    def shapes(self) -> list[tuple[int | None, ...]]:
        """The shapes of the activations, with None for what is not known yet."""
        return [form.activation_shape for form in self.forms]

    def look_up(self, *arrays: Any) -> list[NDArray[Any]]:
        """Returns the number of updates before, an int32 scalar, and the activations; the caller's."""
        activations, updates = self.host.look_up(*self._read(arrays))
        return [np.array(updates, np.int32), *activations]

    def update(self, rates: Any, *arrays_and_gradients: Any) -> Array:
        """Updates the tables, and returns the gradient of the layer's anchor, 0."""
        arrays, gradients = arrays_and_gradients[: -len(self.forms)], arrays_and_gradients[-len(self.forms) :]
        self.host.update(*self._read(arrays), gradients, np.asarray(rates).tolist())
        return np.zeros((), np.float32)

    def _read(self, arrays: Sequence[Any]) -> tuple[list[Any], list[tuple[int, ...]]]:
        ends = accumulate((form.num_arrays for form in self.forms), initial=0)
        pairs = [form.read(arrays[first:last]) for form, (first, last) in zip(self.forms, pairwise(ends), strict=True)]
        return [inputs for inputs, _ in pairs], [cells for _, cells in pairs]
