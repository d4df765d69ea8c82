"""TensorFlow's own training kernels, and the optimizers that have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from updates import Steps, Variables

from anycore.optimizers import (
    FTRL,
    Adadelta,
    Adagrad,
    Adam,
    CenteredRMSProp,
    Momentum,
    Optimizer,
    ProximalAdagrad,
    RMSProp,
    StochasticGradientDescent,
)


class Kernel(NamedTuple):
    """`ResourceApply<name>` and its `ResourceSparse` twin: argument of each slot, and their other arguments."""

    name: str
    slots: dict[str, str]
    arguments: Callable[[Any, float], dict[str, Any]] = lambda optimizer, lr: {"lr": lr}
    gradient: str = "grad"
    is_sparse: bool = True

    def apply(self, optimizer: Optimizer, lr: float, variables: dict[str, Any], ids: Any, gradient: Any) -> None:
        """Updates the variables; a kernel that is not sparse gets a gradient of zero for all other rows."""
        handles = {argument: variables[slot].handle for slot, argument in self.slots.items()}
        arguments = {"var": variables["parameters"].handle, **handles, **self.arguments(optimizer, lr)}
        if self.is_sparse:
            arguments["indices"] = ids
        else:
            gradient, given = np.zeros(variables["parameters"].shape, np.float32), gradient
            gradient[ids] = given
        operation = f"Resource{'Sparse' * self.is_sparse}Apply{self.name}"
        getattr(tf.raw_ops, operation)(**arguments, **{self.gradient: gradient})


def fields(*names: str) -> Callable[[Any, float], dict[str, Any]]:
    """The learning rate and hyper-parameters of these names."""
    return lambda optimizer, lr: {"lr": lr, **{name: getattr(optimizer, name) for name in names}}


# Beta powers of zero switch the bias correction off.
ADAM = {"beta1_power": 0.0, "beta2_power": 0.0}

KERNELS = {
    Adadelta: Kernel("Adadelta", {"accumulators": "accum", "updates": "accum_update"}, fields("rho", "epsilon")),
    Adagrad: Kernel("Adagrad", {"accumulators": "accum"}),
    Adam: Kernel(
        "Adam",
        {"momenta": "m", "velocities": "v"},
        lambda o, lr: {**fields("beta1", "beta2", "epsilon")(o, lr), **ADAM},
        is_sparse=False,
    ),
    CenteredRMSProp: Kernel(
        "CenteredRMSProp", {"ms": "ms", "mom": "mom", "mg": "mg"}, fields("rho", "momentum", "epsilon")
    ),
    # Beta does what a greater l2 does.
    FTRL: Kernel(
        "Ftrl",
        {"accumulators": "accum", "linears": "linear"},
        lambda o, lr: {
            **fields("l1", "lr_power", "multiply_linear_by_lr")(o, lr),
            "l2": o.l2 + (o.beta / (2 * lr) if o.beta else 0),
        },
    ),
    Momentum: Kernel("Momentum", {"momenta": "accum"}, fields("momentum", "use_nesterov")),
    ProximalAdagrad: Kernel("ProximalAdagrad", {"accumulators": "accum"}, fields("l1", "l2")),
    RMSProp: Kernel("RMSProp", {"ms": "ms", "mom": "mom"}, fields("rho", "momentum", "epsilon")),
    StochasticGradientDescent: Kernel(
        "GradientDescent", {}, lambda o, lr: {"alpha": lr}, gradient="delta", is_sparse=False
    ),
}

OPTIMIZERS = [
    Adadelta(rho=0.8, epsilon=1e-3),
    Adagrad(),
    Adam(beta1=0.8, beta2=0.9, epsilon=1e-3, use_non_lazy_adam=True),
    CenteredRMSProp(rho=0.8, momentum=0.9, epsilon=1e-3),
    FTRL(),
    FTRL(l1=0.1, l2=0.2, beta=0.5),
    FTRL(l1=0.1, l2=0.2, lr_power=-0.3),
    FTRL(l1=0.1, l2=0.2, multiply_linear_by_lr=True),
    FTRL(l1=0.1, l2=0.2, beta=0.5, multiply_linear_by_lr=True),
    Momentum(),
    Momentum(momentum=0.5, use_nesterov=True),
    ProximalAdagrad(),
    ProximalAdagrad(l2=0.2),
    ProximalAdagrad(l1=0.1, l2=0.2),
    RMSProp(rho=0.8, momentum=0.9, epsilon=1e-3),
    StochasticGradientDescent(),
]


def trained(steps: Steps) -> Variables:
    """Returns the variables after the steps that TensorFlow takes, each with all rows."""
    names = steps.optimizer.state_variables
    variables = {name: tf.Variable(values) for name, values in zip(names, steps.variables, strict=True)}
    ids = np.arange(len(steps.variables[0]))
    for rate, gradient in zip(steps.rates, steps.gradients, strict=True):
        KERNELS[type(steps.optimizer)].apply(steps.optimizer, rate, variables, ids, gradient)
    return [variable.numpy() for variable in variables.values()]
