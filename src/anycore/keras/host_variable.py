"""What an engine trains, in the list of a layer's weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class HostVariable:
    """A state variable of a table, or the number of updates, as `layer.weights` lists it: to be read and assigned.

    With it `get_weights`, `set_weights`, `count_params` and `summary` know the tables, and so do the callbacks that use
    them, as EarlyStopping does for the best weights. It is no Keras variable and not in `layer.variables`, which a
    backend hands through its steps.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], NDArray[Any]]
    """Returns a copy."""
    assign: Callable[[Any], None]
    """Overwrites it with an array of its shape."""
    trainable: bool = False
    """Nothing that Keras differentiates by."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[-1]

    def numpy(self) -> NDArray[Any]:
        """Returns a copy."""
        return self.read()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.read(), dtype)
