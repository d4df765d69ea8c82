"""The example in JAX learns, and its AUC is one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from anycore.demo import synthetic

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import jax_two_tower

    return jax_two_tower


def test_it_learns(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    dataset, _ = synthetic.plant(0, num_users=100, num_movies=120, num_ratings=4000)
    results = example.train(dataset, epochs=3, batch_size=150)
    assert results["RMSE"] < np.std(dataset.ratings) * 0.97
    assert results["AUC"] > 0.6
    assert capsys.readouterr().out.count("training RMSE") == 3


def test_the_command(example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    dataset, planted = synthetic.plant(0, num_users=20, num_movies=30, num_ratings=200)
    monkeypatch.setattr(synthetic, "plant", lambda seed: (dataset, planted))
    monkeypatch.setattr(sys, "argv", ["jax_two_tower.py", "--synthetic", "--epochs=1", "--batch-size=64"])
    example.main()
    assert "{'RMSE': " in capsys.readouterr().out


def test_area_under_curve(example: ModuleType) -> None:
    positive = np.array([True, False, True, False])
    assert example.area_under_curve(np.array([4.0, 1, 3, 2]), positive) == 1
    assert example.area_under_curve(np.array([1.0, 4, 2, 3]), positive) == 0
    assert example.area_under_curve(np.array([1.0, 1, 2, 2]), positive) == 0.5
