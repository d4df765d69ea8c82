"""TensorFlow's table, feature and optimizer objects as an EmbeddingConfig.

The caller's objects are read and never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from anycore.config import EmbeddingConfig, FeatureConfig, TableConfig
from anycore.errors import ConfigError
from anycore.optimizers import FTRL, Adagrad, AdagradMomentum, Adam, Optimizer, StochasticGradientDescent
from anycore.optimizers.declarations import DynamicInput, SimulatedQuantization

_embedding = tf.tpu.experimental.embedding

_OPTIMIZERS: dict[Any, tuple[type[Optimizer], Callable[[Any], dict[str, Any]]]] = {
    _embedding.SGD: (StochasticGradientDescent, lambda optimizer: {}),
    _embedding.Adagrad: (Adagrad, lambda optimizer: {}),
    _embedding.AdagradMomentum: (
        AdagradMomentum,
        lambda optimizer: {
            "momentum": optimizer.momentum,
            "use_nesterov": bool(optimizer.use_nesterov),
            "exponent": optimizer.exponent,
            "beta2": optimizer.beta2,
            "epsilon": optimizer.epsilon,
        },
    ),
    _embedding.FTRL: (
        FTRL,
        lambda optimizer: {
            "l1": optimizer.l1_regularization_strength,
            "l2": optimizer.l2_regularization_strength,
            "lr_power": optimizer.learning_rate_power,
            "beta": optimizer.beta,
            "multiply_linear_by_lr": bool(optimizer.multiply_linear_by_learning_rate),
        },
    ),
    _embedding.Adam: (
        Adam,
        lambda optimizer: {
            "beta1": optimizer.beta_1,
            "beta2": optimizer.beta_2,
            "epsilon": optimizer.epsilon,
            "use_sum_inside_sqrt": bool(optimizer.sum_inside_sqrt),
            "use_non_lazy_adam": not optimizer.lazy_adam,
        },
    ),
}
"""TensorFlow's optimizer → ours, and its hyper-parameters by the names of the proto."""


@dataclass(frozen=True)
class Table:
    """One of the caller's tables, the name that it goes by, and what trains it."""

    config: Any
    """The caller's TableConfig."""
    name: str
    optimizer: Any
    """The caller's optimizer: the table's own, or the one for all tables."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and dimension."""
        return self.config.vocabulary_size, self.config.dim

    @property
    def kind(self) -> type[Optimizer]:
        """The optimizer's class here."""
        return _translation(self.optimizer)[0]

    @property
    def initial_slots(self) -> dict[str, float]:
        """Starting value of each slot, in wire order."""
        # Only `accumulators` may start from a value of the caller's, where the optimizer has one.
        chosen = {"accumulators": getattr(self.optimizer, "initial_accumulator_value", 0.0)}
        return {slot.name: float(chosen.get(slot.name, 0.0)) for slot in self.kind.slots}


def tables_of(features: Sequence[Any], optimizer: Any) -> list[Table]:
    """Returns the tables of the flattened features, each once, in the order of their first use.

    A table without an optimizer gets `optimizer`; one without a name is called `table_{position}`.

    Raises: ValueError for an optimizer, a combiner or a data type that is not supported, and for a name that comes
    twice.
    Source: `tf.tpu.experimental.embedding.TPUEmbedding`, TensorFlow 2.21.
    """
    tables: dict[int, Table] = {}
    for feature in features:
        config = feature.table
        if id(config) not in tables:
            name = f"table_{len(tables)}" if config.name is None else config.name
            tables[id(config)] = Table(config, name, optimizer if config.optimizer is None else config.optimizer)
    names: set[str] = set()
    for table in tables.values():
        _check(table)
        if table.name in names:
            raise ValueError(f"Tables must have a unique name. Multiple tables with name {table.name} found.")
        names.add(table.name)
    return list(tables.values())


def dynamic_learning_rates(tables: Sequence[Table]) -> list[Callable[[], Any]]:
    """Returns the callables among the learning rates, equal ones once; the position of one is its tag."""
    rates: list[Callable[[], Any]] = []
    for table in tables:
        rate = table.optimizer.learning_rate
        if callable(rate) and rate not in rates:
            rates.append(rate)
    return rates


def table_configs(tables: Sequence[Table]) -> list[TableConfig]:
    """Returns the tables as our configs.

    Raises: ConfigError for a hyper-parameter or size out of range.
    Source: `TableConfig._set_table_descriptor`, TensorFlow 2.21.
    """
    rates = dynamic_learning_rates(tables)
    return [
        TableConfig(
            name=table.name,
            vocabulary_size=table.config.vocabulary_size,
            dimension=table.config.dim,
            optimizer=_optimizer(table, rates),
            combiner=table.config.combiner,
        )
        for table in tables
    ]


