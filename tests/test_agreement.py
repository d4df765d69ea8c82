"""Calls that all processes make, or none."""

from __future__ import annotations

import pytest
from shared_engines import in_processes, unless_raised

from anycore.agreement import agree
from anycore.errors import CallOrderError, InputError
from anycore.transport import Transport


def test_the_same_call_is_agreed_on() -> None:
    assert unless_raised(in_processes(3, lambda transport: agree(transport, "step 3"))) == [None] * 3


def test_different_calls_raise_on_all_and_name_each() -> None:
    errors = in_processes(3, lambda transport: agree(transport, f"step {transport.rank // 2}"))
    assert {type(error) for error in errors} == {CallOrderError}
    assert all("process 0: step 0; process 1: step 0; process 2: step 1" in str(error) for error in errors)


def test_a_refusal_raises_on_all_with_its_origin() -> None:
    reason = ValueError("id 9 of feature 'f'")
    errors = in_processes(3, lambda transport: agree(transport, "step", reason if transport.rank == 1 else None))
    assert {type(error) for error in errors} == {InputError}
    assert all("step: refused" in str(error) and "process 1: id 9 of feature 'f'" in str(error) for error in errors)
    assert errors[1].__cause__ is reason


def test_a_refusal_goes_before_a_different_call() -> None:
    def program(transport: Transport) -> None:
        agree(transport, f"step {transport.rank}", ValueError("no") if transport.rank == 1 else None)

    assert all("process 1: no" in str(error) for error in in_processes(2, program))


@pytest.mark.parametrize("text", ["no ☃ here", "x" * 100_000])
def test_any_reason_gets_through(text: str) -> None:
    errors = in_processes(2, lambda transport: agree(transport, "step", ValueError(text) if transport.rank else None))
    assert all(str(error).endswith(f"process 1: {text}") for error in errors)


def test_a_reason_without_words_has_a_name() -> None:
    reason = KeyboardInterrupt()
    errors = in_processes(2, lambda transport: agree(transport, "step", reason if transport.rank else None))
    assert all(str(error).endswith("process 1: KeyboardInterrupt") for error in errors)
