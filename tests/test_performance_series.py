"""The lines of the plots."""

from __future__ import annotations

from measured import steps, times
from performance_series import lines_of


def test_numbers_come_from_the_draws_or_from_the_workloads_name() -> None:
    ids = {f"{count} id{'s' * (count > 1)}, uniform": {"fbgemm": times(count)} for count in (1, 20)}
    assert lines_of(steps("ids:adagrad", ids), "ids") == {
        2: {"anycore": {1.0: 10.0, 20.0: 10.0}, "floor": {1.0: 5.0, 20.0: 5.0}, "fbgemm": {1.0: 10.0, 20.0: 200.0}}
    }
    draws = {"20 ids, uniform": {"jax": times(3.0)}}
    many = steps("vocabulary-1e4:adagrad", draws) | steps("vocabulary-1e8:adagrad", {"20 ids, uniform": {}}, threads=1)
    assert lines_of(many, "vocabulary") == {
        2: {"anycore": {1e4: 10.0}, "floor": {1e4: 5.0}, "jax": {1e4: 30.0}},
        1: {"anycore": {1e8: 10.0}, "floor": {1e8: 5.0}},
    }


def test_other_optimizers_and_special_settings_are_in_no_plot() -> None:
    draws = {"20 ids, uniform": {"jax": times(3.0)}}
    others = steps("ids:row_wise_adagrad", draws) | steps("ids:adagrad", draws, settings=", huge pages for all")
    assert lines_of(others, "ids") == {}
