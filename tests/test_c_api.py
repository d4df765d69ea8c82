"""Finding the C API in whatever TensorFlow is installed, and its statuses."""

from __future__ import annotations

import ctypes

import pytest
import tensorflow as tf

from anycore.tensorflow.c_api import Prototypes, Status, bound, libraries


def test_a_missing_function_is_one_clear_error() -> None:
    prototypes: Prototypes = {"TF_NewStatus": (ctypes.c_void_p, []), "TF_NoSuchFunction": (None, [])}
    with pytest.raises(ImportError, match=r"^TensorFlow 2\.9\.1 has no TF_NoSuchFunction in its C API, .* use Tensor"):
        bound(prototypes, libraries(ctypes.PyDLL), "2.9.1")


def test_functions_are_found_in_any_library() -> None:
    found = bound({"TF_StringGetSize": (None, []), "TF_NewStatus": (None, [])}, libraries(ctypes.PyDLL), "")
    assert found.TF_StringGetSize
    assert found.TF_NewStatus


@pytest.mark.parametrize("message", ["", "table 'ü': \N{SNOWMAN}", "zero\0byte", "\udcff"])
def test_a_status_has_any_code_and_message(message: str) -> None:
    with Status() as status:
        status.check()
        status.set(tf.errors.DATA_LOSS, message)
        with pytest.raises(tf.errors.DataLossError) as caught:
            status.check()
    shown = message.replace("\0", "\\0").encode(errors="backslashreplace").decode()
    assert caught.value.message == shown
