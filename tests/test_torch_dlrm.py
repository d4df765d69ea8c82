"""The example in PyTorch learns, and its AUC is one."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from anycore.demo import synthetic
from anycore.demo.dataset import split
from anycore.demo.features import Features
from anycore.demo.history import earlier_ratings

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import torch_dlrm

    return torch_dlrm


def test_the_example_runs(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    example.main(["--synthetic", "--epochs", "1", "--steps", "5"])
    *_, bias_only, dlrm = capsys.readouterr().out.splitlines()
    assert bias_only.split()[0] == "bias-only"
    assert 0.9 < float(dlrm.split()[1]) < 1.4


def test_a_model_learns_what_was_planted(example: ModuleType) -> None:
    dataset, _ = synthetic.plant(0, num_users=60, num_movies=80, num_ratings=2000)
    learned, held_out = split(len(dataset.ratings))
    features = Features(dataset, earlier_ratings(dataset, learned))
    model = example.DLRM(example.make_config(features.vocabulary_sizes()), 2, 3.5)
    stars = dataset.ratings[held_out]
    before = example.auc(example.predict(model, features, held_out), stars >= 4)
    example.train(model, features, learned, epochs=20, most_steps=None)
    assert model.tables.optimizer.param_groups[0]["lr"] == pytest.approx(0)
    assert example.auc(example.predict(model, features, held_out), stars >= 4) > max(before, 0.6)


def test_auc_counts_pairs(example: ModuleType) -> None:
    random = np.random.default_rng(0)
    scores, good = random.integers(0, 5, 40), random.random(40) < 0.4
    pairs = np.sign(scores[good][:, None] - scores[~good])
    assert example.auc(scores, good) == pytest.approx((1 + pairs.mean()) / 2)
