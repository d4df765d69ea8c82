"""Ids and weights as Keras has them: tensors of a backend on one side, inputs of the engine on the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anycore.batch import Dense, Ragged, Sparse
from anycore.config import TableConfig
from anycore.errors import InputError

PADDING = -1
"""In a dense array this is no id."""

_EXACT = {"float16": 1 << 11, "float32": 1 << 24, "int32": 1 << 31}
"""The largest vocabulary whose ids are all different in a dtype that Keras turns ids into by itself."""
_2D = 2


Kind = Literal["dense", "ragged", "sparse"]


@dataclass(frozen=True)
class Tensors:
    """One feature's ids and their weights as tensors of a backend."""

    kind: Kind
    shape: tuple[int | None, ...]
    """Of the ids, with None for what is not known yet."""
    ids: Sequence[Any]
    """As `Form` says; nothing, of symbolic tensors."""
    weights: Any

    @classmethod
    def of_symbols(cls, ids: Any, weights: Any) -> Tensors:
        """Returns what is known of symbolic tensors."""
        kind: Kind = "ragged" if ids.ragged else "sparse" if ids.sparse else "dense"
        return cls(kind, tuple(ids.shape), [], weights)

    @property
    def arrays(self) -> list[Any]:
        """What `Form.read` takes."""
        return [*self.ids, *([] if self.weights is None else [self.weights])]


@dataclass(frozen=True)
class Form:
    """How one feature's ids lie in a row of arrays, and where its activations go: known before the arrays are.

    The arrays are, for `dense`, ids[…]; for `ragged`, values[n] and row_splits[rows + 1]; for `sparse`, values[n],
    indices[n, 2] and the number of rows; then, if `weighted`, the weights of the ids. A dense array has the shape of
    the activations without the dimension, or one more axis, which is combined. In a row of the others the ids are
    combined, or with a `tail` are a sequence.
    """

    name: str
    kind: Kind
    shape: tuple[int | None, ...]
    weighted: bool
    tail: tuple[int, ...]
    """The feature's input_shape without the batch."""
    table: TableConfig

    @property
    def num_arrays(self) -> int:
        """Number of arrays that it reads."""
        return {"dense": 1, "ragged": 2, "sparse": 3}[self.kind] + self.weighted

    @property
    def activation_shape(self) -> tuple[int | None, ...]:
        """The shape of the activations, with None for what is not known yet."""
        return (*self.cells(self.shape), self.table.dimension)

    def cells(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the activations without the dimension, of ids of a shape.

        Raises: InputError when such ids do not fit the feature.
        """
        rank = 1 + len(self.tail)
        if self.kind != "dense":
            if len(shape) != _2D or rank > _2D:
                raise InputError(
                    f"feature {self.name!r}: {self.kind} ids must have shape [batch, ids], and input_shape be [batch] "
                    f"or [batch, sequence], got {list(shape)} and {['batch', *self.tail]}"
                )
            return (shape[0], *self.tail)
        fits = all(size in (None, expected) for size, expected in zip(shape[1:rank], self.tail, strict=False))
        if len(shape) not in (rank, rank + 1) or not fits:
            axes = ["batch", *map(str, self.tail)]
            raise InputError(
                f"feature {self.name!r}: ids must have shape [{', '.join(axes)}], or [{', '.join([*axes, 'ids'])}] to "
                f"combine the last axis, got {list(shape)}"
            )
        return (shape[0], *self.tail)

    def read(self, arrays: Sequence[Any]) -> tuple[Any, tuple[int, ...]]:
        """Returns the engine's input, and the cells of its activations. Raises: InputError when they do not fit."""
        ids, weights = self._integers(arrays[0]), arrays[-1] if self.weighted else None
        if self.kind == "dense":
            return self._read_dense(ids, weights)
        if self.kind == "ragged":
            splits = np.asarray(arrays[1])
            num_rows = len(splits) - 1
            if not self.tail:
                return Ragged(splits, ids, weights), (num_rows,)
            rows = np.repeat(np.arange(num_rows), np.diff(splits))
            positions = np.arange(len(ids)) - splits[rows]
        else:
            indices, num_rows = np.asarray(arrays[1]), int(arrays[2])
            if not self.tail:
                return Sparse(indices, ids, weights), (num_rows,)
            rows, positions = indices.T
        (length,) = self.tail
        kept = positions < length
        cells = (rows * length + positions)[kept]
        return Sparse(cells, ids[kept], None if weights is None else weights[kept]), (num_rows, length)

    def _read_dense(self, ids: NDArray[Any], weights: Any) -> tuple[Any, tuple[int, ...]]:
        cells: tuple[Any, ...] = self.cells(ids.shape)
        combined = ids.ndim > len(cells)
        if weights is not None and weights.shape != ids.shape:
            raise InputError(
                f"feature {self.name!r}: weights must have the shape of the ids, {list(ids.shape)}, "
                f"got {list(weights.shape)}"
            )
        present = ids != PADDING
        if combined or not present.all():
            width = ids.shape[-1] if combined else 1
            rows = np.repeat(np.arange(ids.size // max(1, width)), width)[present.ravel()]
            return Sparse(rows, ids[present], None if weights is None else weights[present]), cells
        return Dense(ids, weights), cells

    def _integers(self, ids: Any) -> NDArray[Any]:
        ids = np.asarray(ids)
        # What Keras has made of ids on the way here cannot be seen in them.
        if self.table.vocabulary_size > _EXACT.get(ids.dtype.name, math.inf):
            raise InputError(
                f"feature {self.name!r}: {ids.dtype} does not hold every id below {self.table.vocabulary_size}; say "
                "keras.Input(..., dtype='int64'), with JAX jax.config.update('jax_enable_x64', True) too"
            )
        if ids.dtype.kind != "f":
            return ids
        integers = ids.astype(np.int64)
        if (integers != ids).any():
            raise InputError(f"feature {self.name!r}: ids must be whole numbers, got {ids[integers != ids].flat[0]}")
        return integers
