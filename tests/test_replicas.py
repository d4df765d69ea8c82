"""Replicas as cores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from anycore.tensorflow.replicas import Replicas


def strategy_on(*devices: str) -> Any:
    return SimpleNamespace(num_replicas_in_sync=len(devices), extended=SimpleNamespace(worker_devices=devices))


def test_strategies_train_as_one_replica_does() -> None:
    program = Path(__file__).with_name("tensorflow_strategies.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_cores_are_numbers_of_devices() -> None:
    assert Replicas(strategy_on("/job:localhost/device:CPU:1", "/job:localhost/device:CPU:0")).cores == (1, 0)
    assert Replicas(strategy_on("/device:GPU:0")).cores == (0,)


@pytest.mark.parametrize("devices", [["/GPU:0", "/GPU:1"], ["/CPU:1", "/CPU:2"], ["/CPU:0", "/CPU:0"]])
def test_devices_that_are_no_cores_are_refused(devices: list[str]) -> None:
    with pytest.raises(ValueError, match="works with strategies whose replicas are on the devices CPU:0, CPU:1"):
        Replicas(strategy_on(*devices))


def test_without_a_strategy_there_is_one_core() -> None:
    replicas = Replicas(tf.distribute.get_strategy())
    assert replicas.calling_core() == 0
    assert replicas.core_of_device("/device:TPU:0") == replicas.core_of_device("/device:CPU:0") == 0
    assert replicas.local_values([3, None], 0) == [3, None]
