"""Trains tables of every optimizer in the processes of a launcher, and writes what every core got of every step.

`python distributed_program.py torch|mpi FOLDER`
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from hlo_programs import PROGRAMS
from numpy.typing import NDArray

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, Ragged, ShardingStrategy, Sparse, TableConfig
from anycore.optimizers import (
    FTRL,
    OPTIMIZERS,
    Adagrad,
    Adam,
    DynamicInput,
    FrequencyEstimator,
    Optimizer,
    SimulatedQuantization,
    StochasticGradientDescent,
    UserDefinedProgram,
)
from anycore.sharding import Sharding
from anycore.transport import MPITransport, TorchTransport, Transport

NUM_CORES, NUM_STEPS, SAMPLES = 4, 20, 3
STRATEGIES = (ShardingStrategy.DIV_DEFAULT, ShardingStrategy.MOD)
PIPELINED = (False, True)
NUM_THREADS = (1, 2)
CASES = list(product(STRATEGIES, PIPELINED, NUM_THREADS))

_PROGRAM = next(program for program in PROGRAMS if program.name == "adam_rate").stored("lowered")
_FORMS: dict[str, Optimizer] = {
    "dynamic": Adam(learning_rate=DynamicInput(1), weight_decay_factor=0.01),
    "not_accumulated": Adagrad(learning_rate=0.1, gradient_accumulation=False),
    "every_row": Adam(learning_rate=0.02, use_non_lazy_adam=True),
    "quantized": Adagrad(
        learning_rate=0.05, simulated_quantization=SimulatedQuantization(clipping_limits=(-0.1, 0.1), num_buckets=16)
    ),
    "clipped": FTRL(learning_rate=0.1, l1=0.01, gradient_clipping_limits=(-1.5, 1), clipping_limits=(-0.2, None)),
    "sequence": StochasticGradientDescent(learning_rate=0.01),
}


def optimizers() -> dict[str, Optimizer]:
    """Returns every optimizer of the wire that trains, and forms that change how a table is updated."""
    as_they_are = {name: optimizer() for name, optimizer in OPTIMIZERS.items() if optimizer.rule is not None}
    return {**as_they_are, UserDefinedProgram.wire_name: UserDefinedProgram(program=_PROGRAM), **_FORMS}


def make_config(strategy: ShardingStrategy, pipelined: bool) -> EmbeddingConfig:
    """A table for each optimizer, as large as no other; two features share one, and one is a sequence."""
    combiners = ("sum", "mean", "sqrtn")
    tables = [
        TableConfig(
            name,
            vocabulary_size=3 + 2 * k,  # the first has fewer rows than there are cores
            dimension=1 if isinstance(optimizer, FrequencyEstimator) else 1 + k % 5,
            optimizer=optimizer,
            combiner=combiners[k % 3],
        )
        for k, (name, optimizer) in enumerate(optimizers().items())
    ]
    features = [
        FeatureConfig(f"of_{table.name}", table.name, [SAMPLES, 4] if table.name == "sequence" else [SAMPLES])
        for table in tables
    ]
    features += [FeatureConfig("more", "adagrad", [2 * SAMPLES]), FeatureConfig("again", "not_accumulated", [SAMPLES])]
    return EmbeddingConfig(
        tables,
        features,
        num_tensor_cores=NUM_CORES,
        sharding_strategy=strategy,
        pipeline_execution_with_tensor_core=pipelined,
    )


def inputs(config: EmbeddingConfig, step: int, core: int) -> list[Any]:
    """Returns the ids of a core: bags with and without weights, many of them alike, some without any."""
    random = np.random.default_rng([step, core])
    sizes = {table.name: table.vocabulary_size for table in config.tables}
    found: list[Any] = []
    for number, feature in enumerate(config.features):
        rows, size = feature.input_shape[0], sizes[feature.table]
        is_sequence = len(feature.input_shape) > 1
        kind = "ragged" if is_sequence else ("dense", "ragged", "sparse")[number % 3]
        lengths = np.ones(rows, np.int64) if kind == "dense" else random.integers(0, 5, rows)
        ids = np.minimum(random.zipf(1.3, lengths.sum()), size) - 1
        weights = random.uniform(0.5, 1.5, len(ids)).astype(np.float32)
        if kind == "dense":
            found.append(ids)
        elif kind == "ragged":
            splits = np.append(0, np.cumsum(lengths))
            found.append(Ragged(splits, ids, None if is_sequence else weights))
        else:
            found.append(Sparse(np.repeat(np.arange(rows), lengths), ids, weights))
    return found


def gradients(engine: EmbeddingEngine, step: int, core: int) -> list[NDArray[np.float32]]:
    """Returns the gradients of a core's activations."""
    random = np.random.default_rng([step, core, 1])
    return [random.standard_normal(each.shape).astype(np.float32) for each in engine.activations]


