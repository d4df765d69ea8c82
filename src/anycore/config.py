"""What is trained and how: tables, features and the shape of the system, checked when they are made.

The dataclasses mirror `TPUEmbeddingConfiguration` field by field; `combiner` and `initializer` are ours, for the wire
carries them elsewhere (with each enqueue, and in the caller's `load`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from google.protobuf.message import DecodeError

from anycore.errors import ConfigError
from anycore.initializers import Initializer, resolve
from anycore.optimizers import OPTIMIZERS, Optimizer
from anycore.optimizers.wire import optimizer_from_proto, optimizer_to_proto
from anycore.proto import TPUEmbeddingConfiguration
from anycore.sharding import ShardingStrategy

COMBINERS = ("sum", "mean", "sqrtn")


class Mode(IntEnum):
    """What a step does.

    Source: `TPUEmbeddingConfiguration.Mode`, tpu_embedding_configuration.proto, TensorFlow 2.21.
    """

    UNSPECIFIED = 0
    INFERENCE = 1
    TRAINING = 2
    BACKWARD_PASS_ONLY = 3


@dataclass(frozen=True)
class TableConfig:
    """One embedding table: `vocabulary_size` rows of `dimension` float32, and the optimizer that trains them.

    `combiner` serves enqueue calls that name none; `initializer` fills the parameters of a new engine, by default with
    a normal distribution of deviation 1/√dimension, truncated at two deviations. `num_features` is the number of
    activation rows per sample in table mode and 0 in feature mode.

    Raises: ConfigError for a name, size or combiner out of range, or a dimension that the optimizer does not have.
    """

    name: str
    vocabulary_size: int
    dimension: int
    optimizer: Optimizer
    combiner: str = "sum"
    initializer: Initializer | Callable[[Any, int], Any] | None = None
    num_features: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"a table has an empty name, got {self.name!r} (TableDescriptor.name)")
        where = f"table {self.name!r}"
        _in_range(1, _INT64, where, "TableDescriptor", vocabulary_size=self.vocabulary_size)
        _in_range(1, _INT32, where, "TableDescriptor", dimension=self.dimension)
        _in_range(0, _INT32, where, "TableDescriptor", num_features=self.num_features)
        if not isinstance(self.optimizer, Optimizer):
            raise ConfigError(
                f"{where}: optimizer must be one of anycore.optimizers, got {self.optimizer!r} "
                "(TableDescriptor.optimization_parameters)"
            )
        if self.optimizer.only_dimension not in (None, self.dimension):
            raise ConfigError(
                f"{where}: {self.optimizer.wire_name} needs dimension {self.optimizer.only_dimension}, "
                f"got {self.dimension} (TableDescriptor.dimension)"
            )
        check_combiner(self.combiner, where)
        resolve(self.initializer, self.name, self.dimension)

    @property
    def initial_parameters(self) -> Initializer:
        """The initializer in force."""
        return resolve(self.initializer, self.name, self.dimension)


@dataclass(frozen=True)
class FeatureConfig:
    """One feature: the table that it looks up, and the shape of its activations on one core without the dimension.

    Raises: ConfigError for an empty shape or one with an entry below 1.
    """

    name: str
    table: str
    input_shape: Sequence[int]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ConfigError(f"a feature's name must be a string, got {self.name!r} (FeatureDescriptor.name)")
        where = f"feature {self.name!r}"
        try:
            shape = tuple(self.input_shape)
        except TypeError:
            raise ConfigError(
                f"{where}: input_shape must be a sequence of integers, got {self.input_shape!r} "
                "(FeatureDescriptor.input_shape)"
            ) from None
        if not shape:
            raise ConfigError(f"{where}: input_shape must not be empty (FeatureDescriptor.input_shape)")
        for entry in shape:
            _in_range(1, _INT32, where, "FeatureDescriptor", input_shape=entry)
        object.__setattr__(self, "input_shape", tuple(operator.index(entry) for entry in shape))


@dataclass(frozen=True)
class SpmdSharding:
    """How a replica spreads over cores; kept for the wire, without effect on one machine.

    Source: `TPUEmbeddingConfiguration.SpmdSharding`, tpu_embedding_configuration.proto, TensorFlow 2.21.
    """

    enabled: bool = False
    num_cores_per_replica: int = 0
    use_manual_partitioning: bool = False
    use_shardy_partitioner: bool = False


@dataclass(frozen=True)
class EmbeddingConfig:
    """A whole embedding system.

    With `features` the config is in feature mode: one input and one activation array a feature. Without, it is in table
    mode: one of each a table, `batch_size_per_tensor_core` samples of `num_features` rows.

    Raises: ConfigError that names the table or feature, the value and the proto field.
    Source: `TPUEmbeddingConfiguration`, tpu_embedding_configuration.proto, TensorFlow 2.21.
    """

    tables: Sequence[TableConfig]
    features: Sequence[FeatureConfig] = ()
    mode: Mode = Mode.TRAINING
    batch_size_per_tensor_core: int = 0
    num_hosts: int = 1
    num_tensor_cores: int = 1
    sharding_strategy: ShardingStrategy = ShardingStrategy.DIV_DEFAULT
    pipeline_execution_with_tensor_core: bool = False
    profile_data_directory: str = ""
    spmd_sharding: SpmdSharding = SpmdSharding()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", _all_of(TableConfig, self.tables, "tables"))
        object.__setattr__(self, "features", _all_of(FeatureConfig, self.features, "features"))
        object.__setattr__(self, "mode", _enum(Mode, self.mode, "mode"))
        object.__setattr__(
            self, "sharding_strategy", _enum(ShardingStrategy, self.sharding_strategy, "sharding_strategy")
        )
        for problem in self._problems():
            raise ConfigError(problem)

    @classmethod
    def from_proto(
        cls, config: bytes | Any, *, optimizers: Mapping[str, type[Optimizer]] | None = None
    ) -> EmbeddingConfig:
        """Returns the config that a serialized or parsed `TPUEmbeddingConfiguration` describes.

        `config` may be bytes, our message or TensorFlow's. `optimizers` replaces classes of `OPTIMIZERS`, by the name
        of their field in the proto: the way to give a rule to an optimizer whose arithmetic is not published.

        Raises: ConfigError when it is empty, malformed or inconsistent.
        """
        message = parse(config)
        for name in optimizers or ():
            if name not in OPTIMIZERS:
                raise ConfigError(f"optimizers: there is no {name!r} in the proto, use one of {', '.join(OPTIMIZERS)}")
        return cls(
            tables=[
                _table_from_proto(table, index, {**OPTIMIZERS, **(optimizers or {})})
                for index, table in enumerate(message.table_descriptor)
            ],
            features=[_feature_from_proto(message, index) for index in range(len(message.feature_descriptor))],
            mode=message.mode,
            batch_size_per_tensor_core=message.batch_size_per_tensor_core,
            num_hosts=message.num_hosts,
            num_tensor_cores=message.num_tensor_cores,
            sharding_strategy=message.sharding_strategy,
            pipeline_execution_with_tensor_core=message.pipeline_execution_with_tensor_core,
            profile_data_directory=message.profile_data_directory,
            spmd_sharding=SpmdSharding(**{name: getattr(message.spmd_sharding, name) for name in _SPMD_FIELDS}),
        )

    def to_proto(self) -> Any:
        """Returns the `TPUEmbeddingConfiguration` message of this config, a new one at each call."""
        message = TPUEmbeddingConfiguration(
            mode=self.mode,
            batch_size_per_tensor_core=self.batch_size_per_tensor_core,
            num_hosts=self.num_hosts,
            num_tensor_cores=self.num_tensor_cores,
            sharding_strategy=self.sharding_strategy,
            pipeline_execution_with_tensor_core=self.pipeline_execution_with_tensor_core,
            profile_data_directory=self.profile_data_directory,
        )
        if self.spmd_sharding != SpmdSharding():
            for name in _SPMD_FIELDS:
                setattr(message.spmd_sharding, name, getattr(self.spmd_sharding, name))
        for table in self.tables:
            message.table_descriptor.add(
                name=table.name,
                vocabulary_size=table.vocabulary_size,
                dimension=table.dimension,
                num_features=table.num_features,
                optimization_parameters=optimizer_to_proto(table.optimizer),
            )
        for feature in self.features:
            message.feature_descriptor.add(
                name=feature.name, table_id=self.table_id(feature.table), input_shape=feature.input_shape
            )
        return message

    @property
    def trains(self) -> bool:
        """True unless the mode is INFERENCE."""
        return self.mode != Mode.INFERENCE

    def with_input_shapes(self, input_shapes: Sequence[Sequence[int]]) -> EmbeddingConfig:
        """Returns this config with other input shapes of its features. Raises: ConfigError for impossible ones."""
        if len(input_shapes) != len(self.features):
            raise ConfigError(
                f"expected {len(self.features)} input_shapes, one for each feature, got {len(input_shapes)} "
                "(FeatureDescriptor.input_shape)"
            )
        features = [replace(f, input_shape=shape) for f, shape in zip(self.features, input_shapes, strict=True)]
        return replace(self, features=features)

    def table_id(self, name: str) -> int:
        """Returns the position of the table `name`. Raises: ConfigError when there is none."""
        for index, table in enumerate(self.tables):
            if table.name == name:
                return index
        raise ConfigError(f"there is no table {name!r}, the tables are {[table.name for table in self.tables]}")

    def _problems(self) -> Iterator[str]:
        # Order matters: a later check may rely on an earlier one.
        if not self.tables:
            yield "a config needs at least one table (TPUEmbeddingConfiguration.table_descriptor)"
        seen: dict[str, int] = {}
        for index, table in enumerate(self.tables):
            if table.name in seen:
                yield f"tables {seen[table.name]} and {index} have the same name {table.name!r} (TableDescriptor.name)"
            seen[table.name] = index
        if self.mode == Mode.UNSPECIFIED:
            yield (
                "TPUEmbeddingConfiguration.mode is UNSPECIFIED, "
                "it must be INFERENCE, TRAINING or BACKWARD_PASS_ONLY (TPUEmbeddingConfiguration.mode)"
            )
        _in_range(1, _INT32, "config", _CONFIG, num_hosts=self.num_hosts, num_tensor_cores=self.num_tensor_cores)
        _in_range(0, _INT32, "config", _CONFIG, batch_size_per_tensor_core=self.batch_size_per_tensor_core)
        yield from self._feature_problems() if self.features else self._table_mode_problems()
        yield from self._tag_problems()
        yield from self._size_problems()

    def _size_problems(self) -> Iterator[str]:
        rows = {table.name: self.batch_size_per_tensor_core * table.num_features for table in self.tables}
        for feature in self.features:
            rows[feature.table] += math.prod(feature.input_shape)
        for name, samples in rows.items():
            if samples * self.num_tensor_cores > _INT32:
                yield (
                    f"table {name!r}: its activations have {samples} rows on each of {self.num_tensor_cores} cores, "
                    f"at most {_INT32} in all are possible (FeatureDescriptor.input_shape)"
                )

    def _table_mode_problems(self) -> Iterator[str]:
        if self.batch_size_per_tensor_core < 1:
            yield (
                "Invalid batch_size_per_tensor_core: without feature_descriptor it must be at least 1, "
                f"got {self.batch_size_per_tensor_core} ({_CONFIG}.batch_size_per_tensor_core)"
            )
        for table in self.tables:
            if table.num_features < 1:
                yield (
                    f"table {table.name!r}: Invalid num_features: without feature_descriptor it must be at least 1, "
                    f"got {table.num_features} (TableDescriptor.num_features)"
                )

    def _feature_problems(self) -> Iterator[str]:
        if self.batch_size_per_tensor_core:
            yield (
                "batch_size_per_tensor_core must NOT be populated beside feature_descriptor, "
                f"got {self.batch_size_per_tensor_core} ({_CONFIG}.batch_size_per_tensor_core)"
            )
        for table in self.tables:
            if table.num_features:
                yield (
                    f"table {table.name!r}: num_features must NOT be populated beside feature_descriptor, "
                    f"got {table.num_features} (TableDescriptor.num_features)"
                )
        names = [table.name for table in self.tables]
        for feature in self.features:
            if feature.table not in names:
                yield f"feature {feature.name!r}: there is no table {feature.table!r} (FeatureDescriptor.table_id)"
        used = {feature.table for feature in self.features}
        for name in names:
            if name not in used:
                yield f"No feature_descriptor fields found for table {name!r} (FeatureDescriptor.table_id)"

    def _tag_problems(self) -> Iterator[str]:
        tags: set[int] = set().union(*(table.optimizer.tags for table in self.tables))
        for tag in range(len(tags)):
            if tag not in tags:
                yield (
                    f"dynamic learning rate tags must be 0 … {len(tags) - 1} without gaps: tag {tag} not found, "
                    f"instead found {sorted(tags)} (OptimizerDynamicInput.tag)"
                )


_CONFIG = "TPUEmbeddingConfiguration"
_INT32, _INT64 = 2**31 - 1, 2**63 - 1
_SPMD_FIELDS = ("enabled", "num_cores_per_replica", "use_manual_partitioning", "use_shardy_partitioner")


def parse(config: bytes | Any) -> Any:
    """Returns our `TPUEmbeddingConfiguration` message for bytes, our message or TensorFlow's.

    Raises: ConfigError when it is empty or malformed.
    """
    if not isinstance(config, bytes | bytearray | memoryview) and not hasattr(config, "SerializeToString"):
        raise ConfigError(f"a TPUEmbeddingConfiguration must be bytes or a message, got {type(config).__name__}")
    serialized = config if isinstance(config, bytes | bytearray | memoryview) else config.SerializeToString()
    if not serialized:
        raise ConfigError("TPU embedding config is empty.")
    try:
        return TPUEmbeddingConfiguration.FromString(bytes(serialized))
    except DecodeError as error:
        raise ConfigError(f"Malformed tpu_embedding_config: {error}") from error


def check_combiner(combiner: Any, where: str) -> None:
    """Raises ConfigError, with `where` in front, unless `combiner` is one of COMBINERS."""
    if combiner not in COMBINERS:
        raise ConfigError(
            f'{where}: Invalid combiner: only "sum", "mean", and "sqrtn" are supported, got {combiner!r} (combiners)'
        )


def _table_from_proto(table: Any, index: int, optimizers: Mapping[str, type[Optimizer]]) -> TableConfig:
    if not table.name:
        raise ConfigError(f"Table {index} has empty name string (TableDescriptor.name)")
    try:
        optimizer = optimizer_from_proto(table.optimization_parameters, optimizers)
    except ConfigError as error:
        raise ConfigError(f"table {table.name!r}: {error}") from error
    return TableConfig(
        name=table.name,
        vocabulary_size=table.vocabulary_size,
        dimension=table.dimension,
        optimizer=optimizer,
        num_features=table.num_features,
    )


def _feature_from_proto(message: Any, index: int) -> FeatureConfig:
    feature = message.feature_descriptor[index]
    name = feature.name or f"feature_{index}"
    if not 0 <= feature.table_id < len(message.table_descriptor):
        raise ConfigError(
            f"feature {name!r}: table_id must be in [0, {len(message.table_descriptor)}), got {feature.table_id} "
            "(FeatureDescriptor.table_id)"
        )
    return FeatureConfig(name, message.table_descriptor[feature.table_id].name, tuple(feature.input_shape))


def _in_range(low: int, high: int, where: str, message_name: str, **values: Any) -> None:
    for name, value in values.items():
        try:
            integer = operator.index(value)
        except TypeError:
            raise ConfigError(f"{where}: {name} must be an integer, got {value!r} ({message_name}.{name})") from None
        if integer < low:
            raise ConfigError(f"{where}: {name} must be at least {low}, got {integer} ({message_name}.{name})")
        if integer > high:
            raise ConfigError(f"{where}: {name} must be at most {high}, got {integer} ({message_name}.{name})")


def _all_of(kind: type[Any], values: Any, name: str) -> tuple[Any, ...]:
    values = tuple(values)
    for value in values:
        if not isinstance(value, kind):
            raise ConfigError(f"{name} must be {kind.__name__} objects, got {value!r}")
    return values


def _enum(kind: type[Any], value: Any, field_name: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(f"{member.name}={member.value}" for member in kind)
        raise ConfigError(f"{field_name} must be one of {choices}, got {value!r} ({_CONFIG}.{field_name})") from None
