"""The caller's own optimizer: a rule and what it keeps becomes a class like ours, compiled and fused like ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import Field, field, fields, make_dataclass
from typing import Any

from anycore.errors import ConfigError
from anycore.optimizers import vocabulary
from anycore.optimizers.declarations import ANY_NUMBER, Slot
from anycore.optimizers.declared import MEAN_SQUARE
from anycore.optimizers.optimizer import Optimizer

_MOST_SLOTS = 7
_TAKEN = {"w", "g", "lr", "settings", "step", "rule", MEAN_SQUARE, *(f.name for f in fields(Optimizer))}


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
    name = getattr(rule, "__name__", "custom")
    names = [slot.name for slot in declared]
    if len({"parameters", *names}) != len(names) + 1 or len(names) > _MOST_SLOTS:
        raise ConfigError(f"rule {name!r}: slots must be at most {_MOST_SLOTS}, with names of their own, got {names}")
    for slot in declared:
        if slot.initial_value not in ANY_NUMBER:
            raise ConfigError(
                f"rule {name!r}: slot {slot.name!r} must start at a finite number, got {slot.initial_value!r}"
            )
    for taken in hyper_parameters:
        if taken in _TAKEN or taken in vocabulary.__all__ or hasattr(Optimizer, taken) or taken.startswith("slot_"):
            raise ConfigError(
                f"rule {name!r}: a hyper-parameter cannot be called {taken!r}, which means something else"
            )
    optimizer = make_dataclass(
        name.title().replace("_", ""),
        [
            (name, type(value), value if isinstance(value, Field) else field(default=value))
            for name, value in hyper_parameters.items()
        ],
        bases=(Optimizer,),
        namespace={
            "__doc__": rule.__doc__,
            "rule": staticmethod(rule),
            "slots": declared,
            "wire_name": name,
        },
        frozen=True,
        kw_only=True,
    )
    optimizer().check_rule()
    return optimizer
