"""The order of calls: which step a call belongs to, when it must wait, and when an update is due.

A step is one enqueue, one receive and, in training, one send on every core. On a TPU a call out of order hangs; here it
waits for the missing call of another thread up to a timeout, then raises. Nothing here touches a table.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from anycore.config import Mode
from anycore.errors import CallOrderError, CallTimeoutError, InputError


@dataclass
class Step:
    """One step of the whole system; its lists have one place a core."""

    number: int
    mode: Mode
    batches: list[Any]
    gradients: list[Any]
    learning_rates: tuple[float, ...] | None = None
    received: set[int] = field(default_factory=set)
    ids: Any = None
    """What the tables make of the batches once every core has enqueued."""
    refused: bool = False
    """Whether another process refused its part."""

    @property
    def is_enqueued(self) -> bool:
        """True when every core has enqueued its batch."""
        return all(batch is not None for batch in self.batches)

    @property
    def trains(self) -> bool:
        """True when gradients must follow."""
        return self.mode != Mode.INFERENCE and not self.refused

    @property
    def is_sent(self) -> bool:
        """True when every core has sent its gradients."""
        return all(gradients is not None for gradients in self.gradients)

    @property
    def is_received(self) -> bool:
        """True when every core has received its activations, or there are none to receive."""
        return self.mode == Mode.BACKWARD_PASS_ONLY or len(self.received) == len(self.batches)


class Schedule:
    """The steps under way. Every method expects the caller to hold `lock`; waiting gives it up meanwhile.

    Source: `pipeline_execution_with_tensor_core`, tpu_embedding_configuration.proto: without it a forward pass sees
    every earlier update; with it, in training, every earlier one but the last.
    """

    def __init__(self, num_cores: int, *, pipelined: bool, timeout: float, together: bool = False) -> None:
        """`together`: the first core's receive is for all, so that it waits for all to enqueue."""
        self.lock = threading.Condition()
        self._num_cores = num_cores
        self._pipelined = pipelined
        self._together = together
        self._timeout = timeout
        self._steps: dict[int, Step] = {}
        self._next_enqueue = [0] * num_cores
        self._to_receive: list[deque[int]] = [deque() for _ in range(num_cores)]
        self._given_up: dict[int, str] = {}
        """Why the last batch of a core was taken back; until it enqueues the next one."""
        self._refused: set[int] = set()
        """Numbers of steps given up, which cores that have not come to them leave out."""
        self._closed: str | None = None

    def enqueue(self, core: int, batch: Any, mode: Mode) -> Step:
        """Returns the step that the core's batch joins. Raises: InputError when other cores are in another mode."""
        number = self._next_number(core)
        step = self._steps.get(number)
        if step is None:
            step = Step(number, mode, [None] * self._num_cores, [None] * self._num_cores)
        if step.mode != mode:
            raise InputError(
                f"core {core}: step {number} must be enqueued with mode {step.mode.name} as on the other cores, "
                f"got {mode.name} (mode_override)"
            )
        step.batches[core] = batch
        self._steps[number] = step
        if mode != Mode.BACKWARD_PASS_ONLY:
            self._to_receive[core].append(number)
        self._next_enqueue[core] = number + 1
        self._given_up.pop(core, None)
        self.lock.notify_all()
        return step

    def refuse(self, core: int, error: BaseException) -> int:
        """Gives up the step that a refused batch of the core would have joined, on all cores; returns its number.

        The batches of other cores would be joined by that of another step. No update of this step has happened, for it
        waits for this core. Those that have enqueued learn of it when they receive or send, unless they go on.
        """
        number = self._next_number(core)
        self._steps.pop(number, None)
        self._refused = {refused for refused in self._refused if refused >= min(self._next_enqueue)} | {number}
        for other, following in enumerate(self._next_enqueue):
            if following > number:
                self._given_up[other] = (
                    f"step {number} was given up on all cores, for enqueue(core={core}) was refused: {error}"
                )
                if number in self._to_receive[other]:
                    self._to_receive[other].remove(number)
        self.lock.notify_all()
        return number

    def mark_refused(self, core: int, step: Step) -> None:
        """Notes that the core knows that another process refused the step; nothing more is to be done of it."""
        step.refused = True
        self.mark_received(core, step)

    def mark_unsent(self, step: Step) -> None:
        """Forgets the step's gradients; every core must send them again."""
        step.gradients[:] = [None] * self._num_cores
        step.learning_rates = None
        self.lock.notify_all()

    def close(self, reason: str) -> None:
        """Ends all waiting, now and later: such calls raise CallOrderError with the reason."""
        self._closed = reason
        self.lock.notify_all()

    def next_to_receive(self, core: int) -> Step:
        """Returns the step whose activations the core gets next, once it is enqueued and earlier updates allow it.

        Raises: CallOrderError when the missing call does not come in time.
        """
        self._wait(lambda: self._missing_to_receive(core))
        return self._steps[self._to_receive[core][0]]

    def wait_until_whole(self, call: str) -> None:
        """Waits until no update is held back by a step that some cores have received and others have not.

        Raises: CallOrderError when the missing receive does not come in time.
        """
        self._wait(lambda: self._missing_to_drain(call))

    def check_idle(self, call: str) -> None:
        """Raises CallOrderError when a step is under way, of which more is missing than a held-back update."""
        for number, step in self._steps.items():
            if not step.is_sent:
                raise CallOrderError(f"{call}: step {number} is under way; finish it first")

    def next_to_send(self, core: int) -> Step:
        """Returns the step whose gradients the core must send next.

        Raises: CallOrderError when no received training step waits for gradients of this core.
        """
        for step in self._training_steps():
            if self._waits_for(step, core):
                return step
            if step.gradients[core] is None and step.batches[core] is not None:
                break
        self._check_given_up(f"send_gradients(core={core})", core)
        raise CallOrderError(
            f"send_gradients(core={core}): no training step waits for gradients; "
            f"call enqueue(core={core}) in training mode and receive_activations(core={core}) first"
        )

    def mark_received(self, core: int, step: Step) -> None:
        """Notes that the core has the step's activations."""
        step.received.add(core)
        self._to_receive[core].popleft()
        if step.is_received and not step.trains:
            del self._steps[step.number]
        self.lock.notify_all()

    def mark_unreceived(self, core: int, step: Step) -> None:
        """Takes back that the core has the step's activations."""
        step.received.remove(core)
        self._to_receive[core].appendleft(step.number)

    def mark_sent(self, core: int, step: Step, gradients: Any, learning_rates: tuple[float, ...]) -> None:
        """Notes the core's gradients; the step keeps them until it is applied."""
        step.gradients[core] = gradients
        step.learning_rates = learning_rates
        self.lock.notify_all()

    def next_due(self, *, drain: bool = False) -> Step | None:
        """Returns the oldest step whose update must happen now, or None.

        With `drain` a pipelined update no longer waits for the next step's activations.
        """
        step = next(self._training_steps(), None)
        if step is None or not step.is_sent or (not drain and self._is_held(step)):
            return None
        return step

    def due_with(self, core: int) -> Step | None:
        """Returns the step whose update comes next and waits for the core's gradients, or None."""
        step = next(self._training_steps(), None)
        return step if step is not None and self._waits_for(step, core) and not self._is_held(step) else None

    def mark_applied(self, step: Step) -> None:
        """Forgets a step, at the moment before its update begins: from then on it counts as done."""
        del self._steps[step.number]
        self.lock.notify_all()

    def _next_number(self, core: int) -> int:
        """Returns the number of the step that the core's next batch joins."""
        number = self._next_enqueue[core]
        while number in self._refused:
            number += 1
        return number

    def _is_held(self, step: Step) -> bool:
        if not self._pipelined or step.mode != Mode.TRAINING:
            return False
        following = next((later for later in self._training_steps() if later.number > step.number), None)
        return following is None or not following.is_received

    def _waits_for(self, step: Step, core: int) -> bool:
        """Returns whether the core has what it needs to send the step's gradients, and has not sent them."""
        is_received = core in step.received or step.mode == Mode.BACKWARD_PASS_ONLY
        return is_received and step.gradients[core] is None and step.batches[core] is not None

    def _training_steps(self) -> Iterator[Step]:
        return (step for _, step in sorted(self._steps.items()) if step.trains)

    def _missing_to_receive(self, core: int) -> str | None:
        """Returns why the core cannot receive yet, or None."""
        call = f"receive_activations(core={core})"
        if not self._to_receive[core]:
            self._check_given_up(call, core)
            if any(step.gradients[core] is None and step.batches[core] is not None for step in self._training_steps()):
                return (
                    f"{call}: all that was enqueued is received or has no activations; "
                    f"call send_gradients(core={core}) or enqueue(core={core}) first"
                )
            return f"{call}: step {self._next_number(core)} was never enqueued; call enqueue(core={core}) first"
        step = self._steps[self._to_receive[core][0]]
        missing = self._missing_before(step)
        if missing is None and self._together and not step.is_enqueued:
            missing = f"the ids of all cores; call enqueue(core={step.batches.index(None)}) first"
        return missing and f"{call}: step {step.number} needs {missing}"

    def _missing_before(self, step: Step) -> str | None:
        """Returns what must come before the step's forward pass, or None."""
        earlier = [other for other in self._training_steps() if other.number < step.number]
        stale = self._pipelined and step.mode == Mode.TRAINING
        for other in earlier[:-1] if stale else earlier:
            for core in range(self._num_cores):
                if other.gradients[core] is None:
                    return f"the gradients of step {other.number}; call send_gradients(core={core}) first"
        if stale and len(earlier) > 1:
            return f"the update of step {earlier[-2].number}; {self._late_receive(earlier[-1])}"
        return None

    def _missing_to_drain(self, call: str) -> str | None:
        """Returns which receive must come before held-back updates may be applied, or None."""
        for step, following in pairwise(self._training_steps()):
            if step.is_sent and following.received and not following.is_received:
                return f"{call} needs the update of step {step.number}; {self._late_receive(following)}"
        return None

    def _check_given_up(self, call: str, core: int) -> None:
        if core in self._given_up:
            raise CallOrderError(f"{call}: {self._given_up[core]}")

    def _late_receive(self, step: Step) -> str:
        late = next(core for core in range(self._num_cores) if core not in step.received)
        return f"call receive_activations(core={late}) first"

    def _wait(self, missing: Callable[[], str | None]) -> None:
        deadline = time.monotonic() + self._timeout
        while (problem := missing()) is not None:
            remaining = deadline - time.monotonic()
            if self._closed is not None:
                raise CallOrderError(f"{problem} ({self._closed})")
            if remaining <= 0:
                raise CallTimeoutError(f"{problem} (waited {self._timeout:g} s)")
            self.lock.wait(remaining)
