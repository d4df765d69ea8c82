"""Inputs read as the engine reads them, and what came of them in plain lists."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from anycore import EmbeddingConfig, FeatureConfig, TableConfig
from anycore.batch import IdBatch, named_inputs, read_batch
from anycore.entries import entries_of
from anycore.kernels.parallel import workers
from anycore.kernels.records import COLUMNS, DIMENSION, ROWS
from anycore.optimizers import StochasticGradientDescent
from anycore.plan import Plan


def one_feature(shape: Sequence[int], combiner: str = "sum", vocabulary_size: int = 10) -> EmbeddingConfig:
    """A feature 'f' of table 't'."""
    table = TableConfig("t", vocabulary_size, 1, StochasticGradientDescent(learning_rate=1.0), combiner)
    return EmbeddingConfig([table], [FeatureConfig("f", "t", shape)])


def read(config: EmbeddingConfig, *values: Any, threads: int = 1, **attributes: Any) -> IdBatch:
    """The batch of an enqueue call."""
    plan = Plan(config)
    names = ("table_ids", "combiners", "max_sequence_lengths", "num_features")
    given: dict[str, Any] = {"table_ids": None} | attributes
    entries = entries_of(plan, *(given.get(name, ()) for name in names))
    tables = np.zeros((len(config.tables), COLUMNS), np.int64)
    tables[:, DIMENSION] = [table.dimension for table in config.tables]
    tables[:, ROWS] = [table.vocabulary_size for table in config.tables]
    return read_batch(plan, tables, entries, named_inputs(values, entries), workers(threads))


def cells(batch: IdBatch) -> list[list[int]]:
    """The ids of every sample row."""
    return [batch.ids[first:last].tolist() for first, last in pairwise(batch.splits)]


def gains(batch: IdBatch) -> list[list[float]]:
    """The gains of every sample row of a batch with one table."""
    values = batch.gains if batch.weighted.any() else np.ones(len(batch.ids), np.float32)
    return [values[first:last].tolist() for first, last in pairwise(batch.splits)]
