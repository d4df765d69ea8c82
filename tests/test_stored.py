from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit

from anycore.kernels import stored

SIGNATURE = "float32(float32)"
FACTOR = np.float32(2)


@njit  # type: ignore[untyped-decorator]
def scaled(x: Any) -> Any:
    return FACTOR * x


def function(x: Any) -> Any:
    return scaled(x)


def call(made: stored.Compiled, x: float) -> float:
    return ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(made.address)(x)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*"))


def refuse_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("it was compiled again")

    monkeypatch.setattr(stored, "cfunc", fail)


def test_what_was_compiled_once_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "new" / "folder"
    assert call(stored.compiled(function, SIGNATURE, (folder,)), 3) == 6
    assert len(files(folder)) == 1
    refuse_to_compile(monkeypatch)
    assert call(stored.compiled(function, SIGNATURE, (folder,)), 3) == 6


def test_another_constant_in_a_called_function_is_another_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.compiled(function, SIGNATURE, (tmp_path,))
    monkeypatch.setitem(globals(), "FACTOR", np.float32(5))
    monkeypatch.setitem(globals(), "scaled", njit(scaled.py_func))
    assert call(stored.compiled(function, SIGNATURE, (tmp_path,)), 3) == 15
    assert len(files(tmp_path)) == 2


def test_another_signature_or_compiler_is_another_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored.compiled(function, SIGNATURE, (tmp_path,))
    stored.compiled(function, "float64(float64)", (tmp_path,))
    monkeypatch.setattr(stored, "_compiler", lambda: "another")
    stored.compiled(function, SIGNATURE, (tmp_path,))
    assert len(files(tmp_path)) == 3


@pytest.mark.parametrize("kept", [0, 10, 100])
def test_a_damaged_file_is_written_again(tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stored.compiled(function, SIGNATURE, (tmp_path,))
    (file,) = files(tmp_path)
    file.write_bytes(file.read_bytes()[:kept])
    assert call(stored.compiled(function, SIGNATURE, (tmp_path,)), 3) == 6
    refuse_to_compile(monkeypatch)
    assert call(stored.compiled(function, SIGNATURE, (tmp_path,)), 3) == 6


def test_the_next_folder_serves_where_one_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("in the way")
    assert call(stored.compiled(function, SIGNATURE, (blocked, tmp_path / "b")), 3) == 6
    assert len(files(tmp_path / "b")) == 1
    assert call(stored.compiled(function, SIGNATURE, (blocked,)), 3) == 6


def test_a_stored_step_runs_before_anything_is_compiled(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from anycore.kernels import bind; "
        "from anycore.optimizers import Adagrad; "
        "bind._STORES = (Path(sys.argv[1]),); print(bind.compiled_step(Adagrad()) != 0)"
    )
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=120
        )
        assert done.stdout == "True\n", done.stderr
    assert len(files(tmp_path)) == 1
