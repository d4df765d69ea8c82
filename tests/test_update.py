from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps import name_of, numpy_step

from anycore.arrays import address
from anycore.kernels.bind import compiled_step
from anycore.kernels.parallel import Workers
from anycore.kernels.update import place_rows, update
from anycore.optimizers import Adagrad, Adam, Optimizer, StochasticGradientDescent
from anycore.optimizers.compose import settings_of

WORKERS = Workers(2)
OPTIMIZERS = [
    StochasticGradientDescent(learning_rate=0.5),
    StochasticGradientDescent(learning_rate=0.5, gradient_accumulation=False, gradient_clipping_limits=(-0.5, 0.5)),
    Adagrad(learning_rate=0.1, weight_decay_factor=0.1, clipping_limits=(-1, 1)),
    Adagrad(learning_rate=0.1, gradient_accumulation=False),
    Adam(learning_rate=0.1),
    Adam(learning_rate=0.1, use_non_lazy_adam=True),
]


@dataclass
class Table:
    """Records [parameters | slot | …] and, for each core and sample, the ids, gains and gradient rows."""

    optimizer: Optimizer
    records: np.ndarray
    dimension: int
    gradients: np.ndarray  # [cores, samples, dimension]
    ids: list[tuple[int, int, int, float]]  # core, sample, id, gain; in this order
    weighted: bool


def random_table(rng: Any, optimizer: Optimizer, rows: int, dimension: int, cores: int, samples: int) -> Table:
    weighted = bool(rng.random() < 0.5)
    count = int(rng.choice([0, 1, 5, 40])) if samples else 0
    places = np.sort(rng.integers(0, cores * samples, count)) if count else np.zeros(0, int)
    return Table(
        optimizer,
        rng.uniform(0.1, 1, (rows, dimension * len(optimizer.state_variables) + 3)).astype(np.float32),
        dimension,
        rng.normal(0, 1, (cores, samples, dimension)).astype(np.float32),
        [
            (
                *divmod(int(place), samples),
                int(rng.integers(0, rng.integers(1, rows + 1))),
                float(np.float32(rng.normal())) if weighted else 1.0,
            )
            for place in places
        ],
        weighted,
    )


def update_with_numpy(table: Table) -> np.ndarray:
    """Returns the new records by plain float32 sums: each core's own, in order of the ids, then those of the cores."""
    optimizer, dimension = table.optimizer, table.dimension
    records = table.records.copy()
    width = dimension * len(optimizer.state_variables)

    def apply(row: int, gradient: np.ndarray) -> None:
        w, *slots = np.split(records[row, :width], len(optimizer.state_variables))
        records[row, :width] = np.concatenate(numpy_step(optimizer, gradient, w, *slots))

    for row in range(len(records)):
        sums: dict[int, np.ndarray] = {}
        for core, sample, row_id, gain in table.ids:
            if row_id != row:
                continue
            term = np.float32(gain) * table.gradients[core, sample]
            if not optimizer.gradient_accumulation:
                apply(row, term)
            else:
                sums[core] = sums[core] + term if core in sums else term
        if sums:
            first, *others = (sums[core] for core in sorted(sums))
            apply(row, sum(others, start=first))
        elif optimizer.updates_every_row:
            apply(row, np.zeros(dimension, np.float32))
    return records


