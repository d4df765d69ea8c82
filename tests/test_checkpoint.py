"""Checkpoints, written and read here and by TensorFlow's own classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.checkpoint.checkpoint_view import CheckpointView
from tensorflow.python.distribute.sharded_variable import ShardedVariable
from tensorflow_embeddings import VIDEO, embedding, feature_config, features, looked_up, parameters, served, train_step

from anycore import ops
from anycore.tensorflow.checkpoint import StateVariable
from anycore.tensorflow.embedding import TPUEmbedding

State = dict[str, np.ndarray]
KEYS = ["user", "user/accumulators", "user/linears", "video", "video/accumulators", "video/linears"]


def ftrl(**options: Any) -> Any:
    return embedding.FTRL(0.1, **options)


def trained(optimizer: Any = None, steps: int = 2) -> TPUEmbedding:
    tables = TPUEmbedding(feature_config(), optimizer or ftrl())
    for _ in range(steps):
        train_step(tables, features())
    return tables


def state_of(tables: Any) -> State:
    """Returns all state variables by their names in a checkpoint."""
    state = {}
    for table, variables in tables._variables.items():
        for name, variable in variables.items():
            value = variable._state.read(name) if isinstance(variable, StateVariable) else variable
            state[table if name == "parameters" else f"{table}/{name}"] = value.numpy()
    return dict(sorted(state.items()))


def assert_same(ours: State, theirs: State) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def saved(folder: Path, tables: Any) -> str:
    path: str = tf.train.Checkpoint(embedding=tables).save(str(folder / "checkpoint"))
    return path


def restore(path: str, tables: Any) -> None:
    status = tf.train.Checkpoint(embedding=tables).restore(path)
    status.assert_consumed()
    status.assert_existing_objects_matched()


def theirs(kind: Any) -> Any:
    tables = kind(feature_config(), ftrl())
    tables.build()
    return tables


THEIR_KINDS = [embedding.TPUEmbedding, embedding.TPUEmbeddingForServing]


def test_keys_and_values(tmp_path: Path) -> None:
    tables = trained()
    reader = tf.train.load_checkpoint(saved(tmp_path, tables))
    state = state_of(tables)
    assert list(state) == KEYS
    for name, value in state.items():
        stored = reader.get_tensor(f"embedding/{name.replace('/', '.S')}/.ATTRIBUTES/VARIABLE_VALUE")
        np.testing.assert_array_equal(stored, value)


def test_a_checkpoint_tells_a_tpu_to_load_its_tables(tmp_path: Path) -> None:
    def saver_of(tables: Any, name: str) -> Any:
        nodes = CheckpointView(saved(tmp_path / name, tables))._object_graph_proto.nodes
        return [node.registered_saver for node in nodes if node.registered_saver.name]

    ours = saver_of(trained(), "ours")
    assert [saver.name for saver in ours] == ["tf.TPUEmbeddingCallback"]
    assert ours == saver_of(theirs(embedding.TPUEmbedding), "theirs")


def test_restoring_ours_loads_the_tables_of_a_tpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = saved(tmp_path, trained()), theirs(embedding.TPUEmbedding)
    loaded: list[Any] = []
    monkeypatch.setattr(embedding.TPUEmbedding, "_load_variables", lambda tables: loaded.append(tables))
    restore(path, other)
    assert loaded == [other]


def test_training_resumes_where_it_was_saved(tmp_path: Path) -> None:
    tables = trained()
    path, before = saved(tmp_path, tables), state_of(tables)
    train_step(tables, features())
    after = state_of(tables)
    restore(path, tables)
    assert_same(state_of(tables), before)
    train_step(tables, features())
    assert_same(state_of(tables), after)


def test_a_checkpoint_can_be_restored_before_there_are_tables(tmp_path: Path) -> None:
    tables = trained()
    path, before = saved(tmp_path, tables), state_of(tables)
    del tables
    fresh = TPUEmbedding(feature_config(initializer=tf.zeros_initializer()), ftrl())
    status = tf.train.Checkpoint(embedding=fresh).restore(path)
    with pytest.raises(AssertionError, match="Unresolved object in checkpoint"):
        status.assert_consumed()
    fresh.build(2)
    status.assert_consumed()
    assert_same(state_of(fresh), before)


@pytest.mark.parametrize("kind", THEIR_KINDS)
def test_ours_restores_into_theirs(tmp_path: Path, kind: Any) -> None:
    ours = trained()
    other = theirs(kind)
    restore(saved(tmp_path, ours), other)
    assert_same(state_of(other), state_of(ours))


@pytest.mark.parametrize("kind", THEIR_KINDS)
@pytest.mark.parametrize("deferred", [False, True])
def test_theirs_restores_into_ours(tmp_path: Path, kind: Any, deferred: bool) -> None:
    other = theirs(kind)
    for variables in other._variables.values():
        for variable in variables.values():
            variable.assign(tf.random.uniform(variable.shape, 1, 2))
    path = saved(tmp_path, other)
    ours = TPUEmbedding(feature_config(), ftrl())
    if not deferred:
        ours.build(2)
        restore(path, ours)
    else:
        status = tf.train.Checkpoint(embedding=ours).restore(path)
        ours.build(2)
        status.assert_consumed()
    assert_same(state_of(ours), state_of(other))
    train_step(ours, features())


def test_variables_that_were_sharded_over_hosts_restore(tmp_path: Path) -> None:
    # As TensorFlow's class keeps them under a TPUStrategy of three hosts: 8 rows as 3, 3 and 2.
    ours = trained()
    values = {name: value + 1 for name, value in state_of(ours).items()}
    root = tf.__internal__.tracking.AutoTrackable()
    for name, value in values.items():
        root._track_trackable(ShardedVariable([tf.Variable(part) for part in np.array_split(value, 3)], name), name)
    restore(saved(tmp_path, root), ours)
    assert_same(state_of(ours), values)


def test_tables_of_another_size_are_refused(tmp_path: Path) -> None:
    tables = trained()
    path, before = saved(tmp_path, tables), state_of(tables)
    del tables
    other = embedding.TableConfig(9, 4, combiner="sum", name="video")
    larger = {name: embedding.FeatureConfig(other) for name in ("watched", "favorited")}
    tables = TPUEmbedding(larger, ftrl())
    tables.build(2)
    with pytest.raises(ValueError, match=r"incompatible tensor with shape \(8, 4\) .* with shape \(9, 4\) and name"):
        tf.train.Checkpoint(embedding=tables).restore(path)
    del tables
    again = TPUEmbedding(larger, ftrl())
    tf.train.Checkpoint(embedding=again).restore(path)
    with pytest.raises(ValueError, match="incompatible tensor"):
        again.build(2)
    assert not ops.is_tpu_embedding_initialized()
    assert before["video"].shape == (8, 4)


def test_a_part_can_be_restored(tmp_path: Path) -> None:
    tables = trained(embedding.SGD(0.1))
    path, before = saved(tmp_path, tables), parameters(tables)
    del tables
    adagrad = TPUEmbedding(feature_config(), embedding.Adagrad(0.1, initial_accumulator_value=0.75))
    adagrad.build(2)
    status = tf.train.Checkpoint(embedding=adagrad).restore(path)
    with pytest.raises(AssertionError, match=r"2 Python objects .* not bound to .*<accumulators of table 'video'>"):
        status.assert_consumed()
    assert_same(parameters(adagrad), before)
    assert (state_of(adagrad)["video/accumulators"] == 0.75).all()
    tf.train.Checkpoint(other=tf.Variable(1.0), embedding=adagrad).restore(path).expect_partial()


def test_a_manager_keeps_the_latest(tmp_path: Path) -> None:
    tables = trained()
    step = tf.Variable(0)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(embedding=tables, step=step), str(tmp_path), max_to_keep=2)
    states = []
    for _ in range(3):
        step.assign_add(1)
        train_step(tables, features())
        states.append(state_of(tables))
        manager.save()
    assert len(manager.checkpoints) == 2
    manager.checkpoint.restore(manager.checkpoints[0])
    assert step == 2
    assert_same(state_of(tables), states[1])
    assert manager.restore_or_initialize() == manager.latest_checkpoint
    assert_same(state_of(tables), states[2])


def test_a_save_that_failed_leaves_nothing_behind(tmp_path: Path) -> None:
    tables = trained()
    tables._states["video"].read("parameters")  # the others are still to be read
    train_step(tables, features())
    path = saved(tmp_path, tables)
    after = state_of(tables)
    restore(path, tables)
    assert_same(state_of(tables), after)


def test_asynchronous_checkpoints_are_of_one_step(tmp_path: Path) -> None:
    tables = trained()
    checkpoint = tf.train.Checkpoint(embedding=tables)
    options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    other = theirs(embedding.TPUEmbeddingForServing)
    for _ in range(3):
        before = state_of(tables)
        path = checkpoint.save(str(tmp_path / "checkpoint"), options=options)
        train_step(tables, features())
        checkpoint.sync()
        restore(path, other)
        assert_same(state_of(other), before)


def test_own_slot_variables_are_saved_and_restored(tmp_path: Path) -> None:
    made: dict[str, tf.Variable] = {}

    def make_slots(table: Any, names: list[str], initializers: list[Any]) -> dict[str, tf.Variable]:
        slots = {
            name: tf.Variable(initializer(table.shape, dtype=tf.float32))
            for name, initializer in zip(names, initializers, strict=True)
        }
        made.update({f"{table.name.removesuffix(':0')}/{name}": slot for name, slot in slots.items()})
        return slots

    def engine_state() -> State:
        return {
            f"{name}/{slot}": value
            for name in ("video", "user")
            for slot, value in tables._system.engine.retrieve(name).items()
            if slot != "parameters"
        }

    tables = trained(ftrl(slot_variable_creation_fn=make_slots))
    before = engine_state()
    path = saved(tmp_path, tables)
    assert_same({name: slot.numpy() for name, slot in made.items()}, before)
    keys = {name for name, _ in tf.train.list_variables(path)}
    assert "embedding/_variables/video/linears/.ATTRIBUTES/VARIABLE_VALUE" in keys
    train_step(tables, features())
    restore(path, tables)
    assert_same(engine_state(), before)

    other = embedding.TPUEmbeddingForServing(feature_config(), ftrl(slot_variable_creation_fn=make_slots))
    other.build()
    restore(path, other)
    assert_same({name: slot.numpy() for name, slot in made.items()}, before)

    del tables
    tables = TPUEmbedding(feature_config(), ftrl(slot_variable_creation_fn=make_slots))
    tf.train.Checkpoint(embedding=tables).restore(path)
    tables.build(2)
    assert_same(engine_state(), before)

    options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    with pytest.raises(NotImplementedError, match="slot_variable_creation_fn"):
        tf.train.Checkpoint(embedding=tables).save(str(tmp_path / "asynchronous"), options=options)


def test_a_model_is_exported_with_its_tables(tmp_path: Path) -> None:
    tables = trained()
    config = tables._feature_config
    inputs = features()

    signature = tf.nest.map_structure(lambda _: tf.SparseTensorSpec([None, None], tf.int64), config)
    model = tf.Module()
    model.tables = tables
    model.serve = tf.function(
        lambda batch: embedding.serving_embedding_lookup(batch, None, tables.embedding_tables, config),
        input_signature=[signature],
    )
    tf.saved_model.save(model, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    tables.enqueue(inputs, training=False)
    for name, activations in tables.dequeue().items():
        np.testing.assert_allclose(loaded.serve(inputs)[name], activations, rtol=1e-6)
    operations = {node.op for node in loaded.serve.concrete_functions[0].graph.as_graph_def().node}
    assert not [operation for operation in operations if "TPUEmbedding" in operation]


def test_tables_are_copies() -> None:
    tables = TPUEmbedding(feature_config(), embedding.SGD())
    tables.build(2)
    config = tables._feature_config["watched"].table
    before = tables.embedding_tables[config]
    train_step(tables, features())
    np.testing.assert_array_equal(before, VIDEO)
    before.assign(tf.zeros_like(before))
    assert (tables.embedding_tables[config].numpy()[2:] == VIDEO[2:]).all()
    assert set(tables.embedding_tables) == {feature.table for feature in tables._feature_config.values()}


def test_tables_in_a_function_are_those_of_its_run() -> None:
    tables = TPUEmbedding(feature_config(), embedding.SGD())
    tables.build(2)

    serve = tf.function(lambda batch: served(tables, batch))
    for _ in range(2):
        train_step(tables, features())
        for name, activations in looked_up(tables, features()).items():
            np.testing.assert_allclose(serve(features())[name], activations, rtol=1e-6)
