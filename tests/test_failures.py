"""Python's exceptions as TensorFlow's errors, in kernels that run and in kernels that are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_operations import WAYS, call
from tensorflow_scenarios import BY_FEATURE, BY_TABLE, floats, integers

from anycore import ops
from anycore.tensorflow import kernels, register_kernels
from anycore.tensorflow.failures import status_of


@pytest.fixture(autouse=True)
def _kernels() -> None:
    register_kernels()


def receive(call: Any, count: int = 2, config: bytes = BY_FEATURE) -> Any:
    return call("RecvTPUEmbeddingActivations", num_outputs=count, config=config)


def enqueue(call: Any, ids: Any) -> None:
    call(
        "EnqueueTPUEmbeddingArbitraryTensorBatch",
        sample_indices_or_row_splits=integers([], []),
        embedding_indices=integers(ids, [0]),
        aggregation_weights=floats([], []),
        mode_override="unspecified",
    )


def send(call: Any, *shapes: Any) -> None:
    gradients = [np.zeros(shape, np.float32) for shape in shapes]
    call("SendTPUEmbeddingGradients", inputs=gradients, learning_rates=floats(1), config=BY_FEATURE)


def enqueue_batch(call: Any) -> None:
    call("EnqueueTPUEmbeddingBatch", batch=[b""], mode_override="", device_ordinal=-1, combiners=[])


errors: Any = tf.errors
FAILURES: dict[str, tuple[type[Exception], str, Any]] = {
    "config": (errors.InvalidArgumentError, "config", lambda call: call("ConfigureTPUEmbedding", config=b"\1\0")),
    "another config": (errors.InvalidArgumentError, "is not the one", lambda call: receive(call, config=BY_TABLE)),
    "ids": (errors.InvalidArgumentError, "feature 'watched'.*got 99", lambda call: enqueue(call, [1, 99])),
    "shapes": (errors.InvalidArgumentError, r"'watched'.*\[3, 4\]", lambda call: send(call, (1, 1), (1, 2))),
    "order": (errors.FailedPreconditionError, "no training step waits", lambda call: send(call, (3, 4), (3, 2))),
    "timeout": (errors.DeadlineExceededError, "never enqueued.*enqueue.*first", receive),
    "batches": (errors.UnimplementedError, "not published", enqueue_batch),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FAILURES)
def test_refusals_have_their_code_and_message(name: str, way: Any) -> None:
    kind, message, refused = FAILURES[name]
    ops.configure_tpu_embedding(BY_FEATURE, timeout=0.02)

    def scenario(call: Any) -> Any:
        refused(call)
        return tf.zeros([])

    with pytest.raises(kind, match=message):
        way(scenario)
    enqueue(call, [1])
    assert len(receive(call)) == 2


def test_a_wrong_count_is_refused() -> None:
    ops.configure_tpu_embedding(BY_FEATURE)
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_outputs must be 2, got 3"):
        receive(call, 3)


def test_without_a_system_a_precondition_is_missing() -> None:
    with pytest.raises(tf.errors.FailedPreconditionError, match="not configured"):
        receive(call)


class OddError(Exception):
    """An exception that nobody raises on purpose."""


UNEXPECTED = {
    "out of memory": (MemoryError("12 GB"), tf.errors.ResourceExhaustedError, "12 GB"),
    "out of memory, silently": (MemoryError(), tf.errors.ResourceExhaustedError, "MemoryError"),
    "a defect": (ZeroDivisionError("division by zero"), tf.errors.InternalError, "ZeroDivisionError: division by zero"),
    "odd letters": (OddError("zero\0byte \udcff ü"), tf.errors.InternalError, r"OddError: zero\\0byte \\udcff ü"),
    "an exit": (SystemExit(3), tf.errors.InternalError, "SystemExit: 3"),
    "a status": (tf.errors.DataLossError(None, None, "lost"), tf.errors.DataLossError, "lost"),
}


@pytest.mark.parametrize("name", UNEXPECTED)
def test_whatever_a_function_raises_arrives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error, kind, message = UNEXPECTED[name]

    def function(**_: Any) -> None:
        raise error

    operation = kernels._operations["IsTPUEmbeddingInitialized"]
    monkeypatch.setattr(operation, "function", function)
    with pytest.raises(kind, match=message):
        tf.raw_ops.IsTPUEmbeddingInitialized()
    with pytest.raises(kind, match=message):
        tf.function(lambda: tf.raw_ops.IsTPUEmbeddingInitialized())()


def test_defects_go_to_the_log_with_their_traceback(caplog: pytest.LogCaptureFixture) -> None:
    assert status_of(OddError("text")) == (tf.errors.INTERNAL, "test_failures.OddError: text")
    (record,) = caplog.records
    assert record.exc_info
    assert record.exc_info[0] is OddError
    status_of(NotImplementedError("planned"))
    assert len(caplog.records) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_kernel_that_cannot_be_made_fails(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise MemoryError("no room for a node")

    monkeypatch.setattr(kernels, "attributes_of", refuse)
    # An attribute that no other test has, or an earlier kernel would run.
    name = f"unseen {way.__name__}"
    with pytest.raises(tf.errors.ResourceExhaustedError, match="no room for a node"):
        way(lambda call: call("IsTPUEmbeddingInitialized", config=name))


def test_outputs_of_a_wrong_kind_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    operation = kernels._operations["ConfigureDistributedTPU"]
    monkeypatch.setattr(operation, "function", lambda **_: 3)
    with pytest.raises(tf.errors.InternalError, match="TypeError"):
        tf.raw_ops.ConfigureDistributedTPU()
    operation = kernels._operations["XlaSplitND"]
    monkeypatch.setattr(operation, "function", lambda **_: [1.0])
    with pytest.raises(tf.errors.InternalError):
        tf.raw_ops.XlaSplitND(input=[1.0, 2.0], N=2, num_splits=[2])
