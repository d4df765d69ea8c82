"""The order of calls, without tables: each call is a line of a story."""

from __future__ import annotations

import threading
import time

import pytest

from anycore.config import Mode
from anycore.errors import CallOrderError, CallTimeoutError, InputError
from anycore.schedule import Schedule, Step

TRAINING, INFERENCE, BACKWARD = Mode.TRAINING, Mode.INFERENCE, Mode.BACKWARD_PASS_ONLY


class Story:
    """A schedule whose updates are noted, by number, in `applied`."""

    def __init__(self, num_cores: int = 1, *, pipelined: bool = False, timeout: float = 0.02) -> None:
        self.schedule = Schedule(num_cores, pipelined=pipelined, timeout=timeout)
        self.applied: list[int] = []

    def enqueue(self, mode: Mode = TRAINING, core: int = 0) -> Step:
        with self.schedule.lock:
            return self.schedule.enqueue(core, "batch", mode)

    def receive(self, core: int = 0) -> int:
        with self.schedule.lock:
            step = self.schedule.next_to_receive(core)
            if not step.trains:
                self._apply(drain=True)
            self.schedule.mark_received(core, step)
            self._apply()
            return step.number

    def send(self, core: int = 0) -> int:
        with self.schedule.lock:
            step = self.schedule.next_to_send(core)
            self.schedule.mark_sent(core, step, "gradients", ())
            self._apply()
            return step.number

    def drain(self) -> None:
        with self.schedule.lock:
            self._apply(drain=True)

    def _apply(self, *, drain: bool = False) -> None:
        while (step := self.schedule.next_due(drain=drain)) is not None:
            self.schedule.mark_applied(step)
            self.applied.append(step.number)


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


# Steps given up


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
    assert [story.enqueue(core=core).number for core in (0, 1)] == [0, 0]
    assert [story.receive(core) for core in (0, 1)] == [0, 0]
    assert [story.send(core) for core in (0, 1)] == [0, 0]
    assert story.applied == [0]


def test_a_step_that_a_core_has_received_and_sent_is_given_up_too() -> None:
    story = Story(num_cores=2)
    story.enqueue(core=0)
    story.receive(0)
    story.send(0)
    story.enqueue(core=0)
    refuse(story, core=1)
    with pytest.raises(CallOrderError, match=r"send_gradients\(core=0\): step 0 was given up"):
        story.send(0)
    for core in (0, 1):
        assert story.enqueue(core=core).number == 0
        assert story.receive(core) == 0
    assert story.applied == []
    for core in (0, 1):
        assert story.send(core) == 0
    assert story.applied == [0]


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
