"""What is measured: tables, features and the ids of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from trained_optimizers import trained_optimizers

ALL = ("anycore", "fbgemm", "torch", "tensorflow", "jax")
"""Contenders in the order in which they get memory."""
WITHOUT_TORCH = tuple(name for name in ALL if name != "torch")
_OPTIMIZERS = trained_optimizers()


@dataclass(frozen=True)
class Draw:
    """How many ids a sample has, and how they are distributed: 'uniform', 'Zipf 1.1', or 'hot'.

    With 'hot', one id makes half of all lookups, and the others are uniform.
    """

    ids_per_sample: int
    distribution: str = "uniform"

    def __str__(self) -> str:
        return f"{self.ids_per_sample} id{'s' * (self.ids_per_sample > 1)}, {self.distribution}"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Equal tables, `features_per_table` features each; its draws take turns on the same tables."""

    name: str
    num_tables: int = 26
    vocabulary_size: int = 200_000
    dimension: int = 64
    batch_size: int = 2048
    features_per_table: int = 1
    optimizer: str = "adagrad"
    weighted_mean: bool = False
    """Every id has a weight, and a sample's rows are averaged by it; else they are summed."""
    sequence: bool = False
    """A sample's rows stay apart: activations [batch_size, ids_per_sample, dimension]."""
    draws: tuple[Draw, ...] = (Draw(20),)
    contenders: tuple[str, ...] = ALL
    burst: int = 1
    """Steps in a row of one contender before the next one's turn: more than one where a step takes microseconds."""
    threads: int = 2
    """Of every contender, where the command line says nothing else."""
    default: bool = True
    """Runs when no workload is named."""

    @property
    def key(self) -> str:
        """The name by which results are stored and `--only` finds the workload."""
        return f"{self.name}:{self.optimizer}"

    @property
    def num_features(self) -> int:
        """Features of all tables."""
        return self.num_tables * self.features_per_table

    @property
    def parameter_bytes(self) -> int:
        """Of all tables, without slots."""
        return 4 * self.num_tables * self.vocabulary_size * self.dimension

    @property
    def state_bytes(self) -> int:
        """Of all tables, parameters and slots; slots of one value a row left out."""
        slots = _OPTIMIZERS[self.optimizer].slots
        return self.parameter_bytes * (1 + sum(not slot.per_row for slot in slots))

    def __str__(self) -> str:
        shared = f", {self.features_per_table} features each" if self.features_per_table > 1 else ""
        kind = ", weighted mean" if self.weighted_mean else ", sequence" if self.sequence else ""
        return (
            f"{self.num_tables} x {self.vocabulary_size:,} x {self.dimension}{shared}, batch {self.batch_size:,}"
            f"{kind}, {self.optimizer}"
        )

    def tiny(self) -> Workload:
        """Returns a small workload of the same kind, to try the benchmark itself."""
        return replace(
            self,
            num_tables=min(self.num_tables, 20 if self.num_tables > 100 else 3),
            vocabulary_size=min(self.vocabulary_size, 2000),
            dimension=min(self.dimension, 64),
            batch_size=min(self.batch_size, 64),
            draws=self.draws[:5],
            burst=min(self.burst, 2),
        )


