"""Adagrad with regularization by description length (Shamir: Minimum Description Length, PMLR 44, 2015)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from anycore.optimizers.declarations import Slot
from anycore.optimizers.optimizer import Optimizer


@dataclass(frozen=True, kw_only=True)
class MDLAdagradLight(Optimizer):
    """Loaded, looked up and retrieved, but not trained: its arithmetic is not published.

    No front end creates its slots; they start at what older runtimes padded rows with.

    A class derived from it with a rule `(w, g, lr, accumulators, weights, benefits, …) -> (w, accumulators, weights,
    benefits)` trains; give it to `EmbeddingConfig.from_proto(config, optimizers={"mdl_adagrad_light": …})`.

    Source: `MdlAdagradLightParameters`, optimization_parameters.proto, which names hyper-parameters alone; the paper
    describes what this is a variant of.
    """

    l2: float = 0.0
    lr_power: float = -0.5
    min_servable_mdl_benefit: float = 0.0
    mdl_mix_in_margin: float = 0.0
    mdl_benefit_rampup_coeff: float = 0.0
    mdl_min_weight: float = 0.0
    benefit_revisit_scale: float = 0.0
    max_event_benefit: float = 0.0
    max_total_benefit: float = 0.0
    mdl_hard_limit: float = 0.0
    hard_limit_min_benefit: bool = False
    mdl_regularize: bool = False

    rule: ClassVar[Callable[..., Any] | None] = None
    slots = (Slot("accumulators", 0.1), Slot("weights"), Slot("benefits"))
    wire_name = "mdl_adagrad_light"
    op_name = "MDLAdagradLight"
