"""The simulation of many hosts predicts the bytes that processes exchange, and says which hosts have most to do."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from anycore import EmbeddingConfig, FeatureConfig, ShardingStrategy, TableConfig
from anycore.optimizers import Adagrad
from anycore.transport import InProcessTransport

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("scale")


def config(**options: Any) -> EmbeddingConfig:
    tables = [
        TableConfig("a", 10, 4, Adagrad()),
        TableConfig("b", 7, 8, Adagrad(gradient_accumulation=False)),
    ]
    return EmbeddingConfig(tables, [FeatureConfig(name, name, [2]) for name in "ab"], **options)


IDS = [np.array([0, 0, 4, 9]), np.array([6, 6, 1])]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [(ShardingStrategy.DIV_DEFAULT, [[1, 1], [1, 0], [1, 2]]), (ShardingStrategy.MOD, [[2, 2], [1, 1], [0, 0]])],
)
def test_rows_that_a_core_asks_for(scale: ModuleType, strategy: ShardingStrategy, expected: list[list[int]]) -> None:
    np.testing.assert_array_equal(scale.entries(config(sharding_strategy=strategy), IDS, 3), expected)


@pytest.mark.parametrize("strategy", list(ShardingStrategy))
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_bytes_are_those_of_processes(scale: ModuleType, strategy: ShardingStrategy, size: int) -> None:
    machine = scale.Machine(link=1e9, memory=1e10, latency=1e-5, per_id=1e-9)
    workload = scale.Workload(2, 50, 8, batch_size=16, ids_per_sample=3, zipf=1.1, sharding_strategy=strategy)
    steps = 3
    with ThreadPoolExecutor(size) as threads:
        run = partial(scale.train, workload=workload, steps=steps)
        measured = list(threads.map(run, InProcessTransport.group(size)))
    sent, prediction = scale.predicted_run(workload, size, steps, machine)
    assert sent.tolist() == [round(each.stats["bytes_sent_per_step"] * steps) for each in measured]
    assert prediction.largest_share == pytest.approx(measured[0].stats["largest_share_of_rows"])
    assert (size == 1) == (prediction.least_sent.sum() == 0)


def test_several_cores_a_host_and_sampled_cores(scale: ModuleType) -> None:
    machine = scale.Machine(link=100.0, memory=1e30, latency=0.5, per_id=0.0)
    # Of table a of dimension 4, each core asks host 0 for three rows and host 1 for one.
    one = EmbeddingConfig([TableConfig("a", 10, 4, Adagrad())], [FeatureConfig("a", "a", [2])], num_tensor_cores=4)
    found = scale.predict(one, np.array([[[3], [1]]]), num_ids=4, cores=4, machine=machine)
    counts, agreements = 2 * 8, 3 * 16
    # Ids of remote rows, their parameters and their gradients: 16 bytes each.
    assert found.sent.tolist() == [
        2 * 4 + 6 * 16 + 2 * 16 + counts + agreements,
        6 * 4 + 2 * 16 + 6 * 16 + counts + agreements,
    ]
    assert found.received.sum() == found.sent.sum()
    assert found.rows.tolist() == [12, 4]
    assert found.largest_share == 0.75
    assert found.network == pytest.approx((6 * 4 + counts + 2 * 6 * 16) / 100 + 7 * 0.5)


def test_popular_ids_side_by_side_burden_one_host(
    scale: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.pb"
    path.write_bytes(config().to_proto().SerializeToString())
    scale.main(
        ["--config", str(path), "--hosts", "2", "--batch-size=1", "--ids-per-sample=3", "--zipf=3", "--by-popularity"]
    )
    div, mod = ([cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()[-2:])
    assert (div[2], mod[2]) == ("DIV", "MOD")
    assert float(div[10]) > float(mod[10]) >= 0.5
