"""Slices of variables."""

from __future__ import annotations

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
