"""The caller's own optimizer: a rule and what it keeps becomes a class like ours, compiled and fused like ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import Field, field, make_dataclass
from typing import Any

from anycore.errors import ConfigError
from anycore.optimizers.declarations import Slot
from anycore.optimizers.optimizer import Optimizer


def custom_optimizer(
    rule: Callable[..., Any], *, slots: Sequence[str | Slot] = (), **hyper_parameters: Any
) -> type[Optimizer]:
    """Returns an optimizer class that trains with `rule`.

    The rule is `(w, g, lr, *slots, *hyper_parameters) -> (w, *slots)`, written element by element in the words of
    `anycore.optimizers.vocabulary`; an argument `mean_square` gets the mean of g² over the row. `slots` lists what it
    keeps for every element, or with `Slot(name, per_row=True)` for every row. `hyper_parameters` gives the default of
    each: a number, a bool, `compiled(number)` for an exponent, or a DynamicInput. The class takes them as keywords,
    beside all that `Optimizer` takes. It has no form on the wire.

    Raises: ConfigError when the rule breaks a law of `laws`, and says which.
    """
    declared = tuple(slot if isinstance(slot, Slot) else Slot(slot) for slot in slots)
    names = [slot.name for slot in declared]
    if len({"parameters", *names}) != len(names) + 1:
        raise ConfigError(f"rule {rule!r}: slots must have names of their own, got {names}")
    optimizer = make_dataclass(
        getattr(rule, "__name__", "custom").title().replace("_", ""),
        [
            (name, type(value), value if isinstance(value, Field) else field(default=value))
            for name, value in hyper_parameters.items()
        ],
        bases=(Optimizer,),
        namespace={
            "__doc__": rule.__doc__,
            "rule": staticmethod(rule),
            "slots": declared,
            "wire_name": getattr(rule, "__name__", "custom"),
        },
        frozen=True,
        kw_only=True,
    )
    optimizer().check_rule()
    return optimizer
