"""TensorFlow's operations on the CPU: all of them, in every way of running them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import TPUEmbeddingConfiguration
from tensorflow_findings import findings
from tensorflow_operations import WAYS, arrays, call_function
from tensorflow_scenarios import BY_FEATURE, BY_TABLE, SCENARIOS, Scenario, floats, integers

from anycore import ops
from anycore.ops.system import engine_of
from anycore.optimizers import Adagrad
from anycore.tensorflow import kernels, register_kernels
from anycore.tensorflow.nodes import known_operations

HERE = Path(__file__).parent
INPUTS: dict[str, Any] = {
    "sample_indices_or_row_splits": integers([0, 1, 1, 3], [0, 1, 2, 2]),
    "embedding_indices": integers([1, 2, 9], [6, 5]),
    "aggregation_weights": floats([], []),
    "mode_override": "unspecified",
}
RATES = floats(0.25)


@pytest.fixture(autouse=True)
def _kernels() -> None:
    register_kernels()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_operations_give_what_their_functions_give(name: str, way: Callable[[Scenario], list[Any]]) -> None:
    found = way(SCENARIOS[name])
    ops.shutdown_tpu_system()
    expected = arrays(SCENARIOS[name](call_function))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype


def test_all_operations_are_tried() -> None:
    tried = set()

    def call_and_note(name: str, **arguments: Any) -> Any:
        tried.add(name)
        return call_function(name, **arguments)

    for scenario in SCENARIOS.values():
        scenario(call_and_note)
    tried_elsewhere = {"EnqueueTPUEmbeddingBatch", "ReadVariableXlaSplitND", "AssignVariableXlaConcatND"}
    assert tried | tried_elsewhere == known_operations().keys()


def receive_and_send() -> Any:
    activations = tf.raw_ops.RecvTPUEmbeddingActivations(num_outputs=2, config=BY_FEATURE)
    tf.raw_ops.SendTPUEmbeddingGradients(inputs=activations, learning_rates=RATES, config=BY_FEATURE)
    return activations


def test_tensorflow_1_initialises_and_shuts_down_unchanged() -> None:
    soft_placement = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=soft_placement) as session:
        config = TPUEmbeddingConfiguration.FromString(BY_FEATURE)
        topology = session.run(tf.compat.v1.tpu.initialize_system(embedding_config=config))
        assert tf.tpu.experimental.Topology(topology).num_tpus_per_task == 1
        enqueued = tf.raw_ops.EnqueueTPUEmbeddingArbitraryTensorBatch(**INPUTS)
        activations = tf.raw_ops.RecvTPUEmbeddingActivations(num_outputs=2, config=BY_FEATURE)
        sent = tf.raw_ops.SendTPUEmbeddingGradients(inputs=activations, learning_rates=RATES, config=BY_FEATURE)
        first, second = (session.run([activations, enqueued, sent])[0] for _ in range(2))
        assert not np.array_equal(first, second)
        session.run(tf.compat.v1.tpu.shutdown_system())
    assert not ops.is_tpu_embedding_initialized()


def node(graph: Any, name: str, operation: str, *inputs: str, **attributes: Any) -> None:
    """Adds a node as another language's library would write it, without the attributes that have their defaults."""
    added = graph.node.add(name=name, op=operation, input=inputs)
    for key, value in attributes.items():
        added.attr[key].CopyFrom(value)


