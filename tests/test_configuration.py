"""TensorFlow's objects as our configuration, compared with the messages that TensorFlow makes of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2
from tensorflow_embeddings import embedding

from anycore import ConfigError, EmbeddingConfig
from anycore.optimizers import DynamicInput, SimulatedQuantization
from anycore.tensorflow.configuration import dynamic_learning_rates, embedding_config, table_configs, tables_of


def features_of(*tables: Any) -> list[Any]:
    return [embedding.FeatureConfig(table) for table in tables]


def optimizer_of(optimizer: Any, **table_options: Any) -> Any:
    features = features_of(embedding.TableConfig(8, 4, name="video", optimizer=optimizer, **table_options))
    return table_configs(tables_of(features, None))[0].optimizer


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda **options: embedding.SGD(0.3, **options),
    "adagrad": lambda **options: embedding.Adagrad(0.3, **options),
    "adagrad_momentum": lambda **options: embedding.AdagradMomentum(
        0.3, momentum=0.8, use_nesterov=True, exponent=3, beta2=0.9, epsilon=0.1, **options
    ),
    "ftrl": lambda **options: embedding.FTRL(
        0.3,
        learning_rate_power=-0.25,
        l1_regularization_strength=0.5,
        l2_regularization_strength=0.125,
        beta=0.75,
        multiply_linear_by_learning_rate=True,
        allow_zero_accumulator=True,
        **options,
    ),
    "adam": lambda **options: embedding.Adam(0.3, beta_1=0.5, beta_2=0.75, epsilon=0.25, **options),
    "non_lazy_adam": lambda **options: embedding.Adam(0.3, lazy_adam=False, sum_inside_sqrt=False, **options),
}
COMMON: dict[str, dict[str, Any]] = {
    "none": {},
    "clipping": {"clip_weight_min": -1.0, "clip_weight_max": 2.0, "clipvalue": 0.5},
    "one side": {"clip_weight_max": 2.0, "clipvalue": (None, 0.5)},
    "decay": {"weight_decay_factor": 0.25, "multiply_weight_decay_factor_by_learning_rate": True},
    "multiplied without decay": {"multiply_weight_decay_factor_by_learning_rate": True},
}


@pytest.mark.parametrize("options", COMMON.values(), ids=COMMON)
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizers_are_those_of_tensorflows_message(make: Any, options: dict[str, Any]) -> None:
    table = embedding.TableConfig(
        8, 4, name="video", optimizer=make(**options), quantization_config=embedding.QuantizationConfig(5, -1.0, 1.0)
    )
    table.optimizer.low_dimensional_packing_status = 0  # False, which protobuf 7 refuses for an enum
    theirs = tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration(mode=2, num_hosts=1, num_tensor_cores=1)
    table._set_table_descriptor(theirs.table_descriptor.add(), 1, {})
    theirs.feature_descriptor.add(table_id=0, input_shape=[2])

    features = features_of(table)
    ours = embedding_config(
        tables_of(features, None),
        features,
        [""],
        [tf.TensorShape([2])],
        num_tensor_cores=1,
        pipeline_execution_with_tensor_core=False,
    )
    assert EmbeddingConfig.from_proto(ours.to_proto()) == EmbeddingConfig.from_proto(theirs)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_flags_of_tensorflow_are_no_enums_here(make: Any) -> None:
    assert optimizer_of(make(low_dimensional_packing_status=True)).low_dimensional_packing
    assert not optimizer_of(make()).low_dimensional_packing


def test_accumulation_and_quantization() -> None:
    optimizer = optimizer_of(
        embedding.SGD(use_gradient_accumulation=False),
        quantization_config=embedding.QuantizationConfig(num_buckets=3, lower=-1, upper=1),
    )
    assert not optimizer.gradient_accumulation
    assert optimizer.simulated_quantization == SimulatedQuantization((-1, 1), 3)


def test_hyper_parameters_out_of_range_name_the_table() -> None:
    with pytest.raises(ConfigError, match=r"^table 'video': .*lr_power must be in \(-inf, 0\], got 1"):
        optimizer_of(embedding.FTRL(learning_rate_power=1))


def test_tables_stand_in_the_order_of_their_first_use() -> None:
    first, second = embedding.TableConfig(8, 4, name="first"), embedding.TableConfig(8, 4, name="second")
    tables = tables_of(features_of(second, first, second), embedding.SGD())
    assert [table.name for table in tables] == ["second", "first"]
    assert [table.shape for table in tables] == [(8, 4), (8, 4)]


def test_a_tables_own_optimizer_goes_first_and_nothing_of_the_callers_changes() -> None:
    own = embedding.Adam()
    table, other = embedding.TableConfig(8, 4, optimizer=own), embedding.TableConfig(8, 4)
    shared = embedding.Adagrad()
    tables = tables_of(features_of(table, other), shared)
    assert [each.optimizer for each in tables] == [own, shared]
    assert [each.name for each in tables] == ["table_0", "table_1"]
    assert (table.name, other.name, other.optimizer) == (None, None, None)


def test_names_are_unique() -> None:
    features = features_of(embedding.TableConfig(8, 4, name="video"), embedding.TableConfig(8, 4, name="video"))
    with pytest.raises(ValueError, match=r"Tables must have a unique name\. Multiple tables with name video found\."):
        tables_of(features, embedding.SGD())


def test_callable_learning_rates_become_tags() -> None:
    def slow() -> float:
        return 0.1

    def fast() -> float:
        return 0.2

    rates = [fast, 0.5, slow, fast]
    features = features_of(
        *(embedding.TableConfig(8, 4, optimizer=embedding.SGD(rate)) for rate in rates),
    )
    tables = tables_of(features, None)
    assert dynamic_learning_rates(tables) == [fast, slow]
    configs = table_configs(tables)
    assert [config.optimizer.learning_rate for config in configs] == [
        DynamicInput(0),
        0.5,
        DynamicInput(1),
        DynamicInput(0),
    ]


def test_initial_slots() -> None:
    initial = {
        name: tables_of(features_of(embedding.TableConfig(8, 4, optimizer=make())), None)[0].initial_slots
        for name, make in OPTIMIZERS.items()
    }
    assert initial == {
        "sgd": {},
        "adagrad": {"accumulators": 0.1},
        "adagrad_momentum": {"accumulators": 0.0, "momenta": 0.0},
        "ftrl": {"accumulators": 0.1, "linears": 0.0},
        "adam": {"momenta": 0.0, "velocities": 0.0},
        "non_lazy_adam": {"momenta": 0.0, "velocities": 0.0},
    }


def refused(optimizer: Any, **table_options: Any) -> str:
    with pytest.raises(ValueError, match=r"\w") as caught:
        optimizer_of(optimizer, **table_options)
    return str(caught.value)


def test_optimizers_that_are_refused() -> None:
    assert refused(None).startswith("<class 'NoneType'> is an unsupported optimizer class. Please pass an instance of")
    assert "CustomOptimizer'> is an unsupported optimizer class" in refused(embedding.CustomOptimizer(lambda: 0))
    assert "SGD, Adagrad, AdagradMomentum, FTRL, Adam" in refused("adagrad")
    assert "pass a callable" in refused(embedding.SGD(tf.Variable(0.1)))


def test_a_learning_rate_may_be_a_tensor_with_one_known_number() -> None:
    assert optimizer_of(embedding.SGD(tf.constant(0.25))).learning_rate == 0.25
    unknown = r"table 'video': the learning rate is .*, which is not one number that is known now; pass a number, or a"
    for tensor in (tf.constant([0.1, 0.2]), tf.constant("fast")):
        assert re.match(unknown, refused(embedding.SGD(tensor)), re.DOTALL)

    def refused_in_a_function(rate: Any) -> None:
        assert re.match(unknown, refused(embedding.SGD(rate)))

    tf.function(refused_in_a_function, autograph=False)(tf.constant(0.1))


def test_tables_that_are_refused() -> None:
    combiner = embedding.CustomCombiner(lambda valency, vectors: vectors[0], max_valency=4)
    assert "table 'video': a CustomCombiner works on SparseCore alone" in refused(embedding.SGD(), combiner=combiner)
    assert "table 'video': dtype must be float32, got int32" in refused(embedding.SGD(), dtype=tf.int32)
