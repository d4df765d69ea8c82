"""How long it takes until the first step: imports, configuring and compiling, starting values."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from peers.processes import in_child

_IMPORTS = {
    "anycore": "import anycore",
    "fbgemm": "import torch, fbgemm_gpu.split_table_batched_embeddings_ops_training",
    "torch": "import torch",
    "tensorflow": "import tensorflow",
    "jax": "import jax.numpy, optax",
}
_TIMED = "import time; started = time.perf_counter(); {}; print(time.perf_counter() - started)"
_ROWS, _DIMENSION = 10_000_000, 64
_STORED_STEPS = "*.step"


Times = dict[str, dict[str, dict[str, float]]]
"""Under `seconds` those of each stage, by what was measured."""


def time_imports(repetitions: int) -> Times:
    """Returns the median seconds of importing each library in a new process; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    for _ in range(repetitions):
        for name, statement in _IMPORTS.items():
            command = [sys.executable, "-c", _TIMED.format(statement)]
            printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
            times[name].append(float(printed.split()[-1]))
    return {"seconds": {name: {"import": _median(seconds)} for name, seconds in times.items()}}


def time_configuring(num_threads: int, repetitions: int) -> Times:
    """Returns the median seconds of import, configuration and first step of five optimizers, by what is on disk.

    'nothing stored': as just installed; 'kernels stored': optimizers that nobody has used yet; 'all stored'.
    """
    found: dict[str, list[dict[str, float]]] = {"nothing stored": [], "kernels stored": [], "all stored": []}
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as folder:
            package = _copied_package(Path(folder))
            paths = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
            environment = {"PYTHONPATH": paths, "XDG_CACHE_HOME": f"{folder}/cache"}
            for stored, seconds in found.items():
                if stored == "kernels stored":
                    for file in package.rglob(_STORED_STEPS):
                        file.unlink()
                seconds.append(in_child(configure, num_threads, environment))
    return {
        "seconds": {
            stored: {stage: _median([times[stage] for times in runs]) for stage in runs[0]}
            for stored, runs in found.items()
        }
    }


def configure(num_threads: int) -> dict[str, float]:
    """Returns the seconds of each stage in this process, which has not imported anycore yet."""
    laps = [time.perf_counter()]
    from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, TableConfig
    from anycore.optimizers import FTRL, Adagrad, AdagradMomentum, Adam, StochasticGradientDescent

    laps.append(time.perf_counter())
    optimizers = [StochasticGradientDescent(), Adagrad(), AdagradMomentum(), Adam(), FTRL()]
    tables = [TableConfig(o.wire_name, 1000, 64, o) for o in optimizers]
    config = EmbeddingConfig(tables, [FeatureConfig(t.name, t.name, [32]) for t in tables])
    engine = EmbeddingEngine(config, num_threads=num_threads)
    laps.append(time.perf_counter())
    engine.enqueue([np.arange(32)] * len(tables))
    engine.send_gradients(engine.receive_activations())
    laps.append(time.perf_counter())
    return dict(zip(["import", "configure", "first step"], np.diff(laps).tolist(), strict=True))


def time_initialising(num_threads: int, repetitions: int, tiny: bool) -> Times:
    """Returns the median seconds of making one table of 10 M x 64 with starting values, and of writing such memory.

    They take turns, and none of their memory is used again.
    """
    rows = _ROWS // 1000 if tiny else _ROWS
    makers = {"floor: writing the memory": _write, "anycore, constant": _anycore_constant}
    makers |= {"anycore, uniform": _anycore_uniform, "anycore, truncated normal": _anycore_normal}
    makers |= {"fbgemm, uniform": _fbgemm_uniform, "torch, normal": _torch_normal}
    times: dict[str, list[float]] = {name: [] for name in makers}
    for repetition in range(repetitions + 1):
        for name, make in makers.items():
            # The first compiles and imports.
            made, seconds = _timed(make, rows if repetition else 1000, num_threads)
            times[name].append(seconds)
            del made
            gc.collect()
    return {"seconds": {name: {"10 M x 64": _median(seconds[1:])} for name, seconds in times.items()}}


def _median(seconds: list[float]) -> float:
    return round(float(np.median(seconds)), 4)


def _timed(make: Callable[[int, int], Any], rows: int, num_threads: int) -> tuple[Any, float]:
    started = time.perf_counter()
    made = make(rows, num_threads)
    return made, time.perf_counter() - started


def _copied_package(folder: Path) -> Path:
    import anycore

    return Path(
        shutil.copytree(Path(anycore.__file__).parent, folder / "anycore", ignore=shutil.ignore_patterns("__pycache__"))
    )


def _write(rows: int, num_threads: int) -> Any:
    memory = np.empty((rows, _DIMENSION), np.float32)
    parts = np.array_split(memory, num_threads)
    threads = [threading.Thread(target=part.fill, args=(1.0,)) for part in parts[1:]]
    for thread in threads:
        thread.start()
    parts[0].fill(1.0)
    for thread in threads:
        thread.join()
    return memory


def _anycore(rows: int, num_threads: int, initializer: Any) -> Any:
    from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, TableConfig
    from anycore.optimizers import StochasticGradientDescent

    table = TableConfig("table", rows, _DIMENSION, StochasticGradientDescent(), initializer=initializer)
    config = EmbeddingConfig([table], [FeatureConfig("feature", "table", [1])])
    return EmbeddingEngine(config, num_threads=num_threads)


def _anycore_constant(rows: int, num_threads: int) -> Any:
    from anycore.initializers import Constant

    return _anycore(rows, num_threads, Constant(1.0))


def _anycore_uniform(rows: int, num_threads: int) -> Any:
    from anycore.initializers import Uniform

    return _anycore(rows, num_threads, Uniform(-0.1, 0.1))


def _anycore_normal(rows: int, num_threads: int) -> Any:
    return _anycore(rows, num_threads, None)


def _fbgemm_uniform(rows: int, num_threads: int) -> Any:
    import torch
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    torch.set_num_threads(num_threads)
    table = (rows, _DIMENSION, EmbeddingLocation.HOST, ComputeDevice.CPU)
    bags = SplitTableBatchedEmbeddingBagsCodegen([table])
    bags.init_embedding_weights_uniform(-0.1, 0.1)
    return bags


def _torch_normal(rows: int, num_threads: int) -> Any:
    import torch

    torch.set_num_threads(num_threads)
    return torch.nn.EmbeddingBag(rows, _DIMENSION)
