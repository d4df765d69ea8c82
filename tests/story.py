"""A schedule without tables: each call is a line of a story."""

from __future__ import annotations

from anycore.config import Mode
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
