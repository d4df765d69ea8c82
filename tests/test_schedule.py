"""The order of calls, without tables: each call is a line of a story."""

from __future__ import annotations

import threading
import time

import pytest
from story import BACKWARD, INFERENCE, TRAINING, Story

from anycore.config import Mode
from anycore.errors import CallOrderError, CallTimeoutError, InputError
from anycore.schedule import Schedule


def test_a_step_is_applied_when_sent() -> None:
    story = Story()
    for number in range(3):
        story.enqueue()
        assert story.receive() == number
        assert story.send() == number
        assert story.applied == list(range(number + 1))


def test_a_step_is_applied_when_the_last_core_has_sent() -> None:
    story = Story(num_cores=3)
    for core in (2, 0, 1):
        story.enqueue(core=core)
        story.receive(core)
    story.send(1)
    story.send(2)
    assert story.applied == []
    story.send(0)
    assert story.applied == [0]


def test_enqueued_steps_wait_their_turn() -> None:
    story = Story()
    for _ in range(3):
        story.enqueue()
    assert [(story.receive(), story.send()) for _ in range(3)] == [(0, 0), (1, 1), (2, 2)]


def test_receive_without_enqueue_names_it() -> None:
    with pytest.raises(
        CallTimeoutError, match=r"step 0 was never enqueued; call enqueue\(core=1\) first \(waited 0.02 s\)"
    ):
        Story(num_cores=2).receive(1)


def test_receive_before_the_gradients_of_the_step_before_names_them() -> None:
    story = Story(num_cores=2)
    for core in (0, 1, 0, 1):
        story.enqueue(core=core)
    story.receive(0)
    story.receive(1)
    story.send(0)
    with pytest.raises(
        CallOrderError, match=r"step 1 needs the gradients of step 0; call send_gradients\(core=1\) first"
    ):
        story.receive(0)


@pytest.mark.parametrize("enqueued", [False, True])
def test_send_without_receive_is_refused_at_once(enqueued: bool) -> None:
    story = Story(timeout=60)
    if enqueued:
        story.enqueue()
    begin = time.monotonic()
    with pytest.raises(CallOrderError, match=r"send_gradients\(core=0\): no training step waits"):
        story.send()
    assert time.monotonic() - begin < 30


def test_inference_takes_no_gradients() -> None:
    story = Story()
    story.enqueue(INFERENCE)
    story.receive()
    with pytest.raises(CallOrderError, match="no training step waits"):
        story.send()


def test_a_second_send_is_refused() -> None:
    story = Story(num_cores=2)
    for core in (0, 1):
        story.enqueue(core=core)
        story.receive(core)
    story.send(0)
    with pytest.raises(CallOrderError, match=r"send_gradients\(core=0\)"):
        story.send(0)


def test_cores_of_a_step_share_its_mode() -> None:
    story = Story(num_cores=2)
    story.enqueue(TRAINING, core=0)
    with pytest.raises(InputError, match=r"core 1: step 0 must be enqueued with mode TRAINING .* got INFERENCE"):
        story.enqueue(INFERENCE, core=1)
    assert story.enqueue(TRAINING, core=1).number == 0


def test_a_receive_waits_for_another_threads_enqueue() -> None:
    story = Story(timeout=60)
    threading.Timer(0.05, story.enqueue).start()
    assert story.receive() == 0


def test_a_receive_waits_for_another_threads_gradients() -> None:
    story = Story(timeout=60)
    story.enqueue()
    story.enqueue()
    story.receive()
    threading.Timer(0.05, story.send).start()
    assert story.receive() == 1
    assert story.applied == [0]


def test_pipelining_applies_an_update_after_the_next_forward() -> None:
    story = Story(pipelined=True)
    for _ in range(3):
        story.enqueue()
    story.receive()
    story.send()
    assert story.applied == []
    story.receive()
    assert story.applied == [0]
    story.send()
    assert story.applied == [0]
    story.receive()
    assert story.applied == [0, 1]


def test_pipelining_lets_the_next_forward_run_before_the_gradients() -> None:
    story = Story(pipelined=True)
    for _ in range(3):
        story.enqueue()
    assert (story.receive(), story.receive()) == (0, 1)
    with pytest.raises(CallOrderError, match="step 2 needs the gradients of step 0"):
        story.receive()
    story.send()
    assert story.applied == [0]
    assert story.receive() == 2