def embedding_config(
    tables: Sequence[Table],
    features: Sequence[Any],
    paths: Sequence[str],
    output_shapes: Sequence[tf.TensorShape],
    *,
    num_tensor_cores: int,
    pipeline_execution_with_tensor_core: bool,
) -> EmbeddingConfig:
    """Returns the config of flattened features, of which each has a path and a fully defined output shape.

    Raises: ConfigError for a value out of range.
    Source: `TPUEmbedding._create_config_proto`, TensorFlow 2.21.
    """
    names = {id(table.config): table.name for table in tables}
    return EmbeddingConfig(
        tables=table_configs(tables),
        features=[
            FeatureConfig(feature.name or path, names[id(feature.table)], tuple(shape.as_list()))
            for feature, path, shape in zip(features, paths, output_shapes, strict=True)
        ],
        num_tensor_cores=num_tensor_cores,
        pipeline_execution_with_tensor_core=pipeline_execution_with_tensor_core,
    )


def _optimizer(table: Table, dynamic_rates: Sequence[Callable[[], Any]]) -> Optimizer:
    """Returns the optimizer that trains the table; a callable learning rate becomes a tag.

    Source: `_set_optimization_parameters` in tf.tpu.experimental.embedding, TensorFlow 2.21.
    """
    optimizer, quantization = table.optimizer, table.config.quantization_config
    kind, hyper_parameters = _translation(optimizer)
    rate = optimizer.learning_rate
    try:
        return kind(
            learning_rate=DynamicInput(dynamic_rates.index(rate)) if callable(rate) else _constant(table),
            clipping_limits=(optimizer.clip_weight_min, optimizer.clip_weight_max),
            gradient_clipping_limits=(optimizer.clip_gradient_min, optimizer.clip_gradient_max),
            weight_decay_factor=optimizer.weight_decay_factor or 0.0,
            multiply_weight_decay_factor_by_learning_rate=bool(
                optimizer.weight_decay_factor and optimizer.multiply_weight_decay_factor_by_learning_rate
            ),
            gradient_accumulation=bool(optimizer.use_gradient_accumulation),
            simulated_quantization=quantization
            and SimulatedQuantization((quantization.lower, quantization.upper), quantization.num_buckets),
            low_dimensional_packing=bool(optimizer.low_dimensional_packing_status),
            **hyper_parameters(optimizer),
        )
    except ConfigError as error:
        raise ConfigError(f"table {table.name!r}: {error}") from error


def _constant(table: Table) -> Any:
    """Returns the learning rate; of a tensor, the value that it has."""
    rate = table.optimizer.learning_rate
    if not tf.is_tensor(rate):
        return rate
    try:
        return float(rate)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"table {table.name!r}: the learning rate is {rate}, which is not one number that is known now; pass a "
            "number, or a callable that returns a scalar tensor"
        ) from error


def _translation(optimizer: Any) -> tuple[type[Optimizer], Callable[[Any], dict[str, Any]]]:
    return next(translation for kind, translation in _OPTIMIZERS.items() if isinstance(optimizer, kind))


def _check(table: Table) -> None:
    """Raises ValueError for what TensorFlow's objects can say and this class cannot do."""
    config, optimizer = table.config, table.optimizer
    supported: Any = tuple(_OPTIMIZERS)
    if not isinstance(optimizer, supported):
        choices = ", ".join(kind.__name__ for kind in supported)
        raise ValueError(
            f"{type(optimizer)} is an unsupported optimizer class. Please pass an instance of one of the optimizer "
            f"classes under tf.tpu.experimental.embedding. Table {table.name!r} can be trained by {choices}."
        )
    if isinstance(optimizer.learning_rate, tf.Variable):
        raise ValueError(
            f"table {table.name!r}: the learning rate is a tf.Variable, whose value would be read once; pass a "
            "callable that returns it, such as lambda: variable"
        )
    if not isinstance(config.combiner, str):
        raise ValueError(
            f"table {table.name!r}: a {type(config.combiner).__name__} works on SparseCore alone (TPUEmbeddingV2); use "
            "'mean', 'sum' or 'sqrtn'"
        )
    if config.dtype != tf.float32:
        raise ValueError(f"table {table.name!r}: dtype must be float32, got {config.dtype.name} (TableConfig.dtype)")
