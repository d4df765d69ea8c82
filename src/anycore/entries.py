"""Where the entries of an enqueue call go: each entry's table, its sample rows in the batch, and how it fills them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from anycore.config import COMBINERS, check_combiner
from anycore.errors import ConfigError, InputError
from anycore.plan import Activation, Plan


@dataclass(frozen=True)
class Entry:
    """One input of an enqueue call and the sample rows that are its own.

    Its cell c is sample row `first_sample + c // block * block_stride + c % block`.
    """

    name: str
    table: int
    input_shape: tuple[int, ...]
    first_sample: int
    block: int
    block_stride: int
    sequence: int
    """Length of a sequence feature, whose cells are row · length + position; 0 for a feature that is combined."""
    combiner: int
    is_table: bool = False
    """True in table mode, where a dense input fills every row."""

    @cached_property
    def is_flat(self) -> bool:
        """True when each row of an input is one cell whose ids are combined."""
        return not self.sequence and len(self.input_shape) == 1

    @cached_property
    def cells(self) -> int:
        """Number of sample rows that the entry fills."""
        return math.prod(self.input_shape)


def entries_of(
    plan: Plan,
    table_ids: tuple[int, ...] | None,
    combiners: tuple[str, ...],
    max_sequence_lengths: tuple[int, ...],
    num_features: tuple[int, ...],
) -> tuple[Entry, ...]:
    """Returns the entries that an enqueue call with these attributes must deliver, in order.

    Raises: InputError when the attributes disagree with the config or with each other.
    Source: enqueue ops of TensorFlow 2.21: `table_ids`, `combiners`, `max_sequence_lengths`, `num_features`.
    """
    in_table_mode = not plan.config.features
    if table_ids is None or not in_table_mode:
        count = len(plan.activations)
    else:
        count = len(table_ids)
    _check_count("table_ids", table_ids, count)
    _check_integers("table_ids", table_ids or ())
    lengths = _per_entry("max_sequence_lengths", max_sequence_lengths, count, 0)
    if in_table_mode:
        blocks = _per_entry("num_features", num_features, count, 1) if num_features or table_ids else plan.num_features
        return _table_mode(plan, table_ids or tuple(range(count)), combiners, lengths, blocks)
    return _feature_mode(plan, table_ids, combiners, lengths, _per_entry("num_features", num_features, count, 1))


def _feature_mode(
    plan: Plan,
    table_ids: tuple[int, ...] | None,
    combiners: tuple[str, ...],
    lengths: Sequence[int],
    num_features: Sequence[int],
) -> tuple[Entry, ...]:
    codes = _combiner_codes(plan, combiners, [activation.table for activation in plan.activations])
    entries = []
    for index, activation in enumerate(plan.activations):
        where = f"feature {activation.name!r}"
        if table_ids is not None and table_ids[index] != activation.table:
            raise InputError(
                f"{where}: table_ids[{index}] must be {activation.table} as configured, got {table_ids[index]} "
                "(FeatureDescriptor.table_id)"
            )
        if lengths[index] and lengths[index] != activation.input_shape[-1]:
            raise InputError(
                f"{where}: max_sequence_lengths[{index}] must be the last entry of input_shape "
                f"{activation.input_shape}, got {lengths[index]} (FeatureDescriptor.input_shape)"
            )
        if activation.num_samples % num_features[index]:
            raise InputError(
                f"{where}: num_features[{index}] must divide the {activation.num_samples} activation rows, "
                f"got {num_features[index]} (FeatureDescriptor.input_shape)"
            )
        entries.append(_whole(activation, lengths[index], codes[index]))
    return tuple(entries)


def _whole(activation: Activation, sequence: int, combiner: int) -> Entry:
    rows = activation.num_samples
    return Entry(
        activation.name,
        activation.table,
        activation.input_shape,
        activation.first_sample,
        rows,
        rows,
        sequence,
        combiner,
    )


def _table_mode(
    plan: Plan,
    table_ids: tuple[int, ...],
    combiners: tuple[str, ...],
    lengths: Sequence[int],
    num_features: Sequence[int],
) -> tuple[Entry, ...]:
    tables = plan.config.tables
    codes = _combiner_codes(plan, combiners, table_ids)
    filled = [0] * len(tables)
    entries = []
    for index, table in enumerate(table_ids):
        if not 0 <= table < len(tables):
            raise InputError(f"table_ids[{index}] must be in [0, {len(tables)}), got {table}")
        block = num_features[index] * max(1, lengths[index])
        stride = plan.num_features[table]
        first = int(plan.sample_offsets[table]) + filled[table]
        shape = (plan.batch_size_per_tensor_core * block,)
        entries.append(
            Entry(tables[table].name, table, shape, first, block, stride, lengths[index], codes[index], is_table=True)
        )
        filled[table] += block
    for table, rows in enumerate(filled):
        if rows != plan.num_features[table]:
            raise InputError(
                f"table {tables[table].name!r}: its entries must fill num_features = {plan.num_features[table]} rows "
                f"of a sample, got {rows}; a combined entry fills its num_features, a sequence "
                "max_sequence_lengths times as many (TableDescriptor.num_features)"
            )
    return tuple(entries)


def _combiner_codes(plan: Plan, combiners: tuple[str, ...], tables: Sequence[int]) -> list[int]:
    names = [table.combiner for table in plan.config.tables]
    if len(combiners) == len(names):
        names = list(combiners)
    elif combiners and len(combiners) == len(tables):
        return [_combiner_code(combiner, index) for index, combiner in enumerate(combiners)]
    elif combiners:
        raise InputError(
            f"Invalid length of combiners. Have {len(combiners)} but expected 0, one per table ({len(names)}) "
            f"or one per feature ({len(tables)})"
        )
    codes = [_combiner_code(name, index) for index, name in enumerate(names)]
    return [codes[table] if 0 <= table < len(codes) else 0 for table in tables]


def _combiner_code(combiner: str, index: int) -> int:
    try:
        check_combiner(combiner, f"combiners[{index}]")
    except ConfigError as error:
        raise InputError(str(error)) from None
    return COMBINERS.index(combiner)


def _per_entry(name: str, values: tuple[int, ...], count: int, low: int) -> tuple[int, ...]:
    _check_count(name, values or None, count)
    _check_integers(name, values)
    for index, value in enumerate(values):
        if value < low:
            raise InputError(f"{name}[{index}] must be at least {low}, got {value}")
    return values or (low,) * count


def _check_integers(name: str, values: tuple[int, ...]) -> None:
    for index, value in enumerate(values):
        if not isinstance(value, int | np.integer):
            raise InputError(f"{name}[{index}] must be an integer, got {value!r}")


def _check_count(name: str, values: tuple[int, ...] | None, count: int) -> None:
    if values is not None and len(values) != count:
        raise InputError(f"{name} must have one value per input, {count}, got {len(values)}")
