"""Predicts step time, traffic and balance of many hosts from the ids that sampled cores would ask for.

The model: a step is six messages from each host to each other. The three large ones carry ids, parameters and
gradients; each lasts as long as the host with most of it takes. Around them every host reads and writes memory:
parameters of the rows that it is asked for, gathered ones by id, gradients by id, and the records that it updates; and
an id costs some time however fast memory is. Nothing overlaps, so that a real step may be faster.

`--check` trains on 1, 2 and 4 processes of this machine, measures what the model needs to know of it, and prints
prediction beside measurement. The bytes must be the same.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from processes import core_batch, on_processes, sharded_config, train
from workload import Workload, draw

from anycore import EmbeddingConfig, ShardingStrategy
from anycore.plan import Plan
from anycore.sharding import Sharding

FLOAT, ID, COUNT, AGREEMENT = 4, 4, 8, 16
MESSAGES = 7
"""To each other host: may we, counts, ids, may we, parameters, may we, gradients."""
GREETING = 72
"""Bytes to each other process when an engine starts."""


@dataclass(frozen=True)
class Machine:
    """What a host can do; bytes a second, seconds a message, seconds an id."""

    link: float
    memory: float
    latency: float
    per_id: float


@dataclass(frozen=True)
class Prediction:
    """One step; the arrays have an entry for each host."""

    sent: NDArray[np.int64]
    received: NDArray[np.int64]
    least_sent: NDArray[np.int64]
    rows: NDArray[np.int64]
    """Rows that a host keeps and that cores ask for; a row counts for every core."""
    work: float
    """Seconds of the host that has most to do."""
    network: float

    @property
    def seconds(self) -> float:
        """The whole step."""
        return self.work + self.network

    @property
    def largest_share(self) -> float:
        """The part of all rows that one host keeps."""
        return float(self.rows.max() / max(1, self.rows.sum()))


def entries(config: EmbeddingConfig, ids: Sequence[NDArray[np.int64]], hosts: int) -> NDArray[np.int64]:
    """Returns int64[H, T]: how many rows of each table a core with these ids asks of each host."""
    counts = []
    for table, of_table in zip(config.tables, ids, strict=True):
        rows = np.unique(of_table) if table.optimizer.gradient_accumulation else of_table
        owners, _ = Sharding(table.name, table.vocabulary_size, hosts, config.sharding_strategy).locate(rows)
        counts.append(np.bincount(owners, minlength=hosts))
    return np.stack(counts, axis=1)


def predict(
    config: EmbeddingConfig, sampled: NDArray[np.int64], num_ids: int, cores: int, machine: Machine
) -> Prediction:
    """Returns what a step of `cores` cores does, `num_ids` ids each.

    sampled int64[K, H, T]: `entries` of K cores; core c asks for the same as number c modulo K.
    """
    number, hosts, num_tables = sampled.shape
    dimensions = np.array([table.dimension for table in config.tables])
    hosts_of_cores, _ = Sharding("cores", cores, hosts).locate(np.arange(cores))
    kinds = np.arange(cores) % number
    own, wanted = np.zeros((2, hosts, num_tables), np.int64)
    np.add.at(own, hosts_of_cores, sampled[kinds, hosts_of_cores])
    np.add.at(wanted, hosts_of_cores, sampled.sum(axis=1)[kinds])
    asked = np.tensordot(np.bincount(kinds, minlength=number), sampled, 1)

    cores_of_hosts = np.bincount(hosts_of_cores, minlength=hosts)
    vectors = dimensions * FLOAT
    ids_out, ids_in = ((rows - own).sum(axis=1) * ID for rows in (wanted, asked))
    floats_out, floats_in = ((rows - own) @ vectors for rows in (asked, wanted))
    counts_out = (hosts - 1) * COUNT * num_tables * cores_of_hosts
    counts_in = COUNT * num_tables * (cores - cores_of_hosts)
    agreements = 3 * AGREEMENT * (hosts - 1)
    # Parameters go out of the host that is asked and gradients come in, as many of them.
    floats = np.maximum(floats_out, floats_in).max()
    network = (np.maximum(ids_out + counts_out, ids_in + counts_in).max() + 2 * floats) / machine.link

    ids_of_hosts = num_ids * cores_of_hosts
    by_id = ids_of_hosts * vectors.mean()
    gathered = asked @ vectors
    kept = np.array([[table.vocabulary_size // hosts + 1 for table in config.tables]])
    records = np.minimum(asked, kept) @ np.array([_record_bytes(table) for table in config.tables])
    # Gathered parameters and gradients are read and written, the values of every id read twice, records both ways.
    memory = 4 * gathered + 2 * by_id + 2 * records
    return Prediction(
        sent=ids_out + counts_out + agreements + floats_out + floats_in,
        received=ids_in + counts_in + agreements + floats_out + floats_in,
        least_sent=ids_out + floats_out + floats_in,
        rows=asked.sum(axis=1),
        work=float((memory / machine.memory + ids_of_hosts * machine.per_id).max()),
        network=float(network) + MESSAGES * (hosts - 1) * machine.latency,
    )


def _record_bytes(table: Any) -> int:
    slots = [1 if slot.per_row else table.dimension for slot in table.optimizer.slots]
    return FLOAT * (table.dimension + sum(slots))


def table_ids(
    config: EmbeddingConfig, batch_size: int, ids_per_sample: int, zipf: float, by_popularity: bool, core: int
) -> list[NDArray[np.int64]]:
    """Returns ids of every table that a core might enqueue in a step."""
    random = np.random.default_rng(core)
    return [
        draw(random, rows * batch_size * ids_per_sample, table.vocabulary_size, zipf, by_popularity=by_popularity)
        for table, rows in zip(config.tables, Plan(config).num_features, strict=True)
    ]


def simulate(config: EmbeddingConfig, options: argparse.Namespace) -> None:
    """Prints a table of predictions."""
    batch_size = options.batch_size or Plan(config).batch_size_per_tensor_core
    machine = Machine(options.link * 1e9, options.memory * 1e9, options.latency * 1e-6, options.per_id * 1e-9)
    sampled = min(options.samples, max(options.hosts) * options.cores_per_host)
    ids = [
        table_ids(config, batch_size, options.ids_per_sample, options.zipf, options.by_popularity, core)
        for core in range(sampled)
    ]
    num_ids = sum(map(len, ids[0]))
    kind = f"Zipf {options.zipf:g}{', by popularity' if options.by_popularity else ''}" if options.zipf else "uniform"
    print(
        f"\n{len(config.tables)} tables, batch {batch_size:,} and {num_ids:,} ids a core, {kind}, "
        f"{options.cores_per_host} cores a host\nlink {options.link:g} GB/s, memory {options.memory:g} GB/s, "
        f"{options.latency:g} us a message, {options.per_id:g} ns an id; {sampled} cores sampled\n"
    )
    print("| hosts | by | step, ms | network, ms | MB sent a host | most | to the least | rows a host | most | share |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for hosts in options.hosts:
        for strategy in ShardingStrategy:
            spread = replace(config, sharding_strategy=strategy)
            asked = np.stack([entries(spread, each, hosts) for each in ids])
            found = predict(spread, asked, num_ids, hosts * options.cores_per_host, machine)
            to_the_least = found.sent.sum() / found.least_sent.sum() if hosts > 1 else 1
            print(
                f"| {hosts:,} | {strategy.name.removesuffix('_DEFAULT')} | {1e3 * found.seconds:.2f} "
                f"| {1e3 * found.network:.2f} | {found.sent.mean() / 1e6:.2f} | {found.sent.max() / 1e6:.2f} "
                f"| {to_the_least:.3f} | {found.rows.mean():,.0f} | {found.rows.max():,} | {found.largest_share:.4f} |"
            )


def calibrate(transport: Any) -> Machine:
    """Returns what this machine can do while all processes do the same; an id costs nothing yet."""
    source = np.zeros(1 << 25, np.uint8)
    target = np.empty_like(source)
    channel = transport.channel(60)
    copy = _fastest(lambda: np.copyto(target, source))
    others = max(1, transport.size - 1)
    parts = [source[: len(source) // 4] for _ in range(transport.size)]
    outcome = [target[: len(source) // 4].copy() for _ in range(transport.size)]
    exchange = _fastest(lambda: channel.all_to_all(parts, outcome))
    return Machine(
        link=others * len(parts[0]) / exchange,
        memory=2 * len(source) / copy,
        latency=_fastest(channel.barrier) / others,
        per_id=0.0,
    )


def _fastest(function: Any) -> float:
    times = []
    for _ in range(5):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def predicted_run(workload: Workload, size: int, steps: int, machine: Machine) -> tuple[NDArray[np.int64], Prediction]:
    """Returns the bytes that each process sends in so many steps, and the last one of these with the rows of all."""
    config = sharded_config(workload, size)
    sent, rows = np.full(size, GREETING * (size - 1), np.int64), np.zeros(size, np.int64)
    for step in range(steps):
        batches = [core_batch(workload, step, core) for core in range(size)]
        asked = np.stack([entries(config, [part.embedding_indices for part in batch], size) for batch in batches])
        num_ids = sum(len(part.embedding_indices) for part in batches[0])
        prediction = predict(config, asked, num_ids, size, machine)
        sent += prediction.sent
        rows += prediction.rows
    return sent, replace(prediction, rows=rows)


def check(options: argparse.Namespace, sizes: Sequence[int] = (1, 2, 3, 4)) -> None:
    """Prints predictions beside what processes of this machine measure. Raises: SystemExit when bytes differ."""
    base = Workload(vocabulary_size=50_000, batch_size=options.batch_size or 512, zipf=options.zipf)
    base = replace(base, ids_per_sample=options.ids_per_sample)
    steps = options.repetitions + 2
    print(f"\n{base}, {steps} steps; predicted and measured\n")
    print("| processes | by | MB sent | measured | largest share | measured | step, ms | measured |")
    print("|---|---|---|---|---|---|---|---|")
    per_id = None
    for size in sizes:
        machines = on_processes(size, calibrate)
        machine = Machine(*(float(np.mean([getattr(m, name) for m in machines])) for name in vars(machines[0])))
        for strategy in ShardingStrategy:
            workload = replace(base, sharding_strategy=strategy)
            measured = on_processes(size, train, workload, steps)
            seconds = max(each.seconds for each in measured)
            if per_id is None:  # what one process takes beyond its memory traffic
                sent, found = predicted_run(workload, size, 1, machine)
                ids = workload.num_tables * workload.batch_size * workload.ids_per_sample
                per_id = max(0.0, seconds - found.seconds) / ids
            # The processes share the processors that one had for itself.
            sent, found = predicted_run(workload, size, steps, replace(machine, per_id=per_id * size))
            moved = np.array([round(each.stats["bytes_sent_per_step"] * steps) for each in measured])
            share = measured[0].stats["largest_share_of_rows"]
            print(
                f"| {size} | {strategy.name.removesuffix('_DEFAULT')} | {sent.mean() / steps / 1e6:.3f} "
                f"| {moved.mean() / steps / 1e6:.3f} | {found.largest_share:.4f} | {share:.4f} "
                f"| {1e3 * found.seconds:.1f} | {1e3 * seconds:.1f} |",
                flush=True,
            )
            if not np.array_equal(sent, moved):
                raise SystemExit(f"predicted {sent.tolist()} bytes, the processes have sent {moved.tolist()}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the simulation from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--config", type=Path, help="a serialized TPUEmbeddingConfiguration instead of the built-in one"
    )
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 4, 16, 64, 256, 1024])
    parser.add_argument("--cores-per-host", type=int, default=1)
    parser.add_argument("--batch-size", type=int, help="samples of each core; default: the configuration's")
    parser.add_argument("--ids-per-sample", type=int, default=20)
    parser.add_argument("--zipf", type=float, default=1.1, help="exponent of the ids' distribution, 0: uniform")
    parser.add_argument("--by-popularity", action="store_true", help="id 0 is the most popular one, and so on")
    parser.add_argument("--link", type=float, default=12.5, help="GB/s of a host, each way")
    parser.add_argument("--memory", type=float, default=200.0, help="GB/s of a host")
    parser.add_argument("--latency", type=float, default=10.0, help="microseconds of a message")
    parser.add_argument("--per-id", type=float, default=5.0, help="nanoseconds of an id")
    parser.add_argument("--samples", type=int, default=4, help="cores whose ids are drawn")
    parser.add_argument("--check", action="store_true", help="train on processes of this machine, and compare")
    parser.add_argument("--repetitions", type=int, default=8)
    options = parser.parse_args(arguments)
    if options.check:
        check(options)
    else:
        config = EmbeddingConfig.from_proto(options.config.read_bytes()) if options.config else Workload().config()
        simulate(config, options)


if __name__ == "__main__":
    main()