def rates(config: EmbeddingConfig, step: int) -> list[float]:
    """Returns the number of the step and, where a table has one, a learning rate that falls."""
    tags = {tag for table in config.tables for tag in table.optimizer.tags}
    return [float(step + 1), 0.5 / (step + 1)][: len(tags)]


def cores_of(engine: EmbeddingEngine) -> range:
    """Returns which of the config's cores the engine works for, in the order of its local numbers."""
    num_cores, transport = engine.config.num_tensor_cores, engine.transport
    if transport is None:
        return range(num_cores)
    return range(*Sharding("cores", num_cores, transport.size).ids_of_shard(transport.rank).indices(num_cores))


def enqueue(engine: EmbeddingEngine, step: int) -> None:
    """Queues a step on all cores of the engine."""
    for local, core in enumerate(cores_of(engine)):
        engine.enqueue(inputs(engine.config, step, core), core=local)


def receive(engine: EmbeddingEngine) -> list[Any]:
    """Returns the activations of all cores of the engine."""
    return [engine.receive_activations(local) for local in range(engine.num_cores)]


def send(engine: EmbeddingEngine, step: int, *, later: int = 0) -> None:
    """Sends the gradients of all cores of the engine, with the rates of this step or of a later one."""
    for local, core in enumerate(cores_of(engine)):
        engine.send_gradients(gradients(engine, step, core), rates(engine.config, step + later), core=local)


def train(engine: EmbeddingEngine, *, ahead: bool) -> dict[str, str]:
    """Returns a digest of the activations of each step and core; `ahead` enqueues a step before the last is sent."""
    digests = {}
    if ahead:
        enqueue(engine, 0)
    for step in range(NUM_STEPS):
        if not ahead:
            enqueue(engine, step)
        elif step + 1 < NUM_STEPS:
            enqueue(engine, step + 1)
        for core, activations in zip(cores_of(engine), receive(engine), strict=True):
            bits = b"".join(np.ascontiguousarray(array).tobytes() for array in activations)
            digests[f"step {step} core {core}"] = blake2b(bits, digest_size=8).hexdigest()
        send(engine, step)
    return digests


def tables_of(engine: EmbeddingEngine) -> dict[str, NDArray[np.float32]]:
    """Returns all state variables by table and name. Collective."""
    return {
        f"{table.name}/{name}": values
        for table in engine.config.tables
        for name, values in engine.retrieve(table.name).items()
    }


def different(found: Any, expected: Any) -> list[str]:
    """Returns the names of arrays that do not have the same bits."""
    assert set(found) == set(expected)
    return [
        name for name in expected if not np.array_equal(found[name].view(np.uint32), expected[name].view(np.uint32))
    ]


@contextmanager
def connected(carrier: str) -> Iterator[Transport]:
    """Returns a context with the transport between the processes of the launcher."""
    if carrier == "mpi":
        yield MPITransport()
        return
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    yield TorchTransport()
    torch.distributed.destroy_process_group()


def main(carrier: str, folder: Path) -> None:
    """Trains each case, and writes the digests of each process and the tables as the first one sees them."""
    with connected(carrier) as transport:
        for case, (strategy, pipelined, num_threads) in enumerate(CASES):
            engine = EmbeddingEngine(
                make_config(strategy, pipelined), seed=7, num_threads=num_threads, transport=transport
            )
            digests = train(engine, ahead=pipelined)
            (folder / f"{case}-{transport.rank}.json").write_text(json.dumps(digests))
            tables: Any = tables_of(engine)
            if transport.rank == 0:
                np.savez(folder / f"{case}.npz", **tables)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
