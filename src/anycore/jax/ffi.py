"""XLA's foreign function interface, answered in Python: a compiled program calls a function with its arrays in place.

XLA calls a C function with one argument, the call frame, which holds pointers to the buffers of arguments and results.
Here that C function is compiled by Numba; it calls Python through ctypes and makes sure of an answer, for an interrupt
may be raised before any Python code could catch it, and ctypes would then report success.

Source: xla/ffi/api/c_api.h, which jaxlib ships: API 0.1 (jaxlib 0.6.2) to 0.3 (jaxlib 0.10.2).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from functools import lru_cache
from typing import Any

import jax
import numba
import numpy as np
from numpy.typing import NDArray

from anycore.errors import CallOrderError, CallTimeoutError, ConfigError, InputError

Body = Callable[[Sequence[NDArray[Any]], Sequence[NDArray[Any]], str], None]
"""What answers a call: of its arguments, which must not be written, its results, to be filled, and its text."""

_MAJOR, _MINOR, _OLDEST, _UNKNOWN = 0, 3, 1, -1
_EXECUTE = 3
_METADATA = 1
_DTYPES = {1: "?", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 6: "u1", 7: "u2", 8: "u4", 9: "u8", 11: "f4"}
_CANCELLED, _INTERNAL = 1, 13
_CODES = {CallTimeoutError: 4, CallOrderError: 9, InputError: 3, ConfigError: 3, KeyboardInterrupt: _CANCELLED}


class _Struct(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("extension_start", c_void_p)]


class _Buffer(_Struct):
    _fields_ = [("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64))]


class _Buffers(_Struct):
    _fields_ = [("size", c_int64), ("types", POINTER(c_int)), ("buffers", POINTER(POINTER(_Buffer)))]


class _Span(ctypes.Structure):
    _fields_ = [("pointer", c_void_p), ("size", c_size_t)]


class _Attributes(_Struct):
    # The values' types differ; those of this page are all strings.
    _fields_ = [
        ("size", c_int64),
        ("types", POINTER(c_int)),
        ("names", POINTER(POINTER(_Span))),
        ("values", POINTER(POINTER(_Span))),
    ]


class _Version(_Struct):
    _fields_ = [("major", c_int), ("minor", c_int)]


class _ErrorArguments(_Struct):
    _fields_ = [("message", c_char_p), ("code", c_int)]


class _Api(_Struct):
    _fields_ = [
        ("version", _Version),
        ("internal", c_void_p),
        ("create_error", ctypes.CFUNCTYPE(c_void_p, POINTER(_ErrorArguments))),
    ]


class _CallFrame(_Struct):
    _fields_ = [
        ("api", POINTER(_Api)),
        ("context", c_void_p),
        ("stage", c_int),
        ("arguments", _Buffers),
        ("results", _Buffers),
        ("attributes", _Attributes),
    ]


class _Metadata(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("version", _Version), ("traits", c_uint32)]


class _Extension(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("type", c_int), ("next", c_void_p), ("metadata", POINTER(_Metadata))]


_bodies: dict[str, Body] = {}


def register(name: str, body: Body) -> None:
    """Makes `body` what answers the custom call `name` on CPUs. Raises: ConfigError when this jaxlib cannot call it."""
    _bodies[name] = body
    try:
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(_c_function().address), platform="cpu")
    except Exception as error:
        raise ConfigError(
            f"jaxlib {jax.lib.__version__} cannot call anycore, which knows XLA's foreign function interface up to "
            f"{_MAJOR}.{_MINOR}: {error}"
        ) from error


def call(name: str, results: Sequence[Any], operands: Sequence[Any], text: str) -> Sequence[Any]:
    """Returns the results of the custom call `name`, of given shapes and dtypes; it is never left out or merged."""
    program = jax.ffi.ffi_call(name, list(results), has_side_effect=True)
    return program(*operands, name=name, text=text)


def _answer(frame_address: int, outcome_address: int, interrupted: int) -> None:
    """Answers one call frame; int64 outcome: 1 once answered, the error's address or 0, 1 to interrupt once more."""
    outcome = (c_int64 * 3).from_address(outcome_address)
    frame = _CallFrame.from_address(frame_address)
    try:
        if interrupted:
            raise KeyboardInterrupt
        if frame.extension_start and _Extension.from_address(frame.extension_start).type == _METADATA:
            _describe(frame)
        elif frame.stage == _EXECUTE:
            attributes = frame.attributes
            names, values = attributes.names[: attributes.size], attributes.values[: attributes.size]
            texts = {_text(key): _text(value) for key, value in zip(names, values, strict=True)}
            _bodies[texts["name"]](_arrays(frame.arguments, True), _arrays(frame.results, False), texts["text"])
    except BaseException as error:
        code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), _INTERNAL)
        message = f"{type(error).__name__}: {error}".encode()
        arguments = _ErrorArguments(ctypes.sizeof(_ErrorArguments), None, message, code)
        # Where XLA asks without an interface, what stays unanswered is refused by itself.
        outcome[1] = frame.api.contents.create_error(arguments) if frame.api else 0
        outcome[2] = isinstance(error, KeyboardInterrupt)
    outcome[0] = 1


def _describe(frame: _CallFrame) -> None:
    """Tells which version of the interface is spoken here; XLA refuses a function of one that it does not know."""
    version = _Extension.from_address(frame.extension_start).metadata.contents.version
    # Structures only grow while the major version stays.
    version.major = _MAJOR if frame.struct_size >= ctypes.sizeof(_CallFrame) else _UNKNOWN
    # jaxlib 0.6 asks before it tells its own version.
    version.minor = min(_MINOR, frame.api.contents.version.minor) if frame.api else _OLDEST


def _text(span: Any) -> str:
    return ctypes.string_at(span.contents.pointer, span.contents.size).decode()


class _Memory:
    def __init__(self, buffer: _Buffer, readonly: bool) -> None:
        shape = tuple(buffer.dims[: buffer.rank])
        # An empty array's address may be null, which NumPy takes for none.
        data = (buffer.data or 1, readonly)
        self.__array_interface__ = {"version": 3, "typestr": f"={_DTYPES[buffer.dtype]}", "shape": shape, "data": data}


def _arrays(buffers: _Buffers, readonly: bool) -> list[NDArray[Any]]:
    return [np.asarray(_Memory(pointer.contents, readonly)) for pointer in buffers.buffers[: buffers.size]]


_python = ctypes.CFUNCTYPE(None, c_int64, c_int64, c_int64)(_answer)
_interrupt = ctypes.CFUNCTYPE(None)(("PyErr_SetInterrupt", ctypes.pythonapi))


@lru_cache(maxsize=1)
def _c_function() -> Any:
    """Returns what XLA calls; its `address` is valid as long as this is kept, which is always."""

    def answer(frame):  # type: ignore[no-untyped-def]
        outcome = np.zeros(3, np.int64)
        _python(frame, outcome.ctypes.data, 0)
        while outcome[0] == 0:
            _python(frame, outcome.ctypes.data, 1)
        if outcome[2]:
            _interrupt()
        return outcome[1]

    return numba.cfunc(numba.int64(numba.int64))(answer)
