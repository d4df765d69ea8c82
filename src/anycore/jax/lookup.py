"""Lookups inside JAX programs; their gradients update the tables.

A lookup of given ids leaves nothing behind in the engine: it reads the tables, and the backward pass brings the ids
once more and updates them, all in one call. So it does not matter when the gradients never come, or a program fails. A
lookup of what `engine.enqueue` queued is the engine's own step instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anycore.batch import Ragged
from anycore.errors import ConfigError, InputError
from anycore.jax.calls import LOOKUP, UPDATE, Call, program
from anycore.jax.stand_in import Tables


def lookup(
    tables: Tables,
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    learning_rates: Sequence[Any] = (),
    combiners: Sequence[str] = (),
    table_ids: Sequence[int] | None = None,
    max_sequence_lengths: Sequence[int] = (),
    num_features: Sequence[int] = (),
    core: Any = None,
) -> Any:
    """Returns the activations of `inputs`, float32 arrays in a list, or by name where the inputs are given by name.

    `inputs` and the attributes are those of `EmbeddingEngine.enqueue`; their arrays may be arguments of the program.
    Without `jax_enable_x64` JAX makes int32 of all ids. Differentiated with respect to `tables`, the backward pass
    updates the tables by the gradients of all activations, at `learning_rates`, one scalar a dynamic tag; otherwise
    this is inference. One lookup is one step: it is differentiated once, before any other update. It sees every update
    that `tables` depends on.

    Without `inputs` it takes what `engine.enqueue` queued next for `core`; gradients must follow if that trains. The
    programs that take one core's batches must depend on each other by `tables`, or be waited for.

    Raises: InputError for inputs that do not fit, ConfigError for a config that cannot be trained so. What is found in
    the ids themselves, such as one out of range, is the text of a JaxRuntimeError, and nothing has changed.
    """
    if not isinstance(tables, Tables):
        raise InputError(
            f"a lookup needs the Tables that anycore.jax.tables(engine) returns, got {type(tables).__name__}"
        )
    attributes = {
        "combiners": tuple(combiners),
        "table_ids": None if table_ids is None else tuple(table_ids),
        "max_sequence_lengths": tuple(max_sequence_lengths),
        "num_features": tuple(num_features),
    }
    if inputs is None:
        if any(attributes.values()):
            raise InputError(f"{', '.join(attributes)} are for inputs given here; give engine.enqueue its own")
        call, arrays = Call(tables.engine_number), []
    elif core is not None:
        raise InputError("core is for what engine.enqueue queued; given inputs are looked up outside the cores' steps")
    else:
        leaves, structure = jax.tree_util.tree_flatten(inputs)
        arrays = [_operand(leaf) for leaf in leaves]
        call = Call(tables.engine_number, structure, tuple(attributes.items()))
        _rehearse(call, tuple((array.shape, array.dtype) for array in arrays))
    rates = [jnp.asarray(rate, jnp.float32) for rate in learning_rates]
    core = jnp.asarray(0 if core is None else core, jnp.int32)
    activations = _look_up(call, tables.token, core, rates, arrays)
    if isinstance(inputs, Mapping):
        return dict(zip((activation.name for activation in tables.engine.activations), activations, strict=True))
    return activations


def _operand(leaf: Any) -> Any:
    array = jnp.asarray(leaf)
    return array.astype(jnp.float32) if jnp.issubdtype(array.dtype, jnp.floating) else array


@lru_cache(maxsize=256)
def _rehearse(call: Call, shapes: tuple[tuple[tuple[int, ...], Any], ...]) -> None:
    """Looks up zeros in place of the inputs, so that what does not fit is found while the program is traced."""
    inputs = call.inputs([np.zeros(shape, dtype) for shape, dtype in shapes])
    for value in inputs.values() if isinstance(inputs, Mapping) else inputs:
        if isinstance(value, Ragged):
            value.sample_splits[-1:] = np.size(value.embedding_indices)
    call.served.engine.look_up(inputs, **dict(call.attributes))


def _infer(call: Call, token: Any, core: Any, rates: Any, arrays: Any) -> list[Any]:
    return _looked_up(call, token, core, arrays)[1]


def _forward(call: Call, token: Any, core: Any, rates: Any, arrays: Any) -> tuple[list[Any], Any]:
    if any(value.perturbed for value in (*rates, *arrays)):
        raise InputError("lookups have no gradients of weights or learning rates; use jax.lax.stop_gradient on them")
    if call.structure is not None:
        _check_trains(call)
    core, rates, arrays = jax.tree_util.tree_map(lambda value: value.value, (core, rates, arrays))
    ticket, activations = _looked_up(call, _once(token.value), core, arrays)
    return activations, (ticket, core, rates, arrays)


def _backward(call: Call, residuals: Any, cotangents: Sequence[Any]) -> tuple[Any, None, None, None]:
    ticket, core, rates, arrays = residuals
    sends = [not isinstance(cotangent, jax.custom_derivatives.SymbolicZero) for cotangent in cotangents]
    gradients = [_once(cotangent) for cotangent, is_sent in zip(cotangents, sends, strict=True) if is_sent]
    call = replace(call, num_rates=len(rates), sends=tuple(sends))
    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    (token,) = program(UPDATE, call, [scalar], [ticket, core, *rates, *gradients, *arrays])
    return token, None, None, None


_look_up = jax.custom_vjp(_infer, nondiff_argnums=(0,))
_look_up.defvjp(_forward, _backward, symbolic_zeros=True)


def _no_second_derivative(primals: Any, tangents: Any) -> None:
    raise InputError("lookups have a gradient, but no gradient of the gradient")


_once = jax.custom_jvp(lambda value: value)
_once.defjvp(_no_second_derivative)


def _check_trains(call: Call) -> None:
    config = call.served.engine.config
    if not config.trains:
        raise ConfigError("a config of mode INFERENCE has no gradients (TPUEmbeddingConfiguration.mode)")
    for field, differs in (
        ("pipeline_execution_with_tensor_core", config.pipeline_execution_with_tensor_core),
        ("num_tensor_cores", config.num_tensor_cores > 1),
    ):
        if differs:
            raise ConfigError(
                f"{field} = {getattr(config, field)} makes steps that only the engine orders: call "
                "engine.enqueue(batch) before the program, and lookup(tables) without inputs in it "
                f"(TPUEmbeddingConfiguration.{field})"
            )
    if jax.sharding.get_abstract_mesh().manual_axes:
        raise ConfigError(
            "inside shard_map every device would train the tables by itself: use a config of as many num_tensor_cores, "
            "engine.enqueue for each core, and lookup(tables, core=jax.lax.axis_index(...)) "
            "(TPUEmbeddingConfiguration.num_tensor_cores)"
        )


def _looked_up(call: Call, token: Any, core: Any, arrays: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Returns the number of updates that the tables had seen, and the activations."""
    results = [jax.ShapeDtypeStruct(activation.shape, jnp.float32) for activation in call.served.engine.activations]
    scalar = jax.ShapeDtypeStruct((), jnp.int32)
    ticket, *activations = map(_of_this_device, program(LOOKUP, call, [scalar, *results], [token, core, *arrays]))
    return ticket, activations


def _of_this_device(value: Any) -> Any:
    """Says that a value differs between the devices of `shard_map`, which would else sum its gradient over them."""
    # Some versions of JAX know it by themselves.
    known = getattr(jax.typeof(value), "vma", ())
    axes = tuple(axis for axis in jax.sharding.get_abstract_mesh().manual_axes if axis not in known)
    if not axes:
        return value
    return jax.lax.pcast(value, axes, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary(value, axes)
