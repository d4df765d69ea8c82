"""Turns of contenders, with anycore alone: other engines need an environment of their own."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from peers.interleave import interleave, turn_order


def test_a_run_holds_what_the_page_needs() -> None:
    (result,) = interleave(
        1, ["threads:adagrad"], tiny=True, chosen=[], repetitions=3, memory_bytes=8 << 30, seconds=5.0
    )
    assert result["absent"] == {}
    assert set(result["draws"]) == {"20 ids, uniform", "1 id, uniform"}
    for draw in result["draws"].values():
        assert set(draw["contenders"]) == {"anycore", "anycore_one_thread", "floor"}
        assert draw["deviations"] == {"anycore_one_thread": 0.0}
        assert 0 < draw["distinct_rows"] <= draw["lookups"]
        for times in draw["contenders"].values():
            assert times["repetitions"] == 3
            assert times["step"] > 0 and times["look_up"] > 0


def test_optimizers_run_beside_the_floor_alone() -> None:
    (result,) = interleave(
        1, ["optimizers:ftrl"], tiny=True, chosen=["anycore"], repetitions=1, memory_bytes=8 << 30, seconds=5.0
    )
    (draw,) = result["draws"].values()
    assert set(draw["contenders"]) == {"anycore", "floor"}


def test_who_is_slow_takes_fewer_turns_but_anycore_and_the_floor_take_all() -> None:
    (result,) = interleave(
        1, ["threads:adagrad"], tiny=True, chosen=[], repetitions=7, memory_bytes=8 << 30, seconds=1e-9
    )
    for draw in result["draws"].values():
        turns = {name: times["repetitions"] for name, times in draw["contenders"].items()}
        assert turns == {"anycore": 7, "anycore_one_thread": 3, "floor": 7}


def test_who_needs_more_memory_than_there_is_or_has_no_such_optimizer_is_absent() -> None:
    (result,) = interleave(
        1, ["threads:adagrad"], tiny=True, chosen=[], repetitions=1, memory_bytes=(2 << 30) + 7_000_000, seconds=5.0
    )
    assert result["absent"] == {"anycore_one_thread": "no memory: 0.0 GiB"}


def test_everybody_is_first_in_turn_and_behind_either_neighbour() -> None:
    names = ["a", "b", "c", "d"]
    orders = [turn_order(names, repetition) for repetition in range(8)]
    assert all(sorted(order) == names for order in orders)
    assert Counter(order[0] for order in orders) == dict.fromkeys(names, 2)
    behind = Counter(pair for order in orders for pair in pairwise(order))
    assert behind["a", "b"] == behind["b", "a"] == 3
