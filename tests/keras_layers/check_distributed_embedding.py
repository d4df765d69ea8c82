"""Our `DistributedEmbedding` beside the one of keras-rs, on the same objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import keras_rs
import numpy as np
import pytest
from numpy.typing import NDArray

from anycore import ConfigError, InputError
from anycore.keras import DistributedEmbedding

BATCH = 8


def table(name: str = "t", vocabulary_size: int = 20, **options: Any) -> Any:
    seed = keras.initializers.RandomUniform(-1, 1, seed=vocabulary_size)
    return keras_rs.layers.TableConfig(name, vocabulary_size, 4, **{"initializer": seed, "optimizer": "sgd", **options})


def feature(table: Any, *ids: int, name: str = "f", batch: int | None = BATCH) -> Any:
    return keras_rs.layers.FeatureConfig(name, table, (batch, *ids), (batch, table.embedding_dim))


def both(feature_configs: Any, **options: Any) -> list[Any]:
    return [kind(feature_configs, **options) for kind in (DistributedEmbedding, keras_rs.layers.DistributedEmbedding)]


def random_ids(*shape: int, below: int = 20) -> NDArray[np.int32]:
    return np.random.default_rng(0).integers(0, below, shape).astype(np.int32)


def random_weights(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).uniform(0, 2, shape).astype(np.float32)


def as_numpy(nest: Any) -> Any:
    return keras.tree.map_structure(keras.ops.convert_to_numpy, nest)


def assert_near(a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-7) -> None:
    keras.tree.assert_same_structure(a, b)
    for ours, theirs in zip(keras.tree.flatten(as_numpy(a)), keras.tree.flatten(as_numpy(b)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol, atol)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("width", [(), (1,), (3,)])
@pytest.mark.parametrize("weighted", [False, True])
def test_lookups(combiner: str, width: tuple[int, ...], weighted: bool) -> None:
    ours, theirs = both(feature(table(combiner=combiner), *width))
    ids = random_ids(BATCH, *width)
    weights = random_weights(BATCH, *width) if weighted else None
    assert_near(ours(ids, weights), theirs(ids, weights))


def nest() -> Any:
    shared = table("shared")
    return {
        "user": (feature(shared, 2, name="a"), feature(table("other", 30), name="b")),
        "item": [feature(shared, name="c")],
    }


def test_a_nest_with_a_shared_table() -> None:
    ids = {"user": (random_ids(BATCH, 2), random_ids(BATCH)), "item": [random_ids(BATCH)]}
    ours, theirs = both(nest())
    assert_near(ours(ids), theirs(ids))
    assert_near(ours.get_embedding_tables(), theirs.get_embedding_tables())
    shapes = {"user": ((BATCH, 2), (BATCH,)), "item": [(BATCH,)]}
    assert ours.compute_output_shape(shapes) == theirs.compute_output_shape(shapes)


def test_starting_values_are_those_of_the_initializer() -> None:
    for initializer in ("zeros", keras.initializers.VarianceScaling(mode="fan_out", seed=3)):
        ours, theirs = built(both(feature(table(initializer=initializer))))
        assert_near(ours.get_embedding_tables(), theirs.get_embedding_tables())


def built(layers: list[Any]) -> list[Any]:
    for layer in layers:
        layer(random_ids(BATCH))
    return layers


def distinct_ids(batches: int, below: int) -> NDArray[np.int32]:
    """Returns [batches · BATCH, 3] ids, which do not repeat in a batch."""
    random = np.random.default_rng(0)
    return np.concatenate([random.permutation(below)[: BATCH * 3].reshape(BATCH, 3) for _ in range(batches)])


@pytest.mark.parametrize(
    ("optimizer", "ids"),
    [
        (keras.optimizers.SGD(0.1), random_ids(5 * BATCH, 3)),
        # With TensorFlow, Keras' Adagrad squares each gradient of a repeated id by itself.
        (keras.optimizers.Adagrad(0.1), distinct_ids(5, 40)),
    ],
)
def test_training(optimizer: keras.optimizers.Optimizer, ids: NDArray[np.int32]) -> None:
    # Theirs is trained by the optimizer of the model, ours by that of the table.
    targets = random_weights(5 * BATCH, 4)
    tables = []
    for layer in both(feature(table("t", 40, optimizer=optimizer), 3)):
        symbol = keras.Input((3,), dtype="int32")
        model = keras.Model(symbol, layer(symbol))
        model.compile(type(optimizer).from_config(optimizer.get_config()), "mse")
        model.fit(ids, targets, batch_size=BATCH, epochs=4, shuffle=False, verbose=0)
        tables.append(layer.get_embedding_tables())
    assert_near(tables[0], tables[1], rtol=1e-4, atol=1e-6)


KERAS = [
    keras.optimizers.SGD(0.1, clipvalue=0.02),
    keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.2),
    keras.optimizers.Adam(0.1, beta_1=0.8, beta_2=0.9, epsilon=1e-3),
    keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)),
    keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.02, beta=0.1),
    keras.optimizers.RMSprop(0.1, rho=0.8, momentum=0.5, epsilon=1e-3),
    keras.optimizers.RMSprop(0.1, rho=0.8, epsilon=1e-3, centered=True),
    keras.optimizers.Adadelta(0.1, rho=0.8, epsilon=1e-3),
    keras.optimizers.Lion(0.1),
]


@pytest.mark.parametrize("optimizer", KERAS, ids=lambda optimizer: optimizer.name)
def test_every_optimizer_has_the_arithmetic_of_keras(optimizer: keras.optimizers.Optimizer) -> None:
    # On rows that every step touches: Keras updates the others too. It computes Adam's corrections in float32.
    layer = DistributedEmbedding(feature(table(vocabulary_size=BATCH, optimizer=optimizer)))
    symbol = keras.Input((), dtype="int32")
    model = keras.Model(symbol, layer(symbol))
    model.compile("sgd", lambda wanted, got: keras.ops.sum(keras.ops.multiply(wanted, got)))
    ids = np.arange(BATCH, dtype=np.int32)
    twin = type(optimizer).from_config(optimizer.get_config())
    variable = keras.Variable(as_numpy(layer.get_embedding_tables()["t"]))
    for step in range(5):
        gradient = np.random.default_rng(step).normal(size=(BATCH, 4)).astype(np.float32)
        model.fit(ids, gradient, batch_size=BATCH, shuffle=False, verbose=0)
        twin.apply([keras.ops.convert_to_tensor(gradient)], [variable])
    assert_near(layer.get_embedding_tables()["t"], variable, rtol=2e-5, atol=5e-6)


@pytest.mark.parametrize(
    ("optimizer", "problem"),
    [
        (keras.optimizers.SGD(momentum=0.9), r"table 't': SGD\(momentum=0\.9\) has no twin"),
        (keras.optimizers.Adam(amsgrad=True), r"Adam\(amsgrad=True\)"),
        (keras.optimizers.Adagrad(epsilon=1e-3), r"Adagrad\(epsilon=0\.001\)"),
        (keras.optimizers.Adagrad(initial_accumulator_value=0.0), r"Adagrad\(initial_accumulator_value=0\.0\) must be"),
        (keras.optimizers.Adam(weight_decay=0.1), r"Adam\(weight_decay=0\.1\)"),
        (keras.optimizers.SGD(clipnorm=1.0), r"SGD\(clipnorm=1\.0\)"),
        (keras.optimizers.SGD(use_ema=True), r"SGD\(use_ema=True\)"),
        (keras.optimizers.SGD(gradient_accumulation_steps=2), r"SGD\(gradient_accumulation_steps=2\)"),
        (keras.optimizers.AdamW(), "there is no AdamW for tables"),
        (keras.optimizers.Nadam(), "there is no Nadam for tables"),
        (keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()), "there is no LossScaleOptimizer"),
        (object(), "there is no object for tables"),
        (None, "table 't' has no optimizer"),
    ],
)
def test_what_cannot_train_a_table_is_refused(optimizer: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        DistributedEmbedding(feature(table(optimizer=optimizer)))


def test_other_options() -> None:
    for placement in ("sparsecore", "default_device", "auto"):
        DistributedEmbedding(feature(table(placement=placement)), table_stacking=[["t"]])
    with pytest.raises(ConfigError, match="table 't': placement must be one of"):
        DistributedEmbedding(feature(table(placement="moon")))
    with pytest.raises(ConfigError, match="update_stats must be False"):
        DistributedEmbedding(feature(table()), update_stats=True)
    with pytest.raises(ConfigError, match=r"feature_config\['f'\] must have a table"):
        DistributedEmbedding({"f": "t"})


def test_preprocessed_inputs() -> None:
    layer = DistributedEmbedding({"f": feature(table(combiner="mean"), 3)})
    ids, weights = {"f": random_ids(BATCH, 3)}, {"f": random_weights(BATCH, 3)}
    assert_near(layer(layer.preprocess(ids)), layer(ids))
    assert_near(layer(layer.preprocess(ids, weights)), layer(ids, weights))
    symbols = keras.tree.map_structure(
        lambda x: keras.Input(x.shape[1:], dtype=x.dtype), layer.preprocess(ids, weights)
    )
    assert layer(symbols)["f"].shape == (None, 4)
    with pytest.raises(InputError, match="nested as its features are"):
        layer.preprocess(ids["f"])


def test_ragged_arrays_become_dense() -> None:
    layer = DistributedEmbedding([feature(table(combiner="sum"), 3)])
    rows = np.array([np.array([1, 2, 3, 4]), np.array([], np.int64), np.array([5])], np.object_)
    weights = np.array([np.ones(4), np.ones(0), np.full(1, 0.5)], np.object_)
    rows_of_table = as_numpy(layer.get_embedding_tables())["t"]
    wanted = np.stack([rows_of_table[1:4].sum(0), np.zeros(4), rows_of_table[5]])
    assert_near(layer(layer.preprocess([rows]))[0], wanted)
    assert_near(layer(layer.preprocess([rows], [weights]))[0], wanted * [[1], [1], [0.5]])
    assert layer.preprocess([rows])["anycore_preprocessed"]["inputs"][0].tolist() == [[1, 2, 3], [-1] * 3, [5, -1, -1]]


def test_a_saved_model_has_its_optimizers(tmp_path: Path) -> None:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    config = nest()
    config["user"][0].table.optimizer = keras.optimizers.Adam(schedule)
    layer = DistributedEmbedding(config, table_stacking=None, name="tables")
    symbols = {
        "user": (keras.Input((2,), dtype="int32"), keras.Input((), dtype="int32")),
        "item": [keras.Input((), dtype="int32")],
    }
    activations = layer(symbols)
    model = keras.Model(symbols, keras.layers.Add()(keras.tree.flatten(activations)))
    model.compile("sgd", "mse")
    ids = {"user": (random_ids(BATCH, 2), random_ids(BATCH)), "item": [random_ids(BATCH)]}
    targets = random_weights(BATCH, 4)
    model.fit(ids, targets, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for each in (model, again):
        each.fit(ids, targets, shuffle=False, verbose=0)
    assert again.get_layer("tables").get_config() == layer.get_config()
    assert_near(again.get_layer("tables").get_embedding_tables(), layer.get_embedding_tables(), 0, 0)
    assert again.get_layer("tables").updates == 2
