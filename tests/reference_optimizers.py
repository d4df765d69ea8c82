"""The update rules of the TPU embedding optimizers in plain NumPy, one short function each.

A rule takes the hyper-parameters `h` (attributes named as the proto's fields), one row `w`, its gradient `g`, the
learning rate `lr` and the row's slots, and returns the new row followed by the new slots. Clipping, weight decay and
the choice of rows belong to the engine.

Source: optimization_parameters.proto, TensorFlow 2.21, and the training kernels it names. The formulas of
bounded_adagrad, frequency_aware_adagrad and proximal_yogi are read from the field texts, no kernel confirms them;
online_yogi and mdl_adagrad_light are unpublished and therefore absent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Row = np.ndarray
Rows = tuple[np.ndarray, ...]


class Optimizer(NamedTuple):
    """A rule and the names of its slots, in wire order."""

    rule: Callable[..., Rows]
    slots: tuple[str, ...] = ()


def stochastic_gradient_descent(h: Any, w: Row, g: Row, lr: float) -> Rows:
    return (w - lr * g,)


def adagrad(h: Any, w: Row, g: Row, lr: float, accumulators: Row) -> Rows:
    accumulators = accumulators + g * g
    return w - lr * g / np.sqrt(accumulators), accumulators


def adagrad_momentum(h: Any, w: Row, g: Row, lr: float, accumulators: Row, momenta: Row) -> Rows:
    # The proto's text applies the gradient after the momentum; TensorFlow's kernel and its test scale it first.
    if h.beta2 == 1:
        accumulators = accumulators + g * g
    else:
        accumulators = h.beta2 * accumulators + (1 - h.beta2) * g * g
    scaled = (accumulators + h.epsilon) ** (-1 / h.exponent) * g
    momenta = h.momentum * momenta + scaled
    update = h.momentum * momenta + scaled if h.use_nesterov else momenta
    return w - lr * update, accumulators, momenta


def bounded_adagrad(h: Any, w: Row, g: Row, lr: float, accumulators: Row) -> Rows:
    grown = accumulators + g * g
    if h.max_accumulator > 0:
        grown = np.minimum(grown, h.max_accumulator)
    update = lr * g / np.sqrt(grown if h.update_accumulator_first else accumulators)
    if h.max_var_update > 0:
        update = np.clip(update, -h.max_var_update, h.max_var_update)
    return w - update, grown


def frequency_aware_adagrad(h: Any, w: Row, g: Row, lr: float, accumulators: Row, counters: Row) -> Rows:
    counters = counters + 1
    accumulators = np.maximum(h.accumulator_decay * accumulators + g * g, h.initial_accumulator_value)
    scale = np.minimum((h.step_counter / counters) ** h.probability_exponent, h.max_lr_multiplier)
    update = g * scale / np.sqrt(accumulators)
    update = update + h.l1_regularization_strength * np.sign(w) + h.l2_regularization_strength * w
    return w - lr * update, accumulators, counters


def ftrl(h: Any, w: Row, g: Row, lr: float, accumulators: Row, linears: Row) -> Rows:
    grown = accumulators + g * g
    power_change = grown**-h.lr_power - accumulators**-h.lr_power
    if h.multiply_linear_by_lr:
        linears = linears + lr * g - power_change * w
        threshold = lr * h.l1
        denominator = grown**-h.lr_power + h.beta + 2 * lr * h.l2
    else:
        linears = linears + g - power_change / lr * w
        threshold = h.l1
        denominator = (grown**-h.lr_power + h.beta) / lr + 2 * h.l2
    return (np.clip(linears, -threshold, threshold) - linears) / denominator, grown, linears


def adam(h: Any, w: Row, g: Row, lr: float, momenta: Row, velocities: Row) -> Rows:
    momenta = h.beta1 * momenta + (1 - h.beta1) * g
    velocities = h.beta2 * velocities + (1 - h.beta2) * g * g
    if h.use_sum_inside_sqrt:
        return w - lr * momenta / np.sqrt(velocities + h.epsilon**2), momenta, velocities
    return w - lr * momenta / (np.sqrt(velocities) + h.epsilon), momenta, velocities


def momentum(h: Any, w: Row, g: Row, lr: float, momenta: Row) -> Rows:
    momenta = h.momentum * momenta + g
    return w - lr * (g + h.momentum * momenta if h.use_nesterov else momenta), momenta


def lion(h: Any, w: Row, g: Row, lr: float, momenta: Row) -> Rows:
    direction = np.sign(h.beta1 * momenta + (1 - h.beta1) * g)
    return w - lr * direction, h.beta2 * momenta + (1 - h.beta2) * g


def rms_prop(h: Any, w: Row, g: Row, lr: float, ms: Row, mom: Row) -> Rows:
    ms = ms + (1 - h.rho) * (g * g - ms)
    mom = h.momentum * mom + lr * g / np.sqrt(ms + h.epsilon)
    return w - mom, ms, mom


def centered_rms_prop(h: Any, w: Row, g: Row, lr: float, ms: Row, mom: Row, mg: Row) -> Rows:
    ms = ms + (1 - h.rho) * (g * g - ms)
    mg = mg + (1 - h.rho) * (g - mg)
    mom = h.momentum * mom + lr * g / np.sqrt(ms - mg * mg + h.epsilon)
    return w - mom, ms, mom, mg


def adadelta(h: Any, w: Row, g: Row, lr: float, accumulators: Row, updates: Row) -> Rows:
    accumulators = h.rho * accumulators + (1 - h.rho) * g * g
    update = np.sqrt(updates + h.epsilon) / np.sqrt(accumulators + h.epsilon) * g
    return w - lr * update, accumulators, h.rho * updates + (1 - h.rho) * update * update


def _proximal_step(h: Any, w: Row, direction: Row, rate: Row | float) -> Row:
    """One step along `direction`, then soft thresholding by l1 and shrinkage by l2, each at the same rate."""
    stepped = w - rate * direction
    return np.sign(stepped) * np.maximum(np.abs(stepped) - rate * h.l1, 0) / (1 + rate * h.l2)


def proximal_adagrad(h: Any, w: Row, g: Row, lr: float, accumulators: Row) -> Rows:
    accumulators = accumulators + g * g
    return _proximal_step(h, w, g, lr / np.sqrt(accumulators)), accumulators


def proximal_yogi(h: Any, w: Row, g: Row, lr: float, v: Row, m: Row) -> Rows:
    m = h.beta1 * m + (1 - h.beta1) * g
    v = v + (1 - h.beta2) * np.sign(g * g - v) * g * g
    return _proximal_step(h, w, m, lr / (np.sqrt(v) + h.epsilon)), v, m


def frequency_estimator(h: Any, w: Row, g: Row, lr: float, last_hit_step: Row) -> Rows:
    step = lr  # the wire delivers the global step as this optimizer's learning rate
    delta = step - last_hit_step
    capped = np.minimum(delta, h.max_delta)
    smoothed = w * (1 - h.tau) + capped * h.tau
    return np.where(delta >= h.outlier_threshold * w, capped, smoothed), np.full_like(last_hit_step, step)


def assign(h: Any, w: Row, g: Row, lr: float) -> Rows:
    return (g,)


OPTIMIZERS = {
    "stochastic_gradient_descent": Optimizer(stochastic_gradient_descent),
    "adagrad": Optimizer(adagrad, ("accumulators",)),
    "adagrad_momentum": Optimizer(adagrad_momentum, ("accumulators", "momenta")),
    "bounded_adagrad": Optimizer(bounded_adagrad, ("accumulators",)),
    "frequency_aware_adagrad": Optimizer(frequency_aware_adagrad, ("accumulators", "counters")),
    "ftrl": Optimizer(ftrl, ("accumulators", "linears")),
    "adam": Optimizer(adam, ("momenta", "velocities")),
    "momentum": Optimizer(momentum, ("momenta",)),
    "lion": Optimizer(lion, ("momenta",)),
    "rms_prop": Optimizer(rms_prop, ("ms", "mom")),
    "centered_rms_prop": Optimizer(centered_rms_prop, ("ms", "mom", "mg")),
    "adadelta": Optimizer(adadelta, ("accumulators", "updates")),
    "proximal_adagrad": Optimizer(proximal_adagrad, ("accumulators",)),
    "proximal_yogi": Optimizer(proximal_yogi, ("v", "m")),
    "frequency_estimator": Optimizer(frequency_estimator, ("last_hit_step",)),
    "assign": Optimizer(assign),
}