def run(tables: list[Table], steps: list[int], gradient_rows: list[np.ndarray], pieces: int) -> None:
    """Calls the kernel on the tables' records; gradient_rows[table] has an address for each core and sample."""
    descriptors, optimizers, tasks = [], [], []
    rows: list[int] = []
    starts: list[int] = []
    samples: list[int] = []
    gains: list[float] = []
    for number, table in enumerate(tables):
        stride = table.records.strides[0]
        descriptors.append((address(table.records), stride, table.dimension, len(table.records)))
        optimizer = table.optimizer
        optimizers.append((steps[number], optimizer.gradient_accumulation, optimizer.updates_every_row))
        first = len(rows)
        distinct = sorted({row for _, _, row, _ in table.ids})
        for row in distinct:
            starts.append(len(samples))
            mine = [entry for entry in table.ids if entry[2] == row]
            samples += [core * table.gradients.shape[1] + sample for core, sample, *_ in mine]
            gains += [gain for *_, gain in mine]
        rows += [*distinct, -9]
        starts.append(len(samples))
        # Any cut between distinct rows is as good as any other.
        cuts = np.linspace(0, len(distinct), pieces + 1).astype(int)
        borders = [0, *(distinct[cut] for cut in cuts[1:-1] if cut < len(distinct))]
        borders += [len(table.records)] * (pieces + 1 - len(borders))
        tasks += [
            (number, first + cuts[k], first + cuts[k + 1], borders[k], borders[k + 1]) for k in range(len(cuts) - 1)
        ]
    settings = np.zeros((len(tables), 12), np.float32)
    for number, table in enumerate(tables):
        values = settings_of(table.optimizer)
        settings[number, : len(values)] = values
    WORKERS.run(
        update,
        *(np.array(tasks), np.array(descriptors), np.array(optimizers), settings),
        *(np.array(rows), np.array(starts), np.array(samples, np.int32), np.array(gains, np.float32)),
        np.array([table.weighted for table in tables]),
        np.concatenate(gradient_rows),
        np.concatenate([[0], np.cumsum([table.gradients.shape[1] for table in tables])]),
        len(tables[0].gradients),
    )


def addresses_of(gradients: np.ndarray) -> np.ndarray:
    """Returns the address of each row of a C-contiguous [cores, samples, dimension]."""
    cores, samples, dimension = gradients.shape
    return address(gradients) + 4 * dimension * np.arange(cores * samples, dtype=np.int64)


def assert_updated(tables: list[Table], pieces: int) -> None:
    """Every bit of the records, what stands between them included."""
    expected = [update_with_numpy(table) for table in tables]
    steps = [compiled_step(table.optimizer) for table in tables]
    run(tables, steps, [addresses_of(table.gradients) for table in tables], pieces)
    for table, records in zip(tables, expected, strict=True):
        np.testing.assert_array_equal(table.records.view(np.int32), records.view(np.int32))


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("dimension", [1, 3, 16, 63, 64, 130])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=name_of)
def test_one_table(optimizer: Optimizer, dimension: int, cores: int) -> None:
    rng = np.random.default_rng(dimension)
    for pieces in (1, 4):
        assert_updated([random_table(rng, optimizer, 20, dimension, cores, 6)], pieces)


