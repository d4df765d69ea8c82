"""Native code around Python functions, called as TensorFlow would."""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_int64
from typing import Any

import pytest

from anycore.tensorflow import guard
from anycore.tensorflow.guard import ANSWERED, INTERRUPTED, guarded_compute, guarded_create

INT64 = c_int64


def write(address: int, value: int) -> None:
    INT64.from_address(address).value = value


def die(*_: Any) -> None:
    raise RecursionError


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collects the contexts of kernels that fail, in TensorFlow's place."""
    contexts: list[int] = []
    function = ctypes.CFUNCTYPE(None, INT64, INT64)(lambda context, status: contexts.append(context))
    monkeypatch.setattr(guard, "_fail", function)
    # pytest would make a failure of what ctypes reports.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    return contexts


def compute(function: Any) -> Any:
    return ctypes.CFUNCTYPE(None, INT64, INT64)(guarded_compute(function))


def create(function: Any) -> Any:
    return ctypes.CFUNCTYPE(INT64, INT64)(guarded_create(function))


def test_a_function_gets_kernel_and_context(failed: list[int]) -> None:
    calls = []

    def answer(kernel: int, context: int, state: int) -> None:
        calls.append((kernel, context))
        write(state, ANSWERED)

    compute(answer)(3, -4)
    assert calls == [(3, -4)]
    assert not failed


def test_a_function_that_does_not_answer_fails(failed: list[int]) -> None:
    compute(die)(3, 4)
    compute(lambda *_: None)(3, 5)
    assert failed == [4, 5]


def test_a_kernel_that_could_not_be_made_is_zero(failed: list[int]) -> None:
    assert create(lambda construction, kernel, state: write(kernel, 7 * construction))(6) == 42
    assert create(die)(6) == 0


def test_an_interrupt_takes_effect_after_the_call(failed: list[int]) -> None:
    called = []

    def answer(kernel: int, context: int, state: int) -> None:
        write(state, INTERRUPTED)
        called.append(context)

    native = compute(answer)
    with pytest.raises(KeyboardInterrupt):
        native(1, 2)
    assert called == [2]
    assert not failed
