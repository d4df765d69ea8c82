"""The memory of tensors: not copied on the way in, written where it shall be, and given back."""

from __future__ import annotations

import gc
import resource
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_scenarios import BY_FEATURE, floats, integers

from anycore import ops
from anycore.arrays import address
from anycore.tensorflow import kernels, register_kernels
from anycore.tensorflow.c_api import C

DTYPES = [
    *(tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64),
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128, tf.string),
]


@pytest.fixture(autouse=True)
def _kernels() -> None:
    register_kernels()


def noting(operation: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Collects the arguments of an operation's function, which does its work besides."""
    found = kernels._operations[operation]
    calls: list[dict[str, Any]] = []
    function = found.function

    def noted(**arguments: Any) -> Any:
        calls.append(arguments)
        return function(**arguments)

    monkeypatch.setattr(found, "function", noted)
    return calls


def test_inputs_are_tensorflows_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = noting("TPUEmbeddingActivations", monkeypatch)
    given = [tf.random.uniform([64, 16]), tf.random.uniform([8, 4])]
    tf.raw_ops.TPUEmbeddingActivations(
        embedding_variable=given[0], sliced_activations=given[1], table_id=0, lookup_id=0
    )
    arrays = [calls[0]["embedding_variable"], calls[0]["sliced_activations"]]
    for array, tensor in zip(arrays, given, strict=True):
        assert address(array) == address(np.asarray(memoryview(tensor)))
        assert (array.shape, array.dtype) == (tuple(tensor.shape), np.float32)
        assert not array.flags.writeable


def test_activations_are_written_into_tensorflows_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = noting("RecvTPUEmbeddingActivations", monkeypatch)
    ops.configure_tpu_embedding(BY_FEATURE)
    ops.enqueue_tpu_embedding_arbitrary_tensor_batch([[], []], [[1, 2, 3], [4, 5, 6]], [[], []], "training")
    received = tf.raw_ops.RecvTPUEmbeddingActivations(num_outputs=2, config=BY_FEATURE)
    for array, tensor in zip(calls[0]["out"], received, strict=True):
        assert address(array) == address(np.asarray(memoryview(tensor)))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [[4], [2, 0], [2, 3, 1, 2, 1]], ids=str)
def test_tensors_of_every_type_and_shape_come_and_go(dtype: tf.DType, shape: list[int]) -> None:
    count = int(np.prod(shape))
    letters = tf.constant([b"", b"\0", b"abc", b"\xff" * 5000] * 3)[:count]
    whole = tf.reshape(letters if dtype == tf.string else tf.cast(tf.range(count), dtype), shape)
    grid = [2] + [1] * (len(shape) - 1)
    slices = tf.raw_ops.XlaSplitND(input=whole, N=2, num_splits=grid)
    assert slices[0].dtype == dtype
    merged = tf.raw_ops.XlaConcatND(inputs=slices, num_concats=grid)
    np.testing.assert_array_equal(merged, whole)


def train(steps: int) -> None:
    """Takes tiny steps in a tf.function: three inputs, two strings and two outputs each."""
    ops.configure_tpu_embedding(BY_FEATURE)
    rows = integers([], [])
    empty = floats([], [])
    rate = floats(0.1)

    @tf.function  # type: ignore[untyped-decorator]
    def step(ids: Any) -> Any:
        tf.raw_ops.EnqueueTPUEmbeddingArbitraryTensorBatch(
            sample_indices_or_row_splits=rows,
            embedding_indices=[ids, ids],
            aggregation_weights=empty,
            mode_override="unspecified",
        )
        activations = tf.raw_ops.RecvTPUEmbeddingActivations(num_outputs=2, config=BY_FEATURE)
        tf.raw_ops.SendTPUEmbeddingGradients(inputs=activations, learning_rates=rate, config=BY_FEATURE)
        return activations

    ids = tf.constant([1, 2, 3])
    for _ in range(steps):
        step(ids)


def test_every_tensor_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    held: Counter[int] = Counter()

    def counting(name: str, change: int) -> None:
        function = getattr(C, name)

        def counted(*arguments: Any) -> Any:
            result = function(*arguments)
            held[change] += 1
            return result

        monkeypatch.setattr(C, name, counted)

    for name in ("TF_GetInput", "TF_AllocateOutput", "TF_NewStatus"):
        counting(name, 1)
    for name in ("TF_DeleteTensor", "TF_DeleteStatus"):
        counting(name, -1)
    train(3)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.raw_ops.XlaSplitND(input=[1.0, 2.0], N=2, num_splits=[3])
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.raw_ops.SendTPUEmbeddingGradients(inputs=floats(1), learning_rates=[], config=BY_FEATURE)
    assert held[1] == held[-1] > 50


def resident_kilobytes() -> int:
    """Returns how much memory the process uses."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * resource.getpagesize() // 1024


def test_memory_does_not_grow() -> None:
    train(500)
    before = resident_kilobytes()
    train(2000)
    # A status or a handle of a tensor forgotten each step would be ten times that.
    assert resident_kilobytes() - before < 256
