"""One step of each optimizer, as TensorFlow's CPU kernels or the documented formulas give it.

The numbers lie in `data/golden_optimizers.json`: no decay, no clipping, one gradient per row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tolerance import FORMULA, STEP, Tolerance

_FILE = json.loads((Path(__file__).parent / "data" / "golden_optimizers.json").read_text())


@dataclass(frozen=True)
class Golden:
    """One case: what goes in, and `out`, the new parameters followed by the new slots."""

    optimizer: str  # the field of OptimizationParameters
    hyper_parameters: dict
    learning_rate: float
    gradient: np.ndarray
    parameters: np.ndarray
    slots: dict[str, np.ndarray]
    out: list[np.ndarray]
    tolerance: Tolerance  # kernels work in float32, formulas in float64

    def __str__(self) -> str:
        return "-".join([self.optimizer, *(f"{value:g}" for value in self.hyper_parameters.values())])


def _case(raw: dict) -> Golden:
    inputs = {name: np.array(values) for name, values in _FILE["inputs"].items()}
    inputs["|b|"] = np.abs(inputs["b"])
    return Golden(
        optimizer="stochastic_gradient_descent" if raw["name"] == "sgd" else raw["name"],
        hyper_parameters=raw["hyper"],
        learning_rate=_FILE["inputs"]["lr"],
        gradient=inputs["grad"],
        parameters=inputs["weights"],
        slots={slot: inputs[name] for slot, name in raw["slots_in"].items()},
        out=[np.array(values) for values in raw["out"]],
        tolerance=STEP if raw["source"].startswith("tf.raw_ops") else FORMULA,
    )


GOLDEN = [_case(raw) for raw in _FILE["cases"]]
