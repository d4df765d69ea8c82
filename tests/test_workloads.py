"""What the benchmark beside other engines measures."""

from __future__ import annotations

import pytest
from peers.workloads import ALL, WORKLOADS, Draw, Workload, chosen, named, unlike_when_tiny


def test_keys_are_unique() -> None:
    assert len({workload.key for workload in WORKLOADS}) == len(WORKLOADS)


def test_patterns_choose_by_name_and_optimizer() -> None:
    assert [workload.key for workload in chosen(["dlrm:adagrad", "dlrm:adagrad", "batch-12?"])] == [
        "dlrm:adagrad",
        "batch-128:adagrad",
    ]
    assert {workload.name for workload in chosen(["dlrm"])} == {"dlrm"}
    assert named("shared:row_wise_adagrad", tiny=False).optimizer == "row_wise_adagrad"
    with pytest.raises(ValueError, match=r"no workload is called 'dlmr', there are dlrm:adagrad, "):
        chosen(["dlmr"])


def test_what_is_large_must_be_named() -> None:
    assert "huge" not in {workload.name for workload in chosen([])}
    assert [workload.name for workload in chosen(["huge"])] == ["huge", "huge"]


def test_state_counts_arrays_as_large_as_the_parameters() -> None:
    expected = {"stochastic_gradient_descent": 1, "row_wise_adagrad": 1, "adagrad": 2, "adam": 3}
    for optimizer, arrays in expected.items():
        workload = Workload(name="any", num_tables=2, vocabulary_size=10, dimension=4, optimizer=optimizer)
        assert workload.state_bytes == arrays * workload.parameter_bytes == arrays * 4 * 80


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.key)
def test_tiny_workloads_are_of_the_same_kind(workload: Workload) -> None:
    tiny = named(workload.key, tiny=True)
    assert tiny.parameter_bytes < 3e6
    assert (tiny.sequence, tiny.weighted_mean, tiny.contenders) == (
        workload.sequence,
        workload.weighted_mean,
        workload.contenders,
    )
    assert set(tiny.draws) <= set(workload.draws)


def test_tiny_workloads_that_are_alike_run_once() -> None:
    alike = [Workload(name=name, vocabulary_size=rows) for name, rows in (("one", 10_000), ("two", 20_000))]
    unlike = Workload(name="three", draws=(Draw(1),))
    assert [workload.name for workload in unlike_when_tiny([*alike, unlike])] == ["one", "three"]


def test_every_engine_takes_part() -> None:
    assert {name for workload in WORKLOADS for name in workload.contenders} == {*ALL, "anycore_one_thread"}
