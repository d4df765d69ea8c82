"""Optimizers to and from OptimizationParameters messages, ours and TensorFlow's."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2

from anycore import ConfigError
from anycore.optimizers import (
    FTRL,
    OPTIMIZERS,
    Adagrad,
    AdagradMomentum,
    Adam,
    DynamicInput,
    Optimizer,
    SimulatedQuantization,
    StochasticGradientDescent,
)
from anycore.optimizers.wire import optimizer_from_proto, optimizer_to_proto
from anycore.proto import OptimizationParameters

# All numbers are exact in float32.
ON_THE_WIRE: list[tuple[Optimizer, dict[str, Any]]] = [
    (
        StochasticGradientDescent(learning_rate=0.5),
        {
            "stochastic_gradient_descent": {},
            "learning_rate": {"constant": 0.5},
            "gradient_accumulation_status": "ENABLED",
        },
    ),
    (
        Adagrad(
            learning_rate=DynamicInput(3),
            clipping_limits=(-2.0, None),
            gradient_clipping_limits=(None, 0.0),
            weight_decay_factor=0.25,
            multiply_weight_decay_factor_by_learning_rate=True,
            gradient_accumulation=False,
            simulated_quantization=SimulatedQuantization((-1.0, 0.5), 16),
            hot_id_replication=True,
            low_dimensional_packing=True,
        ),
        {
            "adagrad": {},
            "learning_rate": {"dynamic": {"tag": 3}},
            "clipping_limits": {"lower": -2.0},
            "gradient_clipping_limits": {"upper": 0.0},
            "weight_decay_factor": 0.25,
            "multiply_weight_decay_factor_by_learning_rate": True,
            "gradient_accumulation_status": "DISABLED",
            "simulated_quantization": {
                "enabled": True,
                "clipping_limits": {"lower": -1.0, "upper": 0.5},
                "num_buckets": 16,
            },
            "hot_id_replication_configuration": {"status": "ENABLED"},
            "low_dimensional_packing_status": "ENABLED",
        },
    ),
    (
        AdagradMomentum(learning_rate=0.0, momentum=0.75, use_nesterov=True, exponent=3.0, beta2=0.5, epsilon=0.125),
        {
            "adagrad_momentum": {
                "momentum": 0.75,
                "use_nesterov": True,
                "exponent": 3.0,
                "beta2": 0.5,
                "epsilon": 0.125,
            },
            "learning_rate": {"constant": 0.0},
            "gradient_accumulation_status": "ENABLED",
        },
    ),
    (
        Adam(
            learning_rate=0.5,
            beta1=0.75,
            beta2=0.5,
            epsilon=0.125,
            use_sum_inside_sqrt=True,
            use_non_lazy_adam=True,
        ),
        {
            "adam": {
                "beta1": 0.75,
                "beta2": 0.5,
                "epsilon": 0.125,
                "use_sum_inside_sqrt": True,
                "use_non_lazy_adam": True,
            },
            "learning_rate": {"constant": 0.5},
            "gradient_accumulation_status": "ENABLED",
        },
    ),
    (
        FTRL(learning_rate=0.5, l1=0.25, l2=0.125, lr_power=-0.75, beta=2.0, multiply_linear_by_lr=True),
        {
            "ftrl": {"l1": 0.25, "l2": 0.125, "lr_power": -0.75, "beta": 2.0, "multiply_linear_by_lr": True},
            "learning_rate": {"constant": 0.5},
            "gradient_accumulation_status": "ENABLED",
        },
    ),
]


@pytest.mark.parametrize(("optimizer", "fields"), ON_THE_WIRE)
@pytest.mark.parametrize("message_class", [OptimizationParameters, optimization_parameters_pb2.OptimizationParameters])
def test_every_field_there_and_back(optimizer: Optimizer, fields: dict[str, Any], message_class: Any) -> None:
    written = message_class.FromString(optimizer_to_proto(optimizer).SerializeToString())
    assert MessageToDict(written, preserving_proto_field_name=True) == fields
    assert optimizer_from_proto(written) == optimizer


@pytest.mark.parametrize("optimizer", [o for name, o in OPTIMIZERS.items() if name != "user_defined_program"])
def test_defaults_there_and_back(optimizer: type[Optimizer]) -> None:
    once = optimizer_from_proto(optimizer_to_proto(optimizer()))
    assert type(once) is optimizer
    assert optimizer_from_proto(optimizer_to_proto(once)) == once
    assert once.learning_rate == pytest.approx(optimizer().learning_rate)


def parameters(**fields: Any) -> Any:
    return OptimizationParameters(**({"adagrad": {}, "learning_rate": {"constant": 0.5}} | fields))


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"gradient_accumulation_status": "UNSPECIFIED"}, "gradient_accumulation", True),
        ({"gradient_accumulation_status": "ENABLED"}, "gradient_accumulation", True),
        ({"gradient_accumulation_status": "DISABLED"}, "gradient_accumulation", False),
        ({"low_dimensional_packing_status": "UNSPECIFIED"}, "low_dimensional_packing", False),
        ({"low_dimensional_packing_status": "ENABLED"}, "low_dimensional_packing", True),
        ({"low_dimensional_packing_status": "DISABLED"}, "low_dimensional_packing", False),
        ({"hot_id_replication_configuration": {}}, "hot_id_replication", False),
        ({"hot_id_replication_configuration": {"status": "ENABLED"}}, "hot_id_replication", True),
        ({"hot_id_replication_configuration": {"status": "DISABLED"}}, "hot_id_replication", False),
        ({"hot_id_replication_configuration": {"status": "MIGRATION_ONLY"}}, "hot_id_replication", False),
        ({"simulated_quantization": {"enabled": False, "num_buckets": 1}}, "simulated_quantization", None),
        ({"clipping_limits": {}}, "clipping_limits", (None, None)),
        ({"clipping_limits": {"lower": {}}}, "clipping_limits", (0.0, None)),
        ({"learning_rate": {"constant": 0.0}}, "learning_rate", 0.0),
        ({"learning_rate": {"dynamic": {}}}, "learning_rate", DynamicInput(0)),
    ],
)
def test_reads(fields: dict[str, Any], name: str, value: Any) -> None:
    assert getattr(optimizer_from_proto(parameters(**fields)), name) == value


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"adagrad": None}, r"^No optimization algorithm specified.*OptimizationParameters\.parameters"),
        ({"learning_rate": None}, r"^a learning rate is missing: set LearningRate\.constant or LearningRate\.dynamic"),
        ({"learning_rate": {}}, r"^a learning rate is missing"),
        ({"learning_rate": {"constant": float("nan")}}, r"learning_rate\.constant must be finite, got nan"),
        ({"gradient_accumulation_status": 7}, r"gradient_accumulation_status .* got 7 \(OptimizationParameters"),
        ({"low_dimensional_packing_status": -1}, r"low_dimensional_packing_status .* got -1 \(OptimizationParameters"),
        ({"hot_id_replication_configuration": {"status": 4}}, r"got 4 \(HotIdReplicationConfiguration\.status\)"),
        (
            {"simulated_quantization": {"enabled": True, "clipping_limits": {"lower": {}}, "num_buckets": 4}},
            r"simulated_quantization\.clipping_limits must be two finite numbers, lower < upper, got \(0\.0, inf\)",
        ),
        (
            {"simulated_quantization": {"enabled": True, "clipping_limits": {"upper": {"value": 1.0}}}},
            r"simulated_quantization\.clipping_limits .* got \(-inf, 1\.0\)",
        ),
        ({"adagrad_momentum": {}}, r"^optimizer adagrad_momentum: exponent must be in \(0, inf\), got 0\.0"),
        (
            {"adam": {"use_non_lazy_adam": True}, "gradient_accumulation_status": "DISABLED"},
            "gradient_accumulation_status must be enabled .* got 'DISABLED'",
        ),
        ({"adam": {"beta1": 1.0}}, r"^optimizer adam: beta1 must be in \[0, 1\), got 1\.0"),
        ({"clipping_limits": {"lower": {"value": 1}, "upper": {}}}, r"clipping_limits .* got \(1\.0, 0\.0\)"),
    ],
)
def test_refuses(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        optimizer_from_proto(parameters(**fields))


ALGORITHMS = OptimizationParameters.DESCRIPTOR.oneofs_by_name["parameters"].fields


def test_an_algorithm_that_is_not_there_is_named() -> None:
    message = OptimizationParameters(adagrad={}, learning_rate={"constant": 0.5})
    others = {name: optimizer for name, optimizer in OPTIMIZERS.items() if name != "adagrad"}
    with pytest.raises(
        ConfigError, match=r"optimizer adagrad is not supported, use one of .*\(OptimizationParameters\.parameters"
    ):
        optimizer_from_proto(message, others)
