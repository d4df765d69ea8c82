"""A config as the numbers that a step needs: activations, where each stands in a batch, and learning rate tags.

A batch is one list of sample rows, the rows of a table side by side, so that a table is a range of it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from anycore.config import EmbeddingConfig


@dataclass(frozen=True)
class Activation:
    """One array that `receive_activations` returns: of a feature, or in table mode of a table."""

    name: str
    table: int
    input_shape: tuple[int, ...]
    """Its shape on one core without the dimension."""
    dimension: int
    first_sample: int
    """Its first sample row in the batch."""

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Its shape on one core."""
        return (*self.input_shape, self.dimension)

    @cached_property
    def num_samples(self) -> int:
        """Number of its sample rows."""
        return math.prod(self.input_shape)


@dataclass(frozen=True)
class Plan:
    """What follows from a config.

    Source: completion of missing fields as `PopulateMissingFieldsInTPUEmbeddingConfig`, TensorFlow 2.21.
    """

    config: EmbeddingConfig

    @cached_property
    def activations(self) -> tuple[Activation, ...]:
        """Activations in wire order: of the features, or in table mode of the tables."""
        shapes = self._input_shapes()
        first_samples = [0] * len(shapes)
        position = 0
        for index in sorted(range(len(shapes)), key=lambda index: shapes[index][1]):
            first_samples[index] = position
            position += math.prod(shapes[index][2])
        return tuple(
            Activation(name, table, shape, self.config.tables[table].dimension, first_sample)
            for (name, table, shape), first_sample in zip(shapes, first_samples, strict=True)
        )

    @cached_property
    def sample_offsets(self) -> np.ndarray:
        """int64[T + 1]: table t owns the sample rows sample_offsets[t] … sample_offsets[t + 1] of a batch."""
        samples = np.zeros(len(self.config.tables) + 1, np.int64)
        for activation in self.activations:
            samples[activation.table + 1] += activation.num_samples
        return np.cumsum(samples)

    @cached_property
    def activation_samples(self) -> np.ndarray:
        """int64[A, 3]: table, first and last sample row of each activation."""
        return np.array([(a.table, a.first_sample, a.first_sample + a.num_samples) for a in self.activations], np.int64)

    @cached_property
    def activation_floats(self) -> tuple[int, ...]:
        """The first float of each activation where all lie one after another, and the number of floats of all."""
        return (0, *itertools.accumulate(a.num_samples * a.dimension for a in self.activations))

    @cached_property
    def batch_size_per_tensor_core(self) -> int:
        """Samples per core: as given, or in feature mode the greatest common divisor of the features' sizes."""
        if not self.config.features:
            return self.config.batch_size_per_tensor_core
        return math.gcd(*(activation.num_samples for activation in self.activations))

    @cached_property
    def num_features(self) -> tuple[int, ...]:
        """Activation rows per sample of each table."""
        return tuple(int(samples) // self.batch_size_per_tensor_core for samples in np.diff(self.sample_offsets))

    @cached_property
    def num_tags(self) -> int:
        """Number of dynamic learning rates that every step delivers."""
        return len(set().union(*(table.optimizer.tags for table in self.config.tables)))

    def _input_shapes(self) -> list[tuple[str, int, tuple[int, ...]]]:
        config = self.config
        if config.features:
            return [
                (feature.name, config.table_id(feature.table), tuple(feature.input_shape))
                for feature in config.features
            ]
        return [
            (table.name, index, (config.batch_size_per_tensor_core * table.num_features,))
            for index, table in enumerate(config.tables)
        ]
