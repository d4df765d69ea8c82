"""One optimizer a file: a pure rule and the frozen dataclass that configures it."""

from anycore.optimizers.adagrad import Adagrad
from anycore.optimizers.adagrad_momentum import AdagradMomentum
from anycore.optimizers.adam import Adam
from anycore.optimizers.declarations import DynamicInput, Limits, SimulatedQuantization, Slot
from anycore.optimizers.ftrl import FTRL
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.stochastic_gradient_descent import StochasticGradientDescent

__all__ = [
    "FTRL",
    "OPTIMIZERS",
    "Adagrad",
    "AdagradMomentum",
    "Adam",
    "DynamicInput",
    "Limits",
    "Optimizer",
    "SimulatedQuantization",
    "Slot",
    "StochasticGradientDescent",
]

OPTIMIZERS: dict[str, type[Optimizer]] = {
    optimizer.wire_name: optimizer for optimizer in (Adagrad, AdagradMomentum, Adam, FTRL, StochasticGradientDescent)
}
"""Field of the oneof `OptimizationParameters.parameters` → optimizer."""