def test_an_imported_graph_runs() -> None:
    value = tf.compat.v1.AttrValue
    graph = tf.compat.v1.GraphDef()
    graph.versions.producer = tf.version.GRAPH_DEF_VERSION
    for count in range(3):
        node(graph, f"gradients{count}", "Placeholder", dtype=value(type=tf.float32.as_datatype_enum))
    config = value(s=BY_FEATURE)
    node(graph, "receive", "RecvTPUEmbeddingActivations", num_outputs=value(i=2), config=config)
    gradients = [f"gradients{count}" for count in range(3)]
    node(graph, "send", "SendTPUEmbeddingGradients", *gradients, N=value(i=2), NN=value(i=1), config=config)
    exported = graph.SerializeToString()

    tf.raw_ops.ConfigureTPUEmbedding(config=BY_FEATURE)
    tf.raw_ops.EnqueueTPUEmbeddingArbitraryTensorBatch(**INPUTS)
    with tf.Graph().as_default() as imported, tf.compat.v1.Session() as session:
        tf.import_graph_def(tf.compat.v1.GraphDef.FromString(exported), name="")
        activations = session.run(["receive:0", "receive:1"])
        before = engine_of("", "", config_may_be_empty=True).retrieve("user")["parameters"]
        fed = dict(zip((f"{name}:0" for name in gradients), [*activations, RATES[0]], strict=True))
        session.run(imported.get_operation_by_name("send"), fed)
    after = engine_of("", "", config_may_be_empty=True).retrieve("user")["parameters"]
    np.testing.assert_array_equal(np.flatnonzero((before != after).any(1)), [5, 6])
    np.testing.assert_allclose(after[6], before[6] - 0.25 * activations[1][0], rtol=1e-6)


def test_strings_hold_any_bytes() -> None:
    assert b"\0" in BY_FEATURE
    tf.raw_ops.ConfigureTPUEmbedding(config=BY_FEATURE)
    assert tf.raw_ops.IsTPUEmbeddingInitialized(config=BY_FEATURE)


def test_a_call_waits_for_that_of_another_thread() -> None:
    tf.raw_ops.ConfigureTPUEmbedding(config=BY_FEATURE)
    received: list[Any] = []
    thread = threading.Thread(target=lambda: received.extend(tf.function(receive_and_send)()))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    tf.raw_ops.EnqueueTPUEmbeddingArbitraryTensorBatch(**INPUTS)
    thread.join(30)
    assert [list(activations.shape) for activations in received] == [[3, 4], [3, 2]]


def test_one_thread_for_all_operations_never_hangs() -> None:
    assert findings()["one thread, enqueued"] in ("success", "DeadlineExceededError")
    assert findings()["one thread, not enqueued"] == "DeadlineExceededError"


def test_a_device_is_a_core() -> None:
    first, second = np.split(np.array(findings()["cores by hand"]), 2)
    assert findings()["cores of a strategy"] == findings()["cores by hand"]
    # Both cores look up row 1 first; the second looks up row 2 besides.
    assert first[:2].tolist() == first[2:4].tolist() == first[4:6].tolist() != first[6:].tolist()
    assert (first != second).all()


def test_settings_hold_for_whatever_configures() -> None:
    class Halved(Adagrad):
        """An optimizer of the caller's."""

    starts: list[Any] = []
    try:
        for seed in (1, 1, 2):
            register_kernels(seed=seed, timeout=0.01, optimizers={"adagrad": Halved})
            if len(starts) == 1:
                tf.raw_ops.ConfigureDistributedTPU(tpu_embedding_config=BY_FEATURE)
            else:
                tf.raw_ops.ConfigureTPUEmbedding(config=BY_FEATURE)
            engine = engine_of(BY_FEATURE, "")
            assert type(engine.config.tables[0].optimizer) is Halved
            starts.append(engine.retrieve("video")["parameters"].tolist())
            with pytest.raises(tf.errors.DeadlineExceededError, match=r"waited 0\.01 s"):
                tf.raw_ops.RecvTPUEmbeddingActivations(num_outputs=2, config=BY_FEATURE)
        assert starts[0] == starts[1] != starts[2]
    finally:
        register_kernels(seed=0, timeout=60.0, optimizers={})


def test_nodes_that_say_the_same_have_one_kernel() -> None:
    tf.raw_ops.IsTPUEmbeddingInitialized(config=BY_TABLE)
    known = len(kernels._nodes)
    for _ in range(3):
        tf.function(lambda: tf.raw_ops.IsTPUEmbeddingInitialized(config=BY_TABLE))()
    assert len(kernels._nodes) == known


def test_registering_again_changes_nothing() -> None:
    threads = [threading.Thread(target=register_kernels) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tf.raw_ops.ConfigureTPUEmbedding(config=BY_FEATURE)
    assert tf.raw_ops.IsTPUEmbeddingInitialized()
