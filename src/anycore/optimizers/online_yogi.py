"""Yogi's second moment with FTRL's regularization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from anycore.optimizers.declarations import Interval, Slot
from anycore.optimizers.optimizer import Optimizer


@dataclass(frozen=True, kw_only=True)
class OnlineYogi(Optimizer):
    """Loaded, looked up and retrieved, but not trained: its arithmetic is not published.

    No front end creates its slots; they start at what older runtimes padded rows with.

    A class derived from it with a rule `(w, g, lr, vs, linears, …) -> (w, vs, linears)` trains; give it to
    `EmbeddingConfig.from_proto(config, optimizers={"online_yogi": …})`.

    Source: `OnlineYogiParameters`, optimization_parameters.proto, which names hyper-parameters alone.
    """

    l1: float = 0.0
    l2: float = 0.0
    beta2: float = 0.999

    rule: ClassVar[Callable[..., Any] | None] = None
    slots = (Slot("vs", 0.1), Slot("linears"))
    intervals = {"l1": Interval(0), "l2": Interval(0)}
    wire_name = "online_yogi"