def _catalogue() -> list[Workload]:
    both = (Draw(20), Draw(1))
    all_draws = (*both, Draw(20, "Zipf 1.1"), Draw(1, "Zipf 1.1"), Draw(20, "hot"))
    dlrm = Workload(name="dlrm", draws=all_draws)
    eight = Workload(name="eight", num_tables=8, vocabulary_size=160_000)
    line = Workload(name="line", num_tables=1, dimension=8, batch_size=8192)
    small = Workload(name="small", num_tables=500, vocabulary_size=10_000, dimension=16, batch_size=64)
    return [
        dlrm,
        replace(dlrm, optimizer="stochastic_gradient_descent", draws=both),
        replace(dlrm, optimizer="row_wise_adagrad"),
        replace(dlrm, optimizer="adam", draws=both),
        *(
            replace(dlrm, name="one-thread", draws=both, optimizer=optimizer, threads=1)
            for optimizer in ("adagrad", "stochastic_gradient_descent", "row_wise_adagrad")
        ),
        Workload(name="threads", draws=both, contenders=("anycore", "anycore_one_thread")),
        Workload(name="single", num_tables=1, vocabulary_size=20_000_000, dimension=16, draws=both),
        replace(small, draws=(Draw(1),), burst=5),
        Workload(name="tiny", batch_size=1, draws=(Draw(1),), burst=50),
        Workload(name="shared", num_tables=5, features_per_table=5, draws=both),
        Workload(name="sequence", num_tables=8, sequence=True),
        Workload(name="mean", weighted_mean=True),
        replace(eight, name="ids", draws=tuple(map(Draw, (1, 2, 5, 10, 20, 50, 100)))),
        *(replace(eight, name=f"dimension-{d}", dimension=d) for d in (8, 16, 64, 128, 256)),
        *(replace(line, name=f"vocabulary-1e{digits}", vocabulary_size=10**digits) for digits in (4, 5, 6, 7, 8)),
        *(replace(eight, name=f"batch-{size}", batch_size=size) for size in (128, 512, 2048, 8192)),
        # PyTorch would take minutes.
        replace(eight, name="batch-32768", batch_size=32768, contenders=WITHOUT_TORCH),
        *(_alone(replace(eight, name="optimizers"), optimizer) for optimizer in _OPTIMIZERS),
        # 12 GB of parameters and slots, or of parameters alone.
        Workload(name="huge", vocabulary_size=900_000, default=False),
        Workload(name="huge", vocabulary_size=1_800_000, optimizer="row_wise_adagrad", default=False),
    ]


def _alone(workload: Workload, optimizer: str) -> Workload:
    """Returns the workload for an optimizer beside nothing but the floor."""
    dimension = _OPTIMIZERS[optimizer].only_dimension or workload.dimension
    return replace(workload, optimizer=optimizer, dimension=dimension, contenders=("anycore",))


WORKLOADS = _catalogue()


def chosen(patterns: list[str]) -> list[Workload]:
    """Returns the workloads that match a pattern as in file names: `dlrm`, `dlrm:adam`, `vocabulary-*`, `shared:*`.

    A pattern may name an optimizer that a workload does not have by itself: `shared:row_wise_adagrad`. Without one, all
    of the workload's own are meant; without patterns, all workloads that run by default.

    Raises: ValueError for a pattern that matches nothing.
    """
    if not patterns:
        return [workload for workload in WORKLOADS if workload.default]
    found: dict[str, Workload] = {}
    for pattern in patterns:
        name, _, optimizer = pattern.partition(":")
        of_name = [workload for workload in WORKLOADS if fnmatchcase(workload.name, name)]
        matching = [workload for workload in of_name if fnmatchcase(workload.optimizer, optimizer or "*")]
        if not matching and optimizer in _OPTIMIZERS:
            unlike = {workload.name: replace(workload, optimizer=optimizer) for workload in reversed(of_name)}
            matching = list(reversed(unlike.values()))
        if not matching:
            keys = ", ".join(workload.key for workload in WORKLOADS)
            raise ValueError(f"no workload is called {pattern!r}, there are {keys}")
        found |= {workload.key: workload for workload in matching}
    return list(found.values())


def unlike_when_tiny(workloads: list[Workload]) -> list[Workload]:
    """Returns the workloads without those that are the same as another one when they are tiny."""
    found: dict[Workload, Workload] = {}
    for workload in workloads:
        found.setdefault(replace(workload.tiny(), name=""), workload)
    return list(found.values())


def named(key: str, tiny: bool) -> Workload:
    """Returns the workload of a key, or the tiny one of its kind. Raises: ValueError for an unknown key."""
    (workload,) = chosen([key])
    return workload.tiny() if tiny else workload
