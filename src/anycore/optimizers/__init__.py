"""One optimizer a file: a pure rule and the frozen dataclass that configures it."""

from anycore.optimizers.adadelta import Adadelta
from anycore.optimizers.adagrad import Adagrad
from anycore.optimizers.adagrad_momentum import AdagradMomentum
from anycore.optimizers.adam import Adam
from anycore.optimizers.assign import Assign
from anycore.optimizers.bounded_adagrad import BoundedAdagrad
from anycore.optimizers.centered_rms_prop import CenteredRMSProp
from anycore.optimizers.custom import custom_optimizer
from anycore.optimizers.declarations import DynamicInput, Limits, SimulatedQuantization, Slot, compiled
from anycore.optimizers.frequency_aware_adagrad import FrequencyAwareAdagrad
from anycore.optimizers.frequency_estimator import FrequencyEstimator
from anycore.optimizers.ftrl import FTRL
from anycore.optimizers.lion import Lion
from anycore.optimizers.mdl_adagrad_light import MDLAdagradLight
from anycore.optimizers.momentum import Momentum
from anycore.optimizers.online_yogi import OnlineYogi
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.proximal_adagrad import ProximalAdagrad
from anycore.optimizers.proximal_yogi import ProximalYogi
from anycore.optimizers.rms_prop import RMSProp
from anycore.optimizers.row_wise_adagrad import RowWiseAdagrad
from anycore.optimizers.stochastic_gradient_descent import StochasticGradientDescent
from anycore.optimizers.user_defined_program import UserDefinedProgram

__all__ = [
    "FTRL",
    "OPTIMIZERS",
    "Adadelta",
    "Adagrad",
    "AdagradMomentum",
    "Adam",
    "Assign",
    "BoundedAdagrad",
    "CenteredRMSProp",
    "DynamicInput",
    "FrequencyAwareAdagrad",
    "FrequencyEstimator",
    "Limits",
    "Lion",
    "MDLAdagradLight",
    "Momentum",
    "OnlineYogi",
    "Optimizer",
    "ProximalAdagrad",
    "ProximalYogi",
    "RMSProp",
    "RowWiseAdagrad",
    "SimulatedQuantization",
    "Slot",
    "StochasticGradientDescent",
    "UserDefinedProgram",
    "compiled",
    "custom_optimizer",
]

OPTIMIZERS: dict[str, type[Optimizer]] = {
    optimizer.wire_name: optimizer
    for optimizer in (
        Adadelta,
        Adagrad,
        AdagradMomentum,
        Adam,
        Assign,
        BoundedAdagrad,
        CenteredRMSProp,
        FrequencyAwareAdagrad,
        FrequencyEstimator,
        FTRL,
        Lion,
        MDLAdagradLight,
        Momentum,
        OnlineYogi,
        ProximalAdagrad,
        ProximalYogi,
        RMSProp,
        StochasticGradientDescent,
        UserDefinedProgram,
    )
}
"""Field of the oneof `OptimizationParameters.parameters` → optimizer."""
