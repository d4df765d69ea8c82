"""Slices of variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from anycore.tensorflow import register_kernels

VALUE = np.arange(9, dtype=np.float32).reshape(3, 3)
eagerly_and_in_function = pytest.mark.parametrize("run", [lambda function: function, tf.function])


@pytest.fixture(autouse=True)
def _registered() -> None:
    register_kernels()


def read(variable: tf.Variable, **options: Any) -> Any:
    given = {"resource": variable.handle, "T": variable.dtype, "N": 4, "num_splits": [2, 2], "paddings": [1, 1]}
    return tf.raw_ops.ReadVariableXlaSplitND(**given | options)


def assign(variable: tf.Variable, slices: Any, num_concats: Any, paddings: Any) -> Any:
    return tf.raw_ops.AssignVariableXlaConcatND(
        resource=variable.handle, inputs=slices, num_concats=num_concats, paddings=paddings
    )


@eagerly_and_in_function
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.int64, tf.bool])
def test_a_variable_is_read_and_assigned_in_slices(run: Any, dtype: tf.DType) -> None:
    source, target = tf.Variable(tf.cast(VALUE, dtype)), tf.Variable(tf.zeros([3, 3], dtype))
    before = target.read_value()
    slices = run(lambda: read(source))()
    assert [each.shape.as_list() for each in slices] == [[2, 2]] * 4
    assert slices[0].dtype == dtype
    np.testing.assert_array_equal(tf.cast(slices[3], tf.float32), [[bool(8) if dtype == tf.bool else 8, 0], [0, 0]])

    def assign_all() -> None:
        assign(target, slices, [2, 2], [1, 1])

    run(assign_all)()
    np.testing.assert_array_equal(target, source)
    assert not np.any(before.numpy().astype(bool)), "what was read earlier stays as it was"


@eagerly_and_in_function
def test_a_variable_may_hold_strings(run: Any) -> None:
    words = np.array([[b"", b"\0b", b"\xff" * 5000], [b"d", b"e", b"f"]], object)
    source, target = tf.Variable(words), tf.Variable(np.full([2, 3], b"x" * 100, object))
    before = target.read_value()
    slices = run(lambda: read(source, N=2, num_splits=[1, 2], paddings=[0, 1]))()
    assert [each.numpy().tolist() for each in slices] == [words[:, :2].tolist(), [[words[0, 2], b""], [b"f", b""]]]

    def assign_all() -> None:
        assign(target, slices, [1, 2], [0, 1])

    for _ in range(3):
        run(assign_all)()
        np.testing.assert_array_equal(target, words)
    assert before[1, 2] == b"x" * 100


@eagerly_and_in_function
def test_a_resource_that_is_no_variable_is_refused(run: Any) -> None:
    rows = tf.lookup.KeyValueTensorInitializer(["a"], [1])
    table = tf.lookup.StaticHashTable(rows, 0).resource_handle
    iterator = iter(tf.data.Dataset.range(3))._iterator_resource

    def read_one(handle: Any) -> None:
        tf.raw_ops.ReadVariableXlaSplitND(resource=handle, T=tf.int64, N=1, num_splits=[1])

    def assign_one(handle: Any) -> None:
        tf.raw_ops.AssignVariableXlaConcatND(resource=handle, inputs=[[1]], num_concats=[1])

    for handle, name in ((table, "tensorflow::lookup::LookupInterface"), (iterator, "tensorflow::data::Iterator")):
        for operation in (read_one, assign_one):
            with pytest.raises(tf.errors.InvalidArgumentError, match=f"handle of a variable, got '.*' of type {name}"):
                run(operation)(handle)


def test_variants_are_refused() -> None:
    variant = tf.raw_ops.EmptyTensorList(element_shape=[1], max_num_elements=1, element_dtype=tf.float32)
    variable = tf.Variable(0)
    operations: list[Callable[[], Any]] = [
        lambda: read(variable, T=tf.variant),
        lambda: assign(variable, [tf.stack([variant])], [1], []),
        lambda: tf.raw_ops.XlaSplitND(input=tf.stack([variant]), N=1, num_splits=[1]),
        lambda: tf.raw_ops.XlaConcatND(inputs=[tf.stack([variant])], num_concats=[1]),
    ]
    for operation in operations:
        with pytest.raises(tf.errors.UnimplementedError, match="cannot be of type variant here, use tensors of"):
            operation()


def test_assigning_may_change_the_shape() -> None:
    variable = tf.Variable([1.0], shape=tf.TensorShape(None))
    assign(variable, [VALUE, VALUE], [1, 2], [])
    assert variable.read_value().shape == (3, 6)


def test_a_variable_without_a_value_can_be_assigned_and_not_read() -> None:
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[3, 3], shared_name="cd2c89b7-88b7-44c8-ad83-06c2a9158347")
    with pytest.raises(tf.errors.InvalidArgumentError, match="rank"):
        tf.raw_ops.ReadVariableXlaSplitND(resource=handle, T=tf.float32, N=1, num_splits=[1, 1])
    tf.raw_ops.AssignVariableXlaConcatND(resource=handle, inputs=[VALUE], num_concats=[1, 1])
    np.testing.assert_array_equal(tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32), VALUE)


def test_another_dtype_is_refused() -> None:
    variable = tf.Variable(VALUE)
    with pytest.raises(tf.errors.InvalidArgumentError):
        read(variable, T=tf.int32)
    with pytest.raises(tf.errors.InvalidArgumentError):
        assign(variable, [tf.constant([[1]])], [1, 1], [])
    np.testing.assert_array_equal(variable, VALUE)


def test_numbers_that_do_not_fit_are_refused_and_nothing_is_assigned() -> None:
    variable = tf.Variable(VALUE)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must match"):
        read(variable, N=3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must match"):
        assign(variable, [VALUE], [1, 2], [])
    np.testing.assert_array_equal(variable, VALUE)


def test_variables_of_a_session_are_out_of_reach() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", initializer=VALUE, use_resource=True)
        session.run(variable.initializer)
        for operation in (read(variable), assign(variable, [-VALUE], [1, 1], [])):
            with pytest.raises(tf.errors.UnimplementedError, match="variable 'v': a session keeps its variables"):
                session.run(operation)
        np.testing.assert_array_equal(session.run(variable), VALUE)
