"""Steps that are given up, and waiting that ends with the tables."""

from __future__ import annotations

import threading
import time

import pytest
from story import Story

from anycore.errors import CallOrderError, InputError


def refuse(story: Story, core: int) -> None:
    with story.schedule.lock:
        story.schedule.refuse(core, InputError("id 99"))


def test_a_refused_core_takes_the_batches_of_the_others_with_it() -> None:
    story = Story(num_cores=2)
    story.enqueue(core=0)
    refuse(story, core=1)
    with pytest.raises(
        CallOrderError,
        match=r"receive_activations\(core=0\): step 0 was given up on all cores, for enqueue\(core=1\) .* id 99",
    ):
        story.receive(0)
    assert [story.enqueue(core=core).number for core in (0, 1)] == [1, 1]
    assert [story.receive(core) for core in (0, 1)] == [1, 1]
    assert [story.send(core) for core in (0, 1)] == [1, 1]
    assert story.applied == [1]


def test_a_step_that_a_core_has_received_and_sent_is_given_up_too() -> None:
    story = Story(num_cores=2)
    story.enqueue(core=0)
    story.receive(0)
    refuse(story, core=1)
    with pytest.raises(CallOrderError, match=r"send_gradients\(core=0\): step 0 was given up"):
        story.send(0)
    for core in (0, 1):
        assert story.enqueue(core=core).number == 1
        assert story.receive(core) == 1
        assert story.send(core) == 1
    assert story.applied == [1]


def test_what_a_core_has_enqueued_after_the_step_given_up_stays() -> None:
    story = Story(num_cores=2)
    for _ in range(2):
        story.enqueue(core=0)
    refuse(story, core=1)
    assert story.enqueue(core=1).number == 1
    assert [story.receive(core) for core in (0, 1)] == [1, 1]


def test_several_steps_given_up_leave_the_others_whole() -> None:
    story = Story(num_cores=2)
    for _ in range(3):
        story.enqueue(core=0)
    refuse(story, core=1)  # of step 0
    for _ in range(2):
        story.enqueue(core=1)
    refuse(story, core=0)  # of step 3
    assert [story.enqueue(core=1).number, story.enqueue(core=0).number] == [4, 4]
    for number in (1, 2, 4):
        for core in (0, 1):
            assert story.receive(core) == number
        for core in (0, 1):
            assert story.send(core) == number
    assert story.applied == [1, 2, 4]


def test_a_core_that_is_behind_skips_none_but_the_one_given_up() -> None:
    story = Story(num_cores=2)
    story.enqueue(core=0)
    refuse(story, core=0)  # of step 1, while core 1 has step 0 before it
    assert [story.enqueue(core=1).number for _ in range(2)] == [0, 2]
    assert story.enqueue(core=0).number == 2


def test_all_cores_send_anew_what_was_not_applied() -> None:
    story = Story(num_cores=2)
    for core in (0, 1):
        story.enqueue(core=core)
        story.receive(core)
    story.send(0)
    with story.schedule.lock:
        step = story.schedule.next_to_send(1)
        assert story.schedule.due_with(1) is step
        assert story.schedule.due_with(0) is None
        story.schedule.mark_unsent(step)
    assert [story.send(core) for core in (0, 1)] == [0, 0]
    assert story.applied == [0]


def test_a_step_that_another_process_refused_is_left_out() -> None:
    story = Story(num_cores=2)
    for _ in range(2):
        for core in (0, 1):
            story.enqueue(core=core)
    for core in (0, 1):
        with story.schedule.lock:
            story.schedule.mark_refused(core, story.schedule.next_to_receive(core))
        assert story.receive(core) == 1


def test_earlier_steps_stay_when_one_is_given_up() -> None:
    story = Story(num_cores=2)
    for core in (0, 1, 0):
        story.enqueue(core=core)
    refuse(story, core=1)
    for core in (0, 1):
        assert story.receive(core) == 0
        assert story.send(core) == 0
    assert story.applied == [0]
    with pytest.raises(CallOrderError, match="step 1 was given up"):
        story.receive(0)


def test_a_refusal_of_the_only_core_takes_nothing_back() -> None:
    story = Story()
    story.enqueue()
    refuse(story, core=0)
    assert story.receive() == 0


def test_a_waiting_receive_learns_that_its_step_is_given_up() -> None:
    story = Story(num_cores=2, pipelined=False, timeout=60)
    for core in (0, 1, 0):
        story.enqueue(core=core)
    story.receive(0)
    story.send(0)  # of step 1, core 0 now waits for the gradients of core 1
    begin = time.monotonic()
    timer = threading.Timer(0.05, refuse, (story, 1))
    timer.start()
    with pytest.raises(CallOrderError, match="step 1 was given up"):
        story.receive(0)
    assert time.monotonic() - begin < 30
    timer.join()


def test_close_ends_the_waiting() -> None:
    story = Story(timeout=60)

    def close() -> None:
        with story.schedule.lock:
            story.schedule.close("the tables are gone")

    timer = threading.Timer(0.05, close)
    timer.start()
    begin = time.monotonic()
    for _ in range(2):
        with pytest.raises(CallOrderError, match=r"step 0 was never enqueued; .* \(the tables are gone\)"):
            story.receive()
    assert time.monotonic() - begin < 30
    timer.join()
