"""Which aims are met, by results that are made up."""

from __future__ import annotations

from typing import Any

import pytest
from measured import memory, startup, steps, times
from performance_targets import TARGETS, target_rows


def row(results: dict[str, Any], what: str) -> list[str]:
    """Returns the cells of one aim after its name."""
    (cells,) = [cells[1:] for cells in target_rows(results) if cells[0] == what]
    return cells


def test_nothing_is_measured_at_first() -> None:
    assert [cells[2:] for cells in target_rows({})] == [["not measured", ""]] * len(TARGETS)


def test_the_worst_stands_first_and_decides() -> None:
    draws = {"20 ids, uniform": {"fbgemm": times(7.0)}, "20 ids, hot": {"fbgemm": times(5.5)}}
    results = {"steps": steps("dlrm:adagrad", draws)}
    assert row(results, "Adagrad, 20 ids a sample: FBGEMM's step") == [
        "≥ 6",
        "5.5 (`dlrm:adagrad` 20 ids, hot), 7 (`dlrm:adagrad` 20 ids, uniform)",
        "**no**: 1 of 2",
    ]
    assert row(results, "Adagrad, 1 id a sample: FBGEMM's step")[1] == "not measured"


def test_the_best_of_many_stands_last() -> None:
    draws = {f"{count} ids, uniform": {"fbgemm": times(3.0, count / 10)} for count in (10, 20, 30, 40, 50)}
    text = row({"steps": steps("ids:adagrad", draws)}, "forward alone: FBGEMM's, any workload")[1]
    assert text == (
        "1 (`ids:adagrad` 10 ids, uniform), 2 (`ids:adagrad` 20 ids, uniform), 3 (`ids:adagrad` 30 ids, uniform), "
        "… 5 (`ids:adagrad` 50 ids, uniform)"
    )


def test_other_threads_and_special_settings_do_not_count() -> None:
    draws = {"20 ids, uniform": {"fbgemm": times(1.0)}}
    results = {
        "steps": steps("dlrm:adagrad", draws, threads=1) | steps("dlrm:adagrad", draws, settings=", huge pages for all")
    }
    assert {cells[2] for cells in target_rows(results)} == {"not measured"}


@pytest.mark.parametrize(
    ("what", "value", "met"),
    [
        ("SGD and Adagrad: step to floor", "2", "**no**"),
        ("every optimizer: step to floor", "2", "yes"),
        ("500 small tables, batch 64: ms a step", "10", "**no**"),
        ("one thread's step to that of two", "1.8", "yes"),
    ],
)
def test_aims_of_anycore_alone(what: str, value: str, met: str) -> None:
    uniform = "20 ids, uniform"
    results = {
        "steps": steps("dlrm:adagrad", {uniform: {}})
        | steps("optimizers:ftrl", {uniform: {}})
        | steps("small:adagrad", {"1 id, uniform": {}})
        | steps("threads:adagrad", {uniform: {"anycore_one_thread": times(1.8)}})
    }
    assert row(results, what)[1].startswith(f"{value} (`")
    assert row(results, what)[2] == met


def test_a_hot_id_is_beside_uniform_ids_of_the_same_run() -> None:
    results = {"steps": steps("dlrm:adagrad", {"20 ids, uniform": {}, "20 ids, hot": {}})}
    assert row(results, "one id in half of all lookups: step to that of uniform ids")[1:] == [
        "1 (`dlrm:adagrad` 20 ids, hot)",
        "yes",
    ]


def test_memory_and_startup() -> None:
    results = {
        "memory": memory("dlrm:adagrad", "anycore", 2.1) | memory("dlrm:adagrad", "torch", 9.0),
        "startup": startup("import", {"anycore": {"import": 0.31}}),
    }
    what = "memory: peak less a batch, to parameters and slots"
    assert row(results, what) == ["≤ 1.1", "1.05 (`dlrm:adagrad`)", "yes"]
    assert row(results, "`import anycore`: seconds") == ["≤ 0.3", "0.31 (anycore)", "**no**"]
