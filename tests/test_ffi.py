from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numba
import numpy as np
import pytest

from anycore.errors import CallOrderError, CallTimeoutError, ConfigError, InputError
from anycore.jax import ffi

Arrays = Sequence[Any]


def doubled(operands: Arrays, results: Arrays, text: str) -> None:
    for operand, result in zip(operands, results, strict=True):
        assert not operand.flags.writeable
        assert operand.flags.c_contiguous
        result[...] = operand * 2


def count(operands: Arrays, results: Arrays, text: str) -> None:
    results[0][...] = len(operands[0])
    results[1][...] = len(text)


def run(name: str, operands: Arrays, results: Arrays | None = None, text: str = "") -> Any:
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (operands if results is None else results)]
    return jax.block_until_ready(jax.jit(lambda *arrays: ffi.call(name, shapes, arrays, text))(*operands))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "uint16", "uint32", "float32", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (3, 0, 2)])
def test_arrays_of_a_program_are_read_and_written_in_place(dtype: str, shape: tuple[int, ...]) -> None:
    ffi.register("doubled", doubled)
    given = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    (result,) = run("doubled", [jnp.asarray(given)])
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, (given * 2).astype(dtype))


def test_eight_bytes_an_element() -> None:
    ffi.register("doubled", doubled)
    with jax.enable_x64(True):
        results = run("doubled", [jnp.asarray([1, -(2**40)]), jnp.asarray([2**60], np.uint64)])
    assert [result.tolist() for result in results] == [[2, -(2**41)], [2**61]]


def test_many_arrays_and_a_text() -> None:
    ffi.register("doubled", doubled)
    ffi.register("count", count)
    given = [jnp.full(k, k, jnp.float32) for k in range(60)]
    for k, result in enumerate(run("doubled", given)):
        np.testing.assert_array_equal(result, 2.0 * k)
    scalars = [np.zeros((), np.int32)] * 2
    assert list(map(int, run("count", [jnp.zeros(7)], scalars, "größer"))) == [7, 6]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("feature 'a': größer als 3"), "INVALID_ARGUMENT"),
        (ConfigError("feature 'a': größer als 3"), "INVALID_ARGUMENT"),
        (CallOrderError("feature 'a': größer als 3"), "FAILED_PRECONDITION"),
        (CallTimeoutError("feature 'a': größer als 3"), "DEADLINE_EXCEEDED"),
        (ZeroDivisionError("feature 'a': größer als 3"), "INTERNAL"),
    ],
)
def test_an_error_reaches_the_caller_with_its_text(error: Exception, code: str) -> None:
    def fail(operands: Arrays, results: Arrays, text: str) -> None:
        raise error

    ffi.register("fail", fail)
    with pytest.raises(jax.errors.JaxRuntimeError) as raised:
        run("fail", [jnp.zeros(3)])
    assert str(raised.value) == f"{code}: {type(error).__name__}: feature 'a': größer als 3"


def test_a_call_is_neither_left_out_nor_merged() -> None:
    calls: list[int] = []
    ffi.register("noted", lambda operands, results, text: calls.append(int(operands[0])))

    @jax.jit  # type: ignore[untyped-decorator]
    def program(x: Any) -> Any:
        for _ in range(3):
            ffi.call("noted", [jax.ShapeDtypeStruct((), jnp.float32)], [x], "")
        return x

    jax.block_until_ready(program(jnp.float32(5)))
    jax.effects_barrier()
    assert calls == [5, 5, 5]


def test_an_interface_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffi, "_MAJOR", 1)
    with pytest.raises(ConfigError, match=r"jaxlib [\d.]+ cannot call anycore, .* up to 1\.3: .*incompatible"):
        ffi.register("of another version", doubled)


def test_structures_of_another_size_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Longer(ffi._CallFrame):
        _fields_ = [("more", ctypes.c_int64)]

    monkeypatch.setattr(ffi, "_CallFrame", Longer)
    with pytest.raises(ConfigError, match=r"jaxlib [\d.]+ cannot call anycore"):
        ffi.register("of another size", doubled)


AT_EXIT = """
import time
import jax, jax.numpy as jnp
from anycore.jax import ffi

def slow(operands, results, text):
    time.sleep(0.5)
    print("ran", flush=True)

ffi.register("slow", slow)
scalar = [jax.ShapeDtypeStruct((), jnp.float32)]
program = jax.jit(lambda x: ffi.call("slow", scalar, [jnp.sum(x @ x)], "")).lower(jnp.ones((300, 300))).compile()
program(jnp.ones((300, 300)))
print("left", flush=True)
"""


def test_python_does_not_end_before_a_program() -> None:
    outcome = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, check=True)
    assert outcome.stdout.split() == ["left", "ran"]


INTERRUPTED = """
import signal, threading
import jax, jax.numpy as jnp
jax.config.update("jax_cpu_enable_async_dispatch", False)  # so that programs run in the main thread
from anycore.jax import ffi

def interrupt(operands, results, text):
    assert threading.current_thread() is threading.main_thread()
    signal.raise_signal(signal.SIGINT)

ffi.register("interrupt", interrupt)
try:
    ffi.call("interrupt", [jax.ShapeDtypeStruct((), jnp.float32)], [jnp.float32(0)], "")
    print("went on")
except KeyboardInterrupt as error:
    print("interrupted", repr(error.__context__))
"""


def test_an_interrupt_while_python_answers_is_an_interrupt_of_the_program() -> None:
    outcome = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert outcome.stdout.strip() == "interrupted JaxRuntimeError('CANCELLED: KeyboardInterrupt: ')", outcome.stderr


def test_an_interrupt_before_python_can_answer_is_not_taken_for_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python raises it at the start of whatever function it calls next, and ctypes drops it."""
    dropped: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    errors: list[tuple[bytes, int]] = []

    def create_error(arguments: Any) -> int:
        errors.append((arguments.contents.message, arguments.contents.code))
        return 4711

    api = ffi._Api(create_error=type(ffi._Api().create_error)(create_error))
    frame = ffi._CallFrame(api=ctypes.pointer(api), stage=ffi._EXECUTE)
    returned = np.zeros(1, np.int64)
    send_signal = ctypes.CDLL(None)["raise"]
    send_signal.argtypes, send_signal.restype = [ctypes.c_int], ctypes.c_int
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(ffi._c_function().address)
    signal_number = int(signal.SIGINT)

    def interrupted_call(frame_address: int, returned: Any) -> None:
        send_signal(signal_number)
        returned[0] = function(frame_address)

    compiled = numba.njit("void(int64, int64[:])")(interrupted_call)
    with pytest.raises(KeyboardInterrupt):
        compiled(ctypes.addressof(frame), returned)
    assert [entry.exc_type for entry in dropped] == [KeyboardInterrupt]
    assert errors == [(b"KeyboardInterrupt: ", 1)]
    assert returned.tolist() == [4711]
