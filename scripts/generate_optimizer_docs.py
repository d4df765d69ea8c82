"""Writes docs/optimizers.md from the optimizers: what their docstrings, slots and hyper-parameters say."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from anycore.optimizers import OPTIMIZERS, DynamicInput, Optimizer, RowWiseAdagrad, UserDefinedProgram

PAGE = Path(__file__).resolve().parents[1] / "docs" / "optimizers.md"
BACKENDS = "NumPy, Numba, JAX, torch, Triton"
EXTENSIONS: tuple[type[Optimizer], ...] = (RowWiseAdagrad,)

INTRODUCTION = """\
# Optimizers

Written by `scripts/generate_optimizer_docs.py` from the optimizers themselves.

Every optimizer of `OptimizationParameters` is a class of `anycore.optimizers` around a rule, which is one pure
function. Numba compiles it into the engine; the same function runs with NumPy, JAX and torch on arrays of your own, by
`update`, and with Triton on a GPU.

In the formulas, w is a parameter, g its gradient, summed over the step and clipped, lr the learning rate; a prime marks
a new value, and clip(x, ±t) is x within -t … t. All of it happens element by element. Around every rule come the
gradient's clipping, the decay and the parameter's clipping, from fields that all optimizers have: {common}.

Arithmetic is certain where TensorFlow has a kernel, or a text that gives every operation; otherwise the optimizer says
what its formula is inferred from. Operations X are `LoadTPUEmbeddingXParameters` and `RetrieveTPUEmbeddingXParameters`;
where there is none, `LoadAllTPUEmbeddingParameters` and `RetrieveAllTPUEmbeddingParameters` serve.
"""


def paragraphs(documented: Any) -> list[str]:
    """Returns the paragraphs of a docstring without what it raises, each on one line."""
    texts = re.split(r"\n\n|\n(?=Source:|Raises:)", inspect.getdoc(documented) or "")
    return [" ".join(text.split()) for text in texts if not text.startswith("Raises:")]


def status(optimizer: type[Optimizer]) -> str:
    """Returns how well the arithmetic is known, in a word or two."""
    if optimizer is UserDefinedProgram:
        return "the caller's"
    if optimizer.rule is None:
        return "not published, does not train"
    return "inferred" if any(text.startswith("Inferred") for text in paragraphs(optimizer.rule)) else "certain"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    first, *others = (f"| {' | '.join(cells)} |" for cells in [head, *rows])
    return "\n".join([first, f"|{'---|' * len(head)}", *others])


def overview(optimizers: Iterable[type[Optimizer]]) -> str:
    """Returns the table of all optimizers."""
    rows = []
    for optimizer in optimizers:
        lazy = [f"`{f.name}`" for f in fields(optimizer) if f.name.startswith("use_non_lazy")]
        rows.append(
            [
                f"[`{optimizer.__name__}`](#{optimizer.__name__.lower()})",
                f"`{optimizer.wire_name}`" if optimizer.wire_name in OPTIMIZERS else "none, an extension",
                status(optimizer),
                optimizer.op_name or "none",
                *(lazy or ["no"]),
                "none" if status(optimizer).startswith("not published") else BACKENDS,
            ]
        )
    return table(["class", "field of the oneof", "arithmetic", "operations", "updates every row", "backends"], rows)


def section(optimizer: type[Optimizer]) -> str:
    """Returns what the page says about one optimizer."""
    texts = [f"## {optimizer.__name__}", *paragraphs(optimizer)]
    if optimizer.rule is not None:
        formula, *rest = paragraphs(optimizer.rule)
        results = ", ".join(["w", *(slot.name for slot in optimizer.slots)])
        texts += [f"**New ({results}):** {formula.removeprefix('Returns ')}", *rest]
    if optimizer.slots:
        slots = (f"`{s.name}`{', one a row' * s.per_row}, from {s.initial_value:g}" for s in optimizer.slots)
        texts.append(f"Slots: {'; '.join(slots)}.")
    added = [f for f in fields(optimizer) if f not in fields(Optimizer)]
    if added:
        rows = ([f"`{f.name}`", default(f.default), values(optimizer, f)] for f in added)
        texts.append(table(["hyper-parameter", "default", "values"], rows))
    # Sources stand last.
    return "\n\n".join(sorted(texts, key=lambda text: text.startswith("Source:")))


def default(value: Any) -> str:
    """Returns how the page shows a default."""
    if value is MISSING:
        return "required"
    if isinstance(value, DynamicInput):
        return f"tag {value.tag}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def values(optimizer: type[Optimizer], field: Any) -> str:
    """Returns which values a hyper-parameter takes."""
    if isinstance(field.default, bool):
        return "True, False"
    if isinstance(field.default, DynamicInput):
        return "a dynamic input"
    if field.default is MISSING:
        return str(field.type)
    interval = optimizer.intervals.get(field.name)
    return f"{interval or 'any number'}{', compiled in' * ('compiled' in field.metadata)}"


def render() -> str:
    """Returns the page."""
    optimizers = [*OPTIMIZERS.values(), *EXTENSIONS]
    common = ", ".join(f"`{f.name}`" for f in fields(Optimizer))
    introduction = INTRODUCTION.format(common=common).strip().split("\n\n")
    filled = (textwrap.fill(text, 120, break_on_hyphens=False) for text in introduction)
    return "\n\n".join([*filled, overview(optimizers), *map(section, optimizers)]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
