"""The two calls of a program into the engine: what each knows when it is traced, and what it does when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
from jax.custom_batching import custom_vmap
from numpy.typing import NDArray

from anycore.errors import CallOrderError, InputError
from anycore.jax import ffi
from anycore.jax.stand_in import Served, served

LOOKUP, UPDATE = "anycore_lookup", "anycore_update"
_MOST_UPDATES = 1 << 31


@dataclass(frozen=True)
class Call:
    """What is known of a call when its program is traced."""

    engine_number: int
    structure: Any = None
    """How the inputs are made of their arrays; None for those that `engine.enqueue` queued."""
    attributes: tuple[tuple[str, Any], ...] = ()
    num_rates: int = 0
    sends: tuple[bool, ...] = ()
    """Which activations have a gradient."""

    @property
    def served(self) -> Served:
        """What is known of the engine."""
        return served(self.engine_number)

    def inputs(self, arrays: Sequence[Any]) -> Any:
        """Returns the inputs of `EmbeddingEngine.enqueue`."""
        return jax.tree_util.tree_unflatten(self.structure, arrays)


_calls: dict[str, Call] = {}
"""The calls of all programs by what they look like, which is what a program holds of them."""


def program(name: str, call: Call, results: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
    """Returns the results of one of the two calls, of given shapes and dtypes."""
    _register()
    text = repr(call)
    _calls[text] = call

    @custom_vmap  # type: ignore[untyped-decorator]
    def run(*operands: Any) -> Any:
        return tuple(ffi.call(name, results, operands, text))

    @run.def_vmap  # type: ignore[untyped-decorator]
    def refuse(*_: Any) -> Any:
        raise InputError("a lookup cannot be batched by vmap: an engine's batch has the shapes of its config")

    return list(run(*operands))


@lru_cache(maxsize=1)
def _register() -> None:
    ffi.register(LOOKUP, _look_up)
    ffi.register(UPDATE, _update)


def _look_up(operands: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]], text: str) -> None:
    """Of token, core and inputs fills the number of updates that the tables had seen, and the activations."""
    call, (_, core, *arrays), (ticket, *activations) = _calls[text], operands, results
    ticket[...] = 0
    if call.structure is None:
        call.served.engine.receive_activations(int(core), out=activations)
        return
    with call.served.lock:
        ticket[...] = call.served.updates
        call.served.engine.look_up(call.inputs(arrays), out=activations, **dict(call.attributes))


def _update(operands: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]], text: str) -> None:
    """Of ticket, core, learning rates, gradients and inputs fills the token, a zero."""
    call, (ticket, core, *arrays) = _calls[text], operands
    rates, arrays = arrays[: call.num_rates], arrays[call.num_rates :]
    given, arrays = iter(arrays[: sum(call.sends)]), arrays[sum(call.sends) :]
    gradients = [next(given) if is_sent else None for is_sent in call.sends]
    if call.structure is None:
        call.served.engine.send_gradients(gradients, rates, int(core))
    else:
        with call.served.lock:
            if ticket != call.served.updates:
                raise CallOrderError(
                    "the tables were updated between a lookup and its gradients: look up all features of a step in one "
                    "call, differentiate it once, and give the tables that came back to the next one"
                )
            call.served.engine.update(call.inputs(arrays), gradients, rates, **dict(call.attributes))
            call.served.updates = (call.served.updates + 1) % _MOST_UPDATES
    results[0][...] = 0