@given(
    shapes=st.lists(
        st.tuples(
            st.sampled_from(OPTIMIZERS), st.integers(1, 30), st.sampled_from([1, 3, 16, 63, 130]), st.integers(0, 5)
        ),
        min_size=1,
        max_size=5,
    ),
    cores=st.integers(1, 4),
    pieces=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_many_tables(shapes: list[tuple[Optimizer, int, int, int]], cores: int, pieces: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = [
        random_table(rng, optimizer, rows, dimension, cores, samples) for optimizer, rows, dimension, samples in shapes
    ]
    assert_updated(tables, pieces)


def one_row(gradients: Any, ids: list[tuple[int, int, int, float]], optimizer: Optimizer, rows: int = 1) -> Table:
    """Returns a table of one column whose records are zeros."""
    gradients = np.array(gradients, np.float32)[..., None]
    return Table(optimizer, np.zeros((rows, 1), np.float32), 1, gradients, ids, any(gain != 1 for *_, gain in ids))


def test_sums_of_cores_are_added_last() -> None:
    """In float32 1 + 2⁻²⁴ is 1, so the order of a sum shows: core 1 has to add 2⁻²⁴ twice before it meets core 0."""
    optimizer = StochasticGradientDescent(learning_rate=-1.0)
    ids = [(0, 0, 0, 1.0), (1, 0, 0, 1.0), (1, 1, 0, 1.0)]
    table = one_row([[1, 0], [2**-24, 2**-24]], ids, optimizer)
    assert_updated([table], 1)
    assert table.records.item() == 1 + 2**-23


def test_within_a_core_the_order_is_that_of_the_samples() -> None:
    optimizer = StochasticGradientDescent(learning_rate=-1.0)
    table = one_row([[1, 2**-24, 2**-24]], [(0, sample, 0, 1.0) for sample in range(3)], optimizer)
    assert_updated([table], 1)
    assert table.records.item() == 1


def test_without_accumulation_every_occurrence_is_a_step() -> None:
    clip = {"gradient_clipping_limits": (-1, 1), "clipping_limits": (None, 1.5)}
    ids = [(0, 0, 0, 1.0), (0, 1, 0, 1.0), (1, 0, 0, 1.0)]
    found = []
    for accumulation in (True, False):
        optimizer = StochasticGradientDescent(learning_rate=-1.0, gradient_accumulation=accumulation, **clip)  # type: ignore[arg-type]
        table = one_row([[9, 9], [-0.25, 0]], ids, optimizer)
        assert_updated([table], 1)
        found.append(table.records.item())
    assert found == [1, 1.25]


def test_every_row_moves_only_where_the_optimizer_says_so() -> None:
    for non_lazy in (False, True):
        optimizer = Adam(learning_rate=1.0, use_non_lazy_adam=non_lazy)
        table = Table(
            optimizer, np.ones((6, 3), np.float32), 1, np.ones((1, 1, 1), np.float32), [(0, 0, 2, 1.0)], False
        )
        before = table.records.copy()
        assert_updated([table], 2)
        assert ((table.records != before).any(axis=1) == (np.arange(6) == 2) | non_lazy).all()


def test_a_table_that_no_id_touched() -> None:
    untouched, touched = (one_row([[1.0]], ids, OPTIMIZERS[0], rows=3) for ids in ([], [(0, 0, 0, 1.0)]))
    assert_updated([untouched, touched], 1)
    assert not untouched.records.any() and touched.records.any()


def test_place_rows() -> None:
    """Several features of a table, columns of a wider array, and one row of zeros for a missing gradient."""
    rows = np.full(9, -1)
    place_rows(np.array([[5, 2, 1000, 64], [0, 3, 2000, 4], [7, 2, 500, 0], [3, 0, 9, 9]]), rows)
    assert rows.tolist() == [2000, 2004, 2008, -1, -1, 1000, 1064, 500, 500]


def test_gradients_may_lie_anywhere() -> None:
    """Two cores, each with columns of a wider array and, for its last two samples, zeros."""
    rng = np.random.default_rng(0)
    optimizer = StochasticGradientDescent(learning_rate=1.0)
    wide = rng.normal(0, 1, (2, 4, 9)).astype(np.float32)
    gradients = np.zeros((2, 6, 5), np.float32)
    gradients[:, :4] = wide[:, :, 2:7]
    ids = [(core, sample, sample % 2, 1.0) for core in range(2) for sample in range(6)]
    table = Table(optimizer, np.ones((2, 5), np.float32), 5, gradients, ids, False)
    expected, zeros, rows = update_with_numpy(table), np.zeros(5, np.float32), np.empty(12, np.int64)
    places = [(6 * core, 4, address(wide[core]) + 2 * 4, 9 * 4) for core in range(2)]
    places += [(6 * core + 4, 2, address(zeros), 0) for core in range(2)]
    place_rows(np.array(places), rows)
    run([table], [compiled_step(optimizer)], [rows], 1)
    np.testing.assert_array_equal(table.records, expected)


@pytest.mark.parametrize("dimension", [5, 64, 300])
def test_scratch_memory_is_the_kernels_until_it_returns(dimension: int) -> None:
    """A step that allocates must not be given the memory in which the kernel sums the next row's gradient."""
    kept: list[np.ndarray] = []
    sums: list[float] = []

    def allocate(record: int, gradient: int, dimension: int, settings: int) -> None:
        sums.append(ctypes.cast(gradient, ctypes.POINTER(ctypes.c_float))[0])
        kept.extend(np.full(size, -7, np.int8) for size in range(12 * dimension, 12 * dimension + 320, 8))

    step = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(allocate)
    location = ctypes.cast(step, ctypes.c_void_p).value
    assert location is not None
    optimizer = Adam(use_non_lazy_adam=True)
    records = np.zeros((8, 3 * dimension), np.float32)
    gradients = np.arange(1, 9, dtype=np.float32).reshape(2, 4, 1) * np.ones(dimension, np.float32)
    ids = [(core, sample, sample, 1.0) for core in range(2) for sample in range(4)]
    run([Table(optimizer, records, dimension, gradients, ids, False)], [location], [addresses_of(gradients)], 1)
    assert sums == [6, 8, 10, 12, 0, 0, 0, 0]
    assert all((array == -7).all() for array in kept)
