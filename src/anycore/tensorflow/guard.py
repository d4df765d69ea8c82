"""Native code between TensorFlow and the Python functions that are its kernels.

No exception passes through TensorFlow. One that leaves a function called from C is lost, and TensorFlow takes a kernel
that returns for one that has done its work. A function can catch what is raised in it, but not before its first line:
Ctrl-C that came a moment ago, a full stack. So native code keeps an earlier Ctrl-C from the function, and makes the
kernel fail if the function did not answer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_int64
from typing import Any

import numpy as np
import tensorflow as tf
from numba import cfunc, int64, void

from anycore.tensorflow.c_api import C, Status

SILENT, ANSWERED, INTERRUPTED = 0, 1, 2
"""What a function leaves in `state`: nothing, as it found it; that it has set the outputs or reported an error; and
that Ctrl-C shall take effect in Python when TensorFlow has returned."""

_kept: list[object] = []
"""What TensorFlow has addresses of, until the process ends."""


def _native(function: Any, result: Any, *arguments: Any) -> Any:
    """Returns a C function as native code calls it."""
    return ctypes.cast(function, ctypes.CFUNCTYPE(result, *arguments))


_ensure = _native(ctypes.pythonapi.PyGILState_Ensure, c_int)
_release = _native(ctypes.pythonapi.PyGILState_Release, None, c_int)
_take_interrupt = _native(ctypes.pythonapi.PyOS_InterruptOccurred, c_int)
_set_interrupt = _native(ctypes.pythonapi.PyErr_SetInterrupt, None)
_fail = _native(C.TF_OpKernelContext_Failure, None, c_int64, c_int64)


def guarded_create(create: Callable[[int, int, int], None]) -> int:
    """Returns the address of a kernel's create function, made of `create(construction, kernel, state)`.

    It writes the kernel, an int64, to an address. If it did not, the kernel is 0.
    """
    python = _called_from_c(create)

    @cfunc(int64(int64))
    def native(construction):  # type: ignore[no-untyped-def]
        kernel, state = np.zeros(1, np.int64), np.zeros(1, np.int64)
        lock = _ensure()
        interrupted = _take_interrupt()
        python(construction, kernel.ctypes.data, state.ctypes.data)
        if interrupted or state[0] == INTERRUPTED:
            _set_interrupt()
        _release(lock)
        return kernel[0]

    return _address(native)


def guarded_compute(compute: Callable[[int, int, int], None]) -> int:
    """Returns the address of a kernel's compute function, made of `compute(kernel, context, state)`."""
    python = _called_from_c(compute)
    status = Status().__enter__()  # stays until the process ends
    status.set(tf.errors.CANCELLED, "ended before it began; Python has written to stderr by what")
    ended = status.pointer

    @cfunc(void(int64, int64))
    def native(kernel, context):  # type: ignore[no-untyped-def]
        state = np.zeros(1, np.int64)
        lock = _ensure()
        interrupted = _take_interrupt()
        python(kernel, context, state.ctypes.data)
        if state[0] == SILENT:
            _fail(context, ended)
        if interrupted or state[0] == INTERRUPTED:
            _set_interrupt()
        _release(lock)

    return _address(native)


def _address(native: Any) -> int:
    _kept.append(native)
    return native.address


def _called_from_c(function: Callable[[int, int, int], None]) -> Any:
    callback = ctypes.CFUNCTYPE(None, c_int64, c_int64, c_int64)(function)
    _kept.append(callback)
    return callback