def test_pipelining_waits_for_the_forward_of_every_core() -> None:
    story = Story(num_cores=2, pipelined=True)
    for core in (0, 1, 0, 1, 0):
        story.enqueue(core=core)
    for core in (0, 1):
        story.receive(core)
    for core in (0, 1):
        story.send(core)
    story.receive(0)
    assert story.applied == []
    story.send(0)
    with pytest.raises(
        CallOrderError, match=r"step 2 needs the update of step 0; call receive_activations\(core=1\) first"
    ):
        story.receive(0)
    story.receive(1)
    assert story.applied == [0]


def test_pipelining_drains_for_readers_and_for_inference() -> None:
    story = Story(pipelined=True)
    for _ in range(2):
        story.enqueue()
        story.receive()
        story.send()
    story.drain()
    assert story.applied == [0, 1]
    story.enqueue()
    story.receive()
    story.send()
    story.enqueue(INFERENCE)
    story.receive()
    assert story.applied == [0, 1, 2]


def test_backward_pass_only_needs_no_receive() -> None:
    story = Story(pipelined=True)
    story.enqueue(BACKWARD)
    assert story.send() == 0
    assert story.applied == [0]
    story.enqueue(INFERENCE)
    assert story.receive() == 1


def test_backward_pass_only_leaves_earlier_activations_to_be_received() -> None:
    story = Story()
    story.enqueue(INFERENCE)
    story.enqueue(BACKWARD)
    assert story.send() == 1
    assert story.receive() == 0


def test_backward_pass_only_has_nothing_to_receive() -> None:
    story = Story()
    story.enqueue(BACKWARD)
    with pytest.raises(
        CallOrderError, match=r"received or has no activations; call send_gradients\(core=0\) or enqueue"
    ):
        story.receive()


def test_backward_pass_only_holds_no_pipelined_update_back() -> None:
    story = Story(pipelined=True)
    story.enqueue(TRAINING)
    story.receive()
    story.send()
    story.enqueue(BACKWARD)
    story.send()
    assert story.applied == [0, 1]
    story.enqueue(TRAINING)
    assert story.receive() == 2


@pytest.mark.parametrize(("mode", "pipelined"), [(INFERENCE, False), (TRAINING, True)])
def test_two_threads_on_a_core_get_a_step_each(mode: Mode, pipelined: bool) -> None:
    story = Story(pipelined=pipelined, timeout=60)
    received: list[int] = []
    threads = [threading.Thread(target=lambda: received.append(story.receive())) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    story.enqueue(mode)
    story.enqueue(mode)
    for thread in threads:
        thread.join()
    assert sorted(received) == [0, 1]


def test_readers_wait_for_a_step_that_is_received_in_part() -> None:
    story = Story(num_cores=2, pipelined=True)
    for core in (0, 1, 0, 1):
        story.enqueue(core=core)
    for core in (0, 1):
        story.receive(core)
    for core in (0, 1):
        story.send(core)
    story.receive(0)
    with (
        story.schedule.lock,
        pytest.raises(CallOrderError, match=r"retrieve needs .* call receive_activations\(core=1\)"),
    ):
        story.schedule.wait_until_whole("retrieve")
    story.receive(1)
    with story.schedule.lock:
        story.schedule.wait_until_whole("retrieve")
    assert story.applied == [0]


def test_with_cores_together_a_receive_waits_for_all_to_enqueue() -> None:
    schedule = Schedule(2, pipelined=False, timeout=0.02, together=True)
    with schedule.lock:
        schedule.enqueue(1, "batch", TRAINING)
        with pytest.raises(CallTimeoutError, match=r"step 0 needs the ids of all cores; call enqueue\(core=0\) first"):
            schedule.next_to_receive(1)
        step = schedule.enqueue(0, "batch", TRAINING)
        assert schedule.next_to_receive(1) is step


def test_what_is_taken_back_is_received_again_first() -> None:
    story = Story(pipelined=True)
    for _ in range(2):
        story.enqueue()
    story.receive()
    story.send()
    with story.schedule.lock:
        step = story.schedule.next_to_receive(0)
        story.schedule.mark_received(0, step)
        story.schedule.mark_unreceived(0, step)
        assert story.schedule.next_due() is None
    assert story.receive() == 1
    assert story.applied == [0]
