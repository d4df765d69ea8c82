"""What the dynamic inputs of the tables' optimizers, learning rates above all, are in each step of a layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import keras

from anycore.config import EmbeddingConfig
from anycore.errors import ConfigError
from anycore.optimizers.declarations import DynamicInput

RateValue: TypeAlias = float | Callable[..., Any]
"""A number, a `keras.optimizers.schedules.LearningRateSchedule`, or a function without arguments."""


@dataclass(frozen=True)
class Rate:
    """One dynamic input: a number that may be set, a Keras schedule of the layer's steps, or a function of nothing.

    With `betas` it is corrected for the bias of Adam's averages: a Keras Adam counts steps, the TPU's does not.
    """

    value: RateValue
    betas: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not callable(self.value) and not isinstance(self.value, int | float):
            raise ConfigError(
                f"a learning rate must be a number, a Keras LearningRateSchedule or a function, got {self.value!r}"
            )

    @property
    def is_number(self) -> bool:
        """True for a number."""
        return not callable(self.value)

    def before(self, updates: Any, number: Any) -> Any:
        """Returns what Keras can compute of a step's rate; `number` is the variable of a rate that is a number."""
        if callable(self.value):
            # A function is asked at the end of the step, not when the step is compiled.
            return self.value(updates) if self._is_schedule else 0
        return number

    def after(self, before: float, step: int) -> float:
        """Returns the rate that step number `step`, from 1 on, ends with."""
        value = float(self.value()) if callable(self.value) and not self._is_schedule else before
        if self.betas is None:
            return value
        beta1, beta2 = self.betas
        return value * math.sqrt(1 - beta2**step) / (1 - beta1**step)

    @property
    def _is_schedule(self) -> bool:
        return isinstance(self.value, keras.optimizers.schedules.LearningRateSchedule)

    def to_json(self) -> dict[str, Any]:
        """Returns the rate as Keras serializes it."""
        value = self.value if self.is_number else keras.saving.serialize_keras_object(self.value)
        return {"value": value, "betas": self.betas and list(self.betas)}

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Rate:
        """Returns what `to_json` was of."""
        betas = json["betas"]
        return cls(keras.saving.deserialize_keras_object(json["value"]), betas and tuple(betas))


def with_every_rate_dynamic(config: EmbeddingConfig) -> tuple[EmbeddingConfig, list[Rate | None]]:
    """Returns the config with every constant learning rate under a tag of its own, and the rates by tag.

    The rates of tags that the config has already are None. The arithmetic stays the same.
    """
    rates: list[Rate | None] = [None] * len(set().union(*(table.optimizer.tags for table in config.tables)))
    tables = []
    for table in config.tables:
        optimizer = table.optimizer
        if not isinstance(optimizer.learning_rate, DynamicInput):
            rates.append(Rate(optimizer.learning_rate))
            optimizer = replace(optimizer, learning_rate=DynamicInput(len(rates) - 1))
        tables.append(replace(table, optimizer=optimizer))
    return replace(config, tables=tables), rates


def tags_of_tables(config: EmbeddingConfig) -> dict[int | str, int]:
    """Returns the tag of each table's learning rate, all of which are dynamic."""
    rates = {table.name: table.optimizer.learning_rate for table in config.tables}
    return {name: rate.tag for name, rate in rates.items() if isinstance(rate, DynamicInput)}


def with_given_rates(
    config: EmbeddingConfig, rates: Sequence[Rate | None], learning_rates: Mapping[int | str, RateValue] | None
) -> list[Rate]:
    """Returns the rates by tag, of which `learning_rates` replaces some, by tag or by the name of a table.

    Raises: ConfigError for another key, and when one is still missing.
    """
    tags = tags_of_tables(config)
    given = {tags.get(key, key): value for key, value in (learning_rates or {}).items()}
    for tag in given:
        if tag not in range(len(rates)):
            raise ConfigError(f"learning_rates: there is no {tag!r}, tables and their tags are {tags}")
    chosen = []
    for tag, rate in enumerate(rates):
        if tag in given:
            chosen.append(Rate(given[tag], rate.betas if rate else None))
        elif rate is not None:
            chosen.append(rate)
        else:
            raise ConfigError(f"learning_rates must have the tag {tag}, got {list(given)} (OptimizerDynamicInput.tag)")
    return chosen
