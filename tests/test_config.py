"""Configurations: what is refused and with which words, and the way to the wire and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import configs
from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2

from anycore import (
    AnycoreError,
    ConfigError,
    EmbeddingConfig,
    FeatureConfig,
    Mode,
    ShardingStrategy,
    SpmdSharding,
    TableConfig,
)
from anycore.initializers import Constant, TruncatedNormal
from anycore.optimizers import Adagrad, Adam, DynamicInput, StochasticGradientDescent
from anycore.proto import TPUEmbeddingConfiguration

SGD = StochasticGradientDescent(learning_rate=0.5)


def table(name: Any = "user", **changes: Any) -> TableConfig:
    fields: dict[str, Any] = {"name": name, "vocabulary_size": 10, "dimension": 2, "optimizer": SGD}
    return TableConfig(**(fields | changes))


def config(**changes: Any) -> EmbeddingConfig:
    """Table 'user' and feature 'clicks', changed."""
    fields: dict[str, Any] = {"tables": [table()], "features": [FeatureConfig("clicks", "user", [4])]}
    return EmbeddingConfig(**(fields | changes))


def message(**changes: Any) -> Any:
    """The same on the wire."""
    return TPUEmbeddingConfiguration(
        **{
            "table_descriptor": [wire_table()],
            "feature_descriptor": [{"name": "clicks", "table_id": 0, "input_shape": [4]}],
            "mode": "TRAINING",
            "num_hosts": 1,
            "num_tensor_cores": 1,
        }
        | changes
    )


def wire_table(name: str = "user", **changes: Any) -> dict[str, Any]:
    optimizer = {"stochastic_gradient_descent": {}, "learning_rate": {"constant": 0.5}}
    return {"name": name, "vocabulary_size": 10, "dimension": 2, "optimization_parameters": optimizer} | changes


def wire_rate(tag: int) -> dict[str, Any]:
    return {"optimization_parameters": {"adagrad": {}, "learning_rate": {"dynamic": {"tag": tag}}}}


def by_table(*tables: dict[str, Any], batch_size: int = 4) -> Any:
    return message(feature_descriptor=[], table_descriptor=tables, batch_size_per_tensor_core=batch_size)


def by_feature(**feature: Any) -> Any:
    return message(feature_descriptor=[{"name": "clicks", "table_id": 0, "input_shape": [4]} | feature])


# Refused on the wire

REFUSED_MESSAGES: list[tuple[Any, str]] = [
    (TPUEmbeddingConfiguration(), r"^TPU embedding config is empty"),
    (message(table_descriptor=[], feature_descriptor=[]), r"at least one table .*\.table_descriptor\)"),
    (message(mode="UNSPECIFIED"), r"mode is UNSPECIFIED, it must be INFERENCE, TRAINING or BACKWARD_PASS_ONLY"),
    (message(mode=7), r"mode must be one of .*TRAINING=2.*, got 7 \(TPUEmbeddingConfiguration\.mode\)"),
    (message(sharding_strategy=2), r"sharding_strategy must be one of .*MOD=1, got 2 \(.*\.sharding_strategy\)"),
    (message(num_hosts=0), r"num_hosts must be at least 1, got 0 \(TPUEmbeddingConfiguration\.num_hosts\)"),
    (message(num_tensor_cores=-1), r"num_tensor_cores must be at least 1, got -1 \(.*\.num_tensor_cores\)"),
    # Tables
    (message(table_descriptor=[wire_table(""), wire_table()]), r"Table 0 has empty name string \(.*\.name\)"),
    (message(table_descriptor=[wire_table(n) for n in "aba"]), r"tables 0 and 2 have the same name 'a' \(.*\.name\)"),
    (
        message(table_descriptor=[wire_table(vocabulary_size=0)]),
        r"table 'user': vocabulary_size must be at least 1, got 0 \(TableDescriptor\.vocabulary_size\)",
    ),
    (
        message(table_descriptor=[wire_table(dimension=-3)]),
        r"table 'user': dimension must be at least 1, got -3 \(TableDescriptor\.dimension\)",
    ),
    # Table mode
    (by_table(wire_table(num_features=1), batch_size=0), r"Invalid batch_size_per_tensor_core: .* got 0 \(.*\)"),
    (
        by_table(wire_table(num_features=1), batch_size=-2),
        r"batch_size_per_tensor_core must be at least 0, got -2 \(.*\.batch_size_per_tensor_core\)",
    ),
    (
        by_table(wire_table("a", num_features=1), wire_table("b")),
        r"table 'b': Invalid num_features: .* got 0 \(TableDescriptor\.num_features\)",
    ),
    (by_table(wire_table(num_features=-1)), r"table 'user': num_features must be at least 0, got -1 \("),
    # Feature mode
    (
        message(batch_size_per_tensor_core=4),
        r"batch_size_per_tensor_core must NOT be populated .* got 4 \(.*\.batch_size_per_tensor_core\)",
    ),
    (
        message(table_descriptor=[wire_table(num_features=2)]),
        r"table 'user': num_features must NOT be populated .* got 2 \(TableDescriptor\.num_features\)",
    ),
    (by_feature(table_id=1), r"feature 'clicks': table_id must be in \[0, 1\), got 1 \(FeatureDescriptor\.table_id\)"),
    (by_feature(table_id=-1), r"feature 'clicks': table_id must be in \[0, 1\), got -1 \("),
    (by_feature(name="", table_id=5), r"feature 'feature_0': table_id .* got 5"),
    (by_feature(input_shape=[]), r"feature 'clicks': input_shape must not be empty \(FeatureDescriptor\.input_shape\)"),
    (by_feature(input_shape=[2, 0]), r"feature 'clicks': input_shape must be at least 1, got 0 \(.*\.input_shape\)"),
    (
        message(table_descriptor=[wire_table(), wire_table("item")]),
        r"No feature_descriptor fields found for table 'item' \(FeatureDescriptor\.table_id\)",
    ),
    # Optimizers and learning rates; what each refuses is tested with it
    (
        message(table_descriptor=[wire_table(optimization_parameters={"learning_rate": {"constant": 1.0}})]),
        r"table 'user': No optimization algorithm specified.* OptimizationParameters\.parameters",
    ),
    (
        message(table_descriptor=[wire_table(optimization_parameters={"adagrad": {}})]),
        r"table 'user': a learning rate is missing: set LearningRate\.constant or LearningRate\.dynamic",
    ),
    (
        message(table_descriptor=[wire_table(**wire_rate(-1))]),
        r"table 'user': .*learning_rate\.dynamic\.tag must .*, got -1",
    ),
    (
        by_table(*(wire_table(f"t{tag}", num_features=1, **wire_rate(tag)) for tag in (0, 2, 3))),
        r"tags must be 0 … 2 without gaps: tag 1 not found, instead found \[0, 2, 3\] \(OptimizerDynamicInput\.tag\)",
    ),
    (message(table_descriptor=[wire_table(**wire_rate(1))]), r"tag 0 not found, instead found \[1\]"),
]


@pytest.mark.parametrize(("refused", "text"), REFUSED_MESSAGES)
def test_refuses_messages(refused: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        EmbeddingConfig.from_proto(refused)
    with pytest.raises(ConfigError, match=text):
        EmbeddingConfig.from_proto(refused.SerializeToString())


@pytest.mark.parametrize(
    ("serialized", "text"),
    [
        (b"", r"TPU embedding config is empty\."),
        (bytearray(), r"TPU embedding config is empty\."),
        (b"\xff", "Malformed tpu_embedding_config"),
        (message().SerializeToString()[:-3], "Malformed tpu_embedding_config"),
    ],
)
def test_refuses_bytes(serialized: bytes, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        EmbeddingConfig.from_proto(serialized)


def test_a_config_error_is_a_value_error() -> None:
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ConfigError, AnycoreError)


# Refused in Python


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: table(""), r"a table has an empty name, got '' \(TableDescriptor\.name\)"),
        (lambda: table(name=None), r"name, got None \(TableDescriptor\.name\)"),
        (lambda: table(vocabulary_size=1.5), r"table 'user': vocabulary_size must be an integer, got 1\.5 \("),
        (lambda: table(vocabulary_size=2**63), r"table 'user': vocabulary_size must be at most .* got 9223372036854"),
        (lambda: table(dimension="2"), r"table 'user': dimension must be an integer, got '2' \(.*\.dimension\)"),
        (lambda: table(dimension=2**31), r"table 'user': dimension must be at most 2147483647, got 2147483648 \("),
        (lambda: table(num_features=2**31), r"table 'user': num_features must be at most 2147483647, got 2147483648"),
        (lambda: table(combiner="max"), r"table 'user': Invalid combiner: .*\"sqrtn\" are supported, got 'max'"),
        (lambda: table(combiner=["sum"]), r"table 'user': Invalid combiner: .* got \['sum'\]"),
        (lambda: table(initializer=0.5), r"table 'user': initializer must be .* got 0\.5 \(TableConfig\.initializer\)"),
        (lambda: table(optimizer=Adagrad), r"table 'user': optimizer must be one of .*\.optimization_parameters\)"),
        (lambda: table(optimizer=None), r"table 'user': optimizer must be one of .* got None"),
        (lambda: FeatureConfig("f", "user", [2, 1.5]), r"feature 'f': input_shape must be an integer, got 1\.5 \("),  # type: ignore[list-item]
        (lambda: FeatureConfig("f", "user", 4), r"feature 'f': input_shape must .* got 4 \(.*\.input_shape\)"),  # type: ignore[arg-type]
        (lambda: FeatureConfig("f", "user", [2**31]), r"feature 'f': input_shape must be at most .* got 2147483648 \("),
        (lambda: FeatureConfig(3, "user", [1]), r"name must be .* got 3 \(FeatureDescriptor\.name\)"),  # type: ignore[arg-type]
        (lambda: config(features=[FeatureConfig("f", "x", [1])]), r"feature 'f': there is no table 'x' \(.*table_id\)"),
        (lambda: config(mode="TRAINING"), r"mode must be one of .* got 'TRAINING' \(.*\.mode\)"),
        (lambda: config(num_hosts=1.5), r"num_hosts must be an integer, got 1\.5 \(.*\.num_hosts\)"),
        (lambda: config(num_hosts=2**31), r"num_hosts must be at most 2147483647, got 2147483648 \("),
        (lambda: config(num_tensor_cores=2**31), r"num_tensor_cores must be at most 2147483647, got 2147483648 \("),
        (
            lambda: config(features=[], tables=[table(num_features=1)], batch_size_per_tensor_core=2**31),
            r"batch_size_per_tensor_core must be at most 2147483647, got 2147483648 \(",
        ),
        (lambda: config().table_id("item"), r"there is no table 'item', the tables are \['user'\]"),
    ],
)
def test_refuses_arguments(build: Callable[[], Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        build()


def test_the_first_of_several_unused_tables_is_named() -> None:
    with pytest.raises(ConfigError, match="No feature_descriptor fields found for table 'a'"):
        config(tables=[table(name) for name in ("user", *"abcdefgh")])


# The wire and back


@settings(max_examples=60)
@given(configs(TPUEmbeddingConfiguration))
def test_a_config_survives_the_wire(wire: Any) -> None:
    parsed = EmbeddingConfig.from_proto(wire)
    again = parsed.to_proto()
    assert EmbeddingConfig.from_proto(again) == parsed
    for repeated in ("table_descriptor", "feature_descriptor"):
        assert len(getattr(again, repeated)) == len(getattr(wire, repeated))
    for name in ("mode", "batch_size_per_tensor_core", "num_hosts", "num_tensor_cores", "sharding_strategy"):
        assert getattr(again, name) == getattr(wire, name)
    assert again.pipeline_execution_with_tensor_core == wire.pipeline_execution_with_tensor_core


EVERYTHING = EmbeddingConfig(
    tables=[
        TableConfig("user", 2**40, 3, Adam(learning_rate=DynamicInput(0), beta1=0.5, beta2=0.75, epsilon=0.25)),
        TableConfig("item", 7, 5, SGD),
    ],
    features=[FeatureConfig("clicks", "item", [2, 3]), FeatureConfig("viewer", "user", (6,))],
    mode=Mode.BACKWARD_PASS_ONLY,
    num_hosts=2,
    num_tensor_cores=3,
    sharding_strategy=ShardingStrategy.MOD,
    pipeline_execution_with_tensor_core=True,
    profile_data_directory="/profile",
    spmd_sharding=SpmdSharding(True, 2, True, True),
)

TWO_TABLES = EmbeddingConfig([table(num_features=2), table("item", num_features=1)], batch_size_per_tensor_core=4)


@pytest.mark.parametrize("built", [EVERYTHING, TWO_TABLES, config()])
@pytest.mark.parametrize("message_class", [TPUEmbeddingConfiguration, "tensorflow"])
def test_python_and_the_wire_describe_the_same_config(built: EmbeddingConfig, message_class: Any) -> None:
    if message_class == "tensorflow":
        message_class = tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration
    wire = message_class.FromString(built.to_proto().SerializeToString())
    assert EmbeddingConfig.from_proto(wire) == built
    assert EmbeddingConfig.from_proto(wire.SerializeToString()) == built
    assert EmbeddingConfig.from_proto(memoryview(wire.SerializeToString())) == built


def test_every_field_reaches_the_wire() -> None:
    wire = EVERYTHING.to_proto()
    assert {field.name for field, _ in wire.ListFields()} == (
        set(wire.DESCRIPTOR.fields_by_name) - {"batch_size_per_tensor_core"}
    )
    assert [(t.name, t.vocabulary_size, t.dimension) for t in wire.table_descriptor] == [
        ("user", 2**40, 3),
        ("item", 7, 5),
    ]
    assert wire.table_descriptor[0].optimization_parameters.WhichOneof("parameters") == "adam"
    assert [(f.name, f.table_id, list(f.input_shape)) for f in wire.feature_descriptor] == [
        ("clicks", 1, [2, 3]),
        ("viewer", 0, [6]),
    ]
    assert (wire.mode, wire.num_hosts, wire.num_tensor_cores, wire.sharding_strategy) == (3, 2, 3, 1)
    assert wire.pipeline_execution_with_tensor_core
    assert wire.profile_data_directory == "/profile"
    assert [value for _, value in wire.spmd_sharding.ListFields()] == [True, 2, True, True]
    by_table_wire = TWO_TABLES.to_proto()
    assert by_table_wire.batch_size_per_tensor_core == 4
    assert [t.num_features for t in by_table_wire.table_descriptor] == [2, 1]


def test_each_message_is_the_callers() -> None:
    built = config()
    built.to_proto().table_descriptor[0].name = "changed"
    assert built.to_proto().table_descriptor[0].name == "user"
    assert not built.to_proto().HasField("spmd_sharding")


def test_the_config_does_not_follow_its_source() -> None:
    wire, tables = message(), [table()]
    parsed, built = EmbeddingConfig.from_proto(wire), config(tables=tables)
    wire.table_descriptor[0].name = "changed"
    tables.clear()
    assert parsed == built == config()


# What is accepted


def test_defaults() -> None:
    built = config()
    assert (built.mode, built.sharding_strategy) == (Mode.TRAINING, ShardingStrategy.DIV_DEFAULT)
    assert (built.num_hosts, built.num_tensor_cores, built.batch_size_per_tensor_core) == (1, 1, 0)
    assert not built.pipeline_execution_with_tensor_core
    assert built.tables[0].combiner == "sum"
    assert table(dimension=4).initial_parameters == TruncatedNormal(0.0, 0.5)
    assert table(initializer=Constant(3.0)).initial_parameters == Constant(3.0)


def test_features_without_a_name_are_numbered() -> None:
    unnamed = message(feature_descriptor=[{"table_id": 0, "input_shape": [n]} for n in (1, 2)])
    assert [f.name for f in EmbeddingConfig.from_proto(unnamed).features] == ["feature_0", "feature_1"]


def test_integers_and_shapes_of_any_kind() -> None:
    built = config(
        tables=[table(vocabulary_size=np.int64(10), dimension=np.int32(2))],
        features=[FeatureConfig("clicks", "user", np.array([2, 3]))],  # type: ignore[arg-type]
        num_tensor_cores=np.int16(2),
        mode=1,
        sharding_strategy=1,
    )
    assert built == config(
        features=[FeatureConfig("clicks", "user", (2, 3))],
        num_tensor_cores=2,
        mode=Mode.INFERENCE,
        sharding_strategy=ShardingStrategy.MOD,
    )
    assert EmbeddingConfig.from_proto(built.to_proto()) == built


@pytest.mark.parametrize(("mode", "trains"), [("INFERENCE", False), ("TRAINING", True), ("BACKWARD_PASS_ONLY", True)])
def test_all_but_inference_trains(mode: str, trains: bool) -> None:
    assert EmbeddingConfig.from_proto(message(mode=mode)).trains == trains


def test_tables_may_share_a_tag() -> None:
    tables = [table(f"t{k}", optimizer=Adagrad(learning_rate=DynamicInput(tag))) for k, tag in enumerate([1, 0, 1])]
    features = [FeatureConfig("f", each.name, [1]) for each in tables]
    rates = [each.optimizer.learning_rate for each in config(tables=tables, features=features).tables]
    assert rates == [DynamicInput(1), DynamicInput(0), DynamicInput(1)]
