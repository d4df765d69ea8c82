"""The update of the tables as an optimizer, for the schedulers and loops that expect one."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from anycore.batch import Ragged
from anycore.engine import EmbeddingEngine
from anycore.errors import InputError
from anycore.interrupts import uninterrupted
from anycore.optimizers import DynamicInput


class TableOptimizer(torch.optim.Optimizer):
    """Gathers what backward passes send; the update happens when as many have come as the config has tensor cores.

    Each tag of a dynamic learning rate has a param group: `lr` is the rate, `params` are its tables' parameters. The
    gradients of several passes are summed as those of cores are, one pass after another, and never averaged.
    """

    def __init__(
        self, engine: EmbeddingEngine, parameters: Sequence[torch.Tensor], combiners: Sequence[str] = ()
    ) -> None:
        self._engine, self._combiners = engine, combiners
        self._gathered: list[tuple[Sequence[Ragged], Sequence[torch.Tensor | None]]] = []
        self._lock = threading.RLock()
        tables = engine.config.tables
        self._num_tags = len(set().union(*(table.optimizer.tags for table in tables)))
        rates = {table.name: table.optimizer.learning_rate for table in tables}
        self._tags = {name: rate.tag for name, rate in rates.items() if isinstance(rate, DynamicInput)}
        groups: list[dict[str, Any]] = [
            {
                "params": [each for each, name in zip(parameters, rates, strict=True) if self._tags.get(name) == tag],
                "lr": math.nan,
                "tag": tag,
            }
            for tag in sorted(set(self._tags.values()))
        ]
        # An optimizer has at least one group; without `lr`, schedulers refuse that one.
        super().__init__(groups or [{"params": list(parameters)}], {})
        # Other dynamic inputs than learning rates have no group, for schedulers would change them.
        self.state["dynamic_inputs"] = {}

    def set_learning_rate(self, tag_or_table: int | str, value: float) -> None:
        """Sets the rate of a tag, or of a table's tag, from the next update on.

        Raises: InputError for a table or tag without dynamic rate, or a value that is not finite.
        """
        tag = self._tags.get(tag_or_table) if isinstance(tag_or_table, str) else tag_or_table
        if tag not in range(self._num_tags):
            raise InputError(
                f"{tag_or_table!r} has no dynamic learning rate, the tables that have one, and their tags, are "
                f"{self._tags} (OptimizerDynamicInput.tag)"
            )
        if not math.isfinite(value):
            raise InputError(f"the learning rate of {tag_or_table!r} must be finite, got {value}")
        groups = [group for group in self.param_groups if group.get("tag") == tag]
        for group in groups:
            group["lr"] = float(value)
        if not groups:
            self.state["dynamic_inputs"][tag] = float(value)

    def gather(self, inputs: Sequence[Ragged], gradients: Sequence[torch.Tensor | None]) -> None:
        """Takes the ids and gradients of one backward pass, and updates the tables if it completes a step.

        Raises: InputError when a learning rate is missing or not finite; then nothing is taken.
        """
        cores = self._engine.config.num_tensor_cores
        with self._lock:
            self._rates()
            if len(self._gathered) + 1 < cores:  # their memory is the caller's, who may use it again
                inputs, gradients = copy.deepcopy(inputs), [g if g is None else g.clone() for g in gradients]
            self._gathered.append((inputs, gradients))
            if len(self._gathered) >= cores:
                self.step()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the tables with what is gathered; the backward pass that completes a step has done so already.

        Raises: InputError when a learning rate is missing or not finite; then nothing has changed.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with self._lock, uninterrupted():
            if self._gathered:
                self._update(self._rates())
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets what is gathered."""
        super().zero_grad(set_to_none)
        with self._lock:
            self._gathered = []

    def _update(self, rates: Sequence[float]) -> None:
        passes, self._gathered = self._gathered, []
        nothing = [no_ids(activation.num_samples) for activation in self._engine.activations]
        passes += [(nothing, [None] * len(nothing))] * (self._engine.config.num_tensor_cores - len(passes))
        for core, (inputs, _) in enumerate(passes):
            self._engine.enqueue(inputs, combiners=self._combiners, core=core, mode="backward_pass_only")
        for core, (_, gradients) in enumerate(passes):
            self._engine.send_gradients(gradients, rates, core)

    def _rates(self) -> list[float]:
        rates = {group.get("tag"): float(group.get("lr", 0)) for group in self.param_groups}
        rates.update(self.state["dynamic_inputs"])
        for tag in range(self._num_tags):
            if not math.isfinite(rates.setdefault(tag, math.nan)):
                raise InputError(
                    f"the learning rate of tag {tag} must be finite, got {rates[tag]}: call set_learning_rate({tag}, …)"
                )
        return [rates[tag] for tag in range(self._num_tags)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a TableOptimizer cannot be copied or pickled: use its state_dict")


def no_ids(rows: int) -> Ragged:
    """Returns an input of `rows` rows that are all empty."""
    return Ragged(np.zeros(rows + 1, np.int64), np.zeros(0, np.int64))
