"""Compiled functions on disk, found again by what they were compiled from.

Numba's own cache goes by source files, and a function that is made at run time has none. Here the key is the function
itself: its bytecode, that of every function that it calls, and the constants that they use.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba import cfunc
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys

from anycore.kernels.cache import STORED, digest_of

_FOLDER = Path(__file__).parent
_DIGEST_SIZE = 20


class Compiled:
    """Machine code of a function with a C interface; valid as long as this object lives."""

    def __init__(self, library: Any, name: str) -> None:
        self._library = library
        self.address = int(library.get_pointer_to_function(name))


def compiled(function: Callable[..., Any], signature: str, folders: tuple[Path, ...]) -> Compiled:
    """Returns `function` compiled for C callers, from the first of `folders` that holds it.

    A function compiled now is stored in the first folder that can be written.
    """
    key = _digest(repr([signature, _compiler(), *_contents(function, set())]).encode()).hex()
    for folder in folders:
        with suppress(OSError, _DamagedError):
            return _load((folder / (key + STORED)).read_bytes())
    made = cfunc(signature, nopython=True, error_model="numpy")(function)
    if not made._library.has_dynamic_globals:
        code = pickle.dumps((made.native_name, made._library.serialize_using_object_code()))
        for folder in folders:
            with suppress(OSError):
                _write(folder / (key + STORED), _digest(code) + code)
                break
    return Compiled(made._library, made.native_name)


class _DamagedError(Exception):
    """A file does not hold what was written to it."""


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_SIZE).digest()


def _load(content: bytes) -> Compiled:
    digest, code = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    if digest != _digest(code):
        raise _DamagedError
    name, library = pickle.loads(code)
    # Code may free arrays, by functions that Numba makes known only when it first compiles.
    rtsys.initialize(cpu_target.target_context)
    return Compiled(cpu_target.target_context.codegen().unserialize_library(library), name)


def _write(path: Path, code: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another process that looks for the file finds all of it or none.
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(code)
    Path(file.name).replace(path)


def _compiler() -> tuple[Any, ...]:
    """Returns what else machine code depends on, our own intrinsics among it."""
    return digest_of(_FOLDER), numba.__version__, np.__version__, cpu_target.target_context.codegen().magic_tuple()


def _contents(function: Any, seen: set[int]) -> Iterator[Any]:
    """Yields all that the compiler sees of a function: bytecode, constants, and what its global names mean."""
    seen.add(id(function))
    code = function.__code__
    yield code.co_code, code.co_consts, code.co_names, code.co_varnames
    closure = zip(code.co_freevars, function.__closure__ or (), strict=True)
    names = {name: cell.cell_contents for name, cell in closure}
    names |= {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    for name, value in names.items():
        yield name
        if isinstance(value, Dispatcher):
            yield repr(value.targetoptions)
            value = value.py_func
        if not isinstance(value, FunctionType):
            # Constants by value; modules, types and intrinsics by name.
            yield repr(value) if isinstance(value, bool | int | float | np.generic) else getattr(value, "__name__", "")
        elif id(value) not in seen:
            yield from _contents(value, seen)
