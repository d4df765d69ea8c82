"""Optimizers written for JAX, and the programs that it makes of them, which lie in data/hlo.

`python tests/hlo_programs.py` lowers them anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from anycore.optimizers.hlo import parse

FOLDER = Path(__file__).resolve().parent / "data" / "hlo"
RATE = 0.0625
"""Of the programs that take none."""
BETA1, BETA2, EPSILON = 0.875, 0.96875, 1e-7
KINDS = ("lowered", "optimized")


def sgd(xp: Any, g: Any, w: Any, lr: Any) -> Any:
    return (w - lr * g,)


def adagrad(xp: Any, g: Any, w: Any, a: Any, lr: Any) -> Any:
    a = a + g * g
    return w - lr * g / xp.sqrt(a), a


def adam(xp: Any, g: Any, w: Any, m: Any, v: Any, lr: Any) -> Any:
    m = BETA1 * m + (1 - BETA1) * g
    v = BETA2 * v + (1 - BETA2) * g * g
    return w - lr * m / (xp.sqrt(v) + EPSILON), m, v


def lion(xp: Any, g: Any, w: Any, m: Any, lr: Any) -> Any:
    return w - lr * xp.sign(BETA1 * m + (1 - BETA1) * g), BETA2 * m + (1 - BETA2) * g


def mixture(xp: Any, g: Any, w: Any, s: Any, n: Any, lr: Any) -> Any:
    """Functions that JAX calls, integers, numbers of every column, and powers of both kinds."""
    n = n + 1
    s = xp.clip(s, -1, 1) * xp.where(g > 0, 1, 2) + xp.power(xp.abs(g), 0.3)
    step = xp.where((s > 1) & ~(w < 0) | (g == 0), xp.exp(-s), xp.power(xp.abs(w) + 1, s))
    late = xp.asarray(n % 2 == 1, g.dtype)
    return w - lr * (xp.tanh(step) + xp.log1p(n) * late + xp.floor(8 * s) / 8), s, n


@dataclass(frozen=True)
class Program:
    """A function `(xp, g, w, *slots, lr) -> (w, *slots)` of an array library `xp`, and how it is lowered.

    `rate_shape` None lowers it with RATE inside, any other with the learning rate as the last argument.
    """

    function: Callable[..., Any]
    rate_shape: tuple[int, ...] | None

    @property
    def num_slots(self) -> int:
        return len(signature(self.function).parameters) - len(["xp", "g", "w", "lr"])

    @property
    def name(self) -> str:
        return self.function.__name__ + ("" if self.rate_shape is None else "_rate")

    def path(self, kind: str) -> Path:
        return FOLDER / f"{self.name}_{kind}.pb"

    def stored(self, kind: str) -> bytes:
        """Returns what JAX has lowered: `lowered` or, by its compiler for CPUs, `optimized`."""
        return self.path(kind).read_bytes()

    def in_jax(self) -> Callable[..., Any]:
        """Returns the function as a user of JAX writes it, `(g, w, *slots, lr if it takes one)`."""
        import jax.numpy as jnp

        if self.rate_shape is None:
            return lambda *arguments: self.function(jnp, *arguments, RATE)
        return lambda *arguments: self.function(jnp, *arguments)

    def lower(self) -> dict[str, bytes]:
        """Returns the programs that JAX makes of it, by kind."""
        import jax

        shapes = [(1, 1)] * (2 + self.num_slots) + ([] if self.rate_shape is None else [self.rate_shape])
        lowered = jax.jit(self.in_jax()).lower(*(jax.ShapeDtypeStruct(shape, "float32") for shape in shapes))
        modules = lowered.compiler_ir("hlo"), lowered.compile().runtime_executable().hlo_modules()[0]
        return {k: m.as_serialized_hlo_module_proto() for k, m in zip(KINDS, modules, strict=True)}


_RATE_SHAPES: dict[Callable[..., Any], tuple[int, ...]] = {sgd: (), adagrad: (), adam: (), lion: (1, 1), mixture: ()}
PROGRAMS = [Program(function, shape) for function in _RATE_SHAPES for shape in (None, _RATE_SHAPES[function])]


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for program in PROGRAMS:
        for kind, module in program.lower().items():
            message = parse(module)
            message.DiscardUnknownFields()  # where it was lowered, and more that says nothing about the arithmetic
            program.path(kind).write_bytes(message.SerializeToString(deterministic=True))
