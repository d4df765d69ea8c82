from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from anycore import __version__, demo
from anycore.cli import main
from anycore.errors import ConfigError


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"anycore {__version__}\n"


def test_demo_options_reach_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(demo, "run", lambda **options: calls.append(options))
    assert main(["demo"]) == 0
    assert main(["demo", "--synthetic", "--epochs", "3", "--seed", "7"]) == 0
    assert calls == [
        {"seed": 0, "synthetic_ratings": False},
        {"epochs": 3, "seed": 7, "synthetic_ratings": True},
    ]


def test_errors_are_one_line_and_status_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(**_: Any) -> None:
        raise ConfigError("table 'user': no")

    monkeypatch.setattr(demo, "run", fail)
    assert main(["demo"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "anycore: table 'user': no\n"
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "required"),
        (["train"], "invalid choice: 'train'"),
        (["demo", "--epochs", "0"], "--epochs: must be an integer of at least 1, got '0'"),
        (["demo", "--seed", "x"], "--seed: must be an integer of at least 0, got 'x'"),
    ],
)
def test_misuse_is_status_2(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert complaint in capsys.readouterr().err


def test_the_demo_trains_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--synthetic", "--epochs", "1"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    errors = {line[:24].strip(): float(line[24:]) for line in lines[lines.index(HEADING) + 1 :][:4]}
    assert list(errors) == ["global mean", "bias-only", "factorization machine", "noise floor"]
    assert errors["noise floor"] < errors["factorization machine"] < errors["global mean"]
    assert "ids/s" in captured.err


HEADING = "test RMSE on 20,000 held-out ratings"


def test_importing_the_command_imports_no_framework() -> None:
    script = "import sys, anycore.cli; print(sorted({'tensorflow', 'torch', 'jax', 'keras'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
