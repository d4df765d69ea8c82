from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest
import reference_optimizers
import tensorflow as tf
from golden import GOLDEN, Golden
from numba import njit, types
from steps import numpy_step
from tolerance import STEP

import anycore.optimizers
from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, TableConfig
from anycore.errors import ConfigError
from anycore.kernels.bind import NUMBA
from anycore.optimizers import (
    FTRL,
    OPTIMIZERS,
    Adagrad,
    AdagradMomentum,
    Adam,
    DynamicInput,
    Lion,
    Optimizer,
    ProximalAdagrad,
    ProximalYogi,
    RowWiseAdagrad,
    SimulatedQuantization,
    StochasticGradientDescent,
    vocabulary,
)
from anycore.optimizers.compose import compose, settings_of
from anycore.optimizers.declared import MEAN_SQUARE, added_fields
from anycore.proto import OptimizationParameters

ALGORITHMS = OptimizationParameters.DESCRIPTOR.oneofs_by_name["parameters"].fields
DEPRECATED = {"allow_zero_accumulator"}

# Some algorithms have a message and no published rule.
RULES = {name: optimizer for name, optimizer in OPTIMIZERS.items() if optimizer.rule}

each_rule = pytest.mark.parametrize("optimizer", RULES.values(), ids=RULES)
# A user's program is an optimizer only with its program: test_user_defined_program.
MADE_WITHOUT_ARGUMENTS = {name: o for name, o in OPTIMIZERS.items() if name != "user_defined_program"}
each_optimizer = pytest.mark.parametrize("optimizer", MADE_WITHOUT_ARGUMENTS.values(), ids=MADE_WITHOUT_ARGUMENTS)


# Laws of a rule


def literals(rule: Callable[..., Any]) -> list[Any]:
    """Returns the constants in a function's code that are no text."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(rule)))
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and not isinstance(node.value, str)]


def random_row(optimizer: type[Optimizer], size: int) -> list[np.ndarray]:
    """Returns gradient, parameters and slots."""
    rng = np.random.default_rng(0)
    widths = [size, size, *(1 if slot.per_row else size for slot in optimizer.slots)]
    return [rng.uniform(0.1, 1, width).astype(np.float32) for width in widths]


def test_a_literal_is_seen() -> None:
    def rule(w: Any, g: Any, lr: Any) -> Any:
        """Breaks the law."""
        return (w - 0.5 * lr * -g * True,)

    assert set(literals(rule)) == {0.5, True}


@each_rule
def test_rule_has_no_literal(optimizer: Any) -> None:
    """One Python number makes Numba compute in float64."""
    assert literals(optimizer.rule) == []


@each_rule
def test_rule_is_written_in_the_vocabulary(optimizer: Any) -> None:
    code = optimizer.rule.__code__
    assert set(code.co_names) <= set(vocabulary.__all__)
    assert code.co_freevars == code.co_cellvars == ()
    for name in code.co_names:
        assert optimizer.rule.__globals__[name] is getattr(vocabulary, name)


@each_rule
def test_rule_takes_weight_gradient_rate_slots_hyper_parameters(optimizer: Any) -> None:
    parameters = inspect.signature(optimizer.rule).parameters
    first = ["w", "g", "lr", *(slot.name for slot in optimizer.slots)]
    assert list(parameters)[: len(first)] == first
    assert set(list(parameters)[len(first) :]) <= {*added_fields(optimizer), MEAN_SQUARE}
    assert {(p.kind, p.default) for p in parameters.values()} == {
        (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty)
    }


@each_rule
def test_numpy_computes_in_float32(optimizer: type[Optimizer]) -> None:
    row = random_row(optimizer, 5)
    found = numpy_step(optimizer(), *row)
    assert all(values.dtype == np.float32 for values in found)
    assert [len(values) for values in found] == [len(values) for values in row[1:]]


@each_rule
def test_numba_computes_in_float32(optimizer: type[Optimizer]) -> None:
    g, w, *slots = (values[0] for values in random_row(optimizer, 1))
    step = compose(optimizer(), NUMBA, njit(error_model="numpy"))
    step(w, g, settings_of(optimizer()), *slots, *[g * g] * (MEAN_SQUARE in optimizer().rule_arguments))
    (signature,) = step.nopython_signatures
    assert list(signature.return_type) == [types.float32] * (1 + len(slots))


@each_rule
def test_rule_is_elementwise_and_changes_nothing(optimizer: type[Optimizer]) -> None:
    """Columns know of each other only by the mean square of the gradient, which is kept the same here."""
    g, w, *slots = random_row(optimizer, 9)
    g[:] = g[0]
    before = [values.copy() for values in (g, w, *slots)]
    whole = numpy_step(optimizer(), g, w, *slots)
    np.testing.assert_array_equal(np.concatenate([g, w, *slots]), np.concatenate(before))
    for d in range(9):
        alone = numpy_step(optimizer(), *(values[d : d + 1] if len(values) > 1 else values for values in before))
        STEP.assert_close(alone, [values[d : d + 1] if len(values) > 1 else values for values in whole])


# The registry and the wire


def test_registry_is_sorted_and_one_to_one() -> None:
    assert list(OPTIMIZERS) == sorted(OPTIMIZERS)
    assert len(set(OPTIMIZERS.values())) == len(OPTIMIZERS)
    assert all(optimizer.wire_name == name for name, optimizer in OPTIMIZERS.items())
    assert set(OPTIMIZERS) == {field.name for field in ALGORITHMS}


def test_registry_has_every_optimizer_of_the_package_and_each_a_file() -> None:
    found = {}
    for module in iter_modules(anycore.optimizers.__path__, "anycore.optimizers."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Optimizer) and value.__module__ == module.name:
                found[module.name.rpartition(".")[2]] = value
    assert found.pop("optimizer") is Optimizer
    assert found.pop("row_wise_adagrad") is RowWiseAdagrad  # beyond the wire
    assert found == OPTIMIZERS
    assert {optimizer.__name__ for optimizer in found.values()} <= set(anycore.optimizers.__all__)
    assert all(optimizer.rule.__name__ == name for name, optimizer in found.items() if optimizer.rule)


@each_optimizer
def test_wire_name_and_hyper_parameters_are_the_protos(optimizer: type[Optimizer]) -> None:
    messages = {field.name: field.message_type for field in ALGORITHMS}
    assert optimizer.wire_name in messages
    wire = {field.name for field in messages[optimizer.wire_name].fields} - DEPRECATED
    assert set(added_fields(optimizer)) == wire


@each_optimizer
def test_slots_and_op_name_are_those_of_the_ops(optimizer: type[Optimizer]) -> None:
    slots = tuple(slot.name for slot in optimizer.slots)
    assert optimizer().state_variables == ("parameters", *slots)
    if optimizer.rule is not None:
        assert slots == reference_optimizers.OPTIMIZERS[optimizer.wire_name].slots
    if optimizer.op_name:
        op = getattr(tf.raw_ops, f"LoadTPUEmbedding{optimizer.op_name}Parameters")
        assert tuple(inspect.signature(op).parameters)[: 1 + len(slots)] == ("parameters", *slots)


def test_slots_start_where_those_of_tensorflow_do() -> None:
    starts = {name: {slot.name: slot.initial_value for slot in o.slots} for name, o in OPTIMIZERS.items()}
    assert starts["adagrad"] == {"accumulators": 0.1}
    assert starts["adagrad_momentum"] == {"accumulators": 0, "momenta": 0}
    assert starts["adam"] == {"momenta": 0, "velocities": 0}
    assert starts["ftrl"] == {"accumulators": 0.1, "linears": 0}


# The dataclasses


@each_optimizer
def test_optimizers_are_frozen_values(optimizer: type[Optimizer]) -> None:
    assert optimizer(learning_rate=0.5) == optimizer(learning_rate=0.5) != optimizer(learning_rate=0.25)
    assert hash(optimizer(learning_rate=0.5)) == hash(optimizer(learning_rate=0.5))
    with pytest.raises(FrozenInstanceError):
        optimizer().learning_rate = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        optimizer(0.5)  # type: ignore[call-arg]


@each_optimizer
def test_hyper_parameters_are_constants_or_variables(optimizer: type[Optimizer]) -> None:
    constants, variables = optimizer().constants(), optimizer().variables()
    assert sorted([*constants, *variables]) == sorted(added_fields(optimizer))
    assert {type(value) for value in constants.values()} <= {bool, np.float32}
    assert {type(value) for value in variables.values()} <= {np.float32}


def test_exponents_are_constants() -> None:
    assert AdagradMomentum(exponent=3.0).constants() == {"use_nesterov": False, "exponent": 3}
    assert FTRL(lr_power=-0.25).constants() == {"lr_power": -0.25, "multiply_linear_by_lr": False}


def test_only_the_non_lazy_forms_update_every_row() -> None:
    assert [name for name, optimizer in MADE_WITHOUT_ARGUMENTS.items() if optimizer().updates_every_row] == []
    assert Adam(use_non_lazy_adam=True).updates_every_row
    assert Lion(use_non_lazy_lion=True).updates_every_row


NAN, INF = float("nan"), float("inf")
BEYOND_FLOAT32 = 1e39


@pytest.mark.parametrize(
    ("optimizer", "values", "message"),
    [
        (Adagrad, {"learning_rate": NAN}, r"learning_rate\.constant must be finite, got nan"),
        (Adagrad, {"learning_rate": -INF}, r"learning_rate\.constant must be finite, got -inf"),
        (Adagrad, {"learning_rate": BEYOND_FLOAT32}, r"learning_rate\.constant must be finite.* got 1e\+39"),
        (
            Adagrad,
            {"learning_rate": DynamicInput(-1)},
            r"learning_rate\.dynamic\.tag must not be negative, got -1",
        ),
        (Adagrad, {"weight_decay_factor": INF}, "weight_decay_factor must be finite, got inf"),
        (Adagrad, {"weight_decay_factor": BEYOND_FLOAT32}, r"weight_decay_factor must be finite.* got 1e\+39"),
        (Adagrad, {"clipping_limits": (1, 0)}, r"clipping_limits must have lower <= upper, got \(1, 0\)"),
        (Adagrad, {"clipping_limits": (NAN, None)}, r"clipping_limits must be a pair of numbers.* got \(nan, None\)"),
        (Adagrad, {"gradient_clipping_limits": (INF, 1)}, r"gradient_clipping_limits must have .* got \(inf, 1\)"),
        (
            Adagrad,
            {"simulated_quantization": SimulatedQuantization((0, 1), 1)},
            r"simulated_quantization\.num_buckets must be .* 2, got 1",
        ),
        *(
            (
                Adagrad,
                {"simulated_quantization": SimulatedQuantization(limits, 2)},
                r"simulated_quantization\.clipping_limits must .* got \(",
            )
            # The last are equal, or too far apart, as float32.
            for limits in [(1, 1), (-INF, 1), (0, INF), (NAN, 1), (1.0, 1 + 1e-9), (-3e38, 3e38)]
        ),
        (
            Adam,
            {"use_non_lazy_adam": True, "gradient_accumulation": False},
            "gradient_accumulation_status must be enabled when every row is updated, got 'DISABLED'",
        ),
        (Adam, {"beta1": 1.0}, r"beta1 must be in \[0, 1\), got 1\.0"),
        (Adam, {"beta2": -0.1}, r"beta2 must be in \[0, 1\), got -0\.1"),
        (Adam, {"epsilon": -1e-7}, r"epsilon must be in \[0, inf\), got -1e-07"),
        (Adam, {"epsilon": INF}, r"epsilon must be in .* got inf"),
        (AdagradMomentum, {"exponent": 0.0}, r"exponent must be in \(0, inf\), got 0\.0"),
        (AdagradMomentum, {"momentum": NAN}, "momentum must be finite, got nan"),
        (FTRL, {"l1": -1.0}, "l1 must be in .* got -1"),
        *(
            (optimizer, {"learning_rate": -0.5}, r"learning_rate\.constant must be in \[0, inf\), got -0\.5")
            for optimizer in (FTRL, ProximalAdagrad, ProximalYogi)
        ),
        (FTRL, {"l2": -1.0}, "l2 must be in .* got -1"),
        (FTRL, {"l2": BEYOND_FLOAT32}, r"l2 must be .* got 1e\+39"),
        (FTRL, {"beta": -1.0}, "beta must be in .* got -1"),
        (FTRL, {"lr_power": 0.5}, r"lr_power must be in \(-inf, 0\], got 0\.5"),
    ],
)
def test_values_out_of_range(optimizer: type[Optimizer], values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^optimizer {optimizer.wire_name}: {message}.* \(OptimizationParameters"):
        optimizer(**values)


@pytest.mark.parametrize(
    ("optimizer", "values"),
    [
        (Adagrad, {"learning_rate": -0.5, "weight_decay_factor": -1.0}),
        (Adagrad, {"clipping_limits": (0.5, 0.5), "gradient_clipping_limits": (None, -INF)}),
        (Adagrad, {"simulated_quantization": SimulatedQuantization((-1, 1), 2)}),
        (Adam, {"gradient_accumulation": False}),
        (Adam, {"beta1": 0.0, "beta2": 0.0, "epsilon": 0.0}),
        (AdagradMomentum, {"momentum": -2.0, "beta2": 1.5, "epsilon": 0.0}),
        (FTRL, {"l1": 0.0, "l2": 0.0, "beta": 0.0, "lr_power": 0.0}),
        (ProximalAdagrad, {"learning_rate": 0.0}),
    ],
)
def test_ends_of_ranges(optimizer: type[Optimizer], values: dict[str, Any]) -> None:
    made = optimizer(**values)
    assert {name: getattr(made, name) for name in values} == values


# Numbers


class OneTable:
    """An engine with one table, whose rows are looked up one by one."""

    def __init__(self, optimizer: Optimizer, state_variables: dict[str, np.ndarray], num_ids: int) -> None:
        rows, dimension = state_variables["parameters"].shape
        table = TableConfig("table", rows, dimension, optimizer)
        self.engine = EmbeddingEngine(EmbeddingConfig([table], [FeatureConfig("feature", "table", [num_ids])]))
        self.engine.load("table", state_variables)

    def update(self, ids: np.ndarray, gradient: np.ndarray, rates: tuple[float, ...] = ()) -> list[np.ndarray]:
        """Returns parameters and slots after one more step."""
        self.engine.enqueue([ids])
        self.engine.receive_activations()
        self.engine.send_gradients([gradient], rates)
        return list(self.engine.retrieve("table").values())


def golden_with_numpy(case: Golden, optimizer: Optimizer) -> Any:
    return numpy_step(optimizer, case.gradient, case.parameters, *case.slots.values())


def golden_with_engine(case: Golden, optimizer: Optimizer) -> Any:
    table = OneTable(optimizer, {"parameters": case.parameters, **case.slots}, len(case.parameters))
    return table.update(np.arange(len(case.parameters)), case.gradient)


@pytest.mark.parametrize("compute", [golden_with_numpy, golden_with_engine])
@pytest.mark.parametrize("case", [case for case in GOLDEN if case.optimizer in OPTIMIZERS], ids=str)
def test_golden_numbers(case: Golden, compute: Callable[[Golden, Optimizer], Any]) -> None:
    optimizer = OPTIMIZERS[case.optimizer](learning_rate=case.learning_rate, **case.hyper_parameters)
    found = compute(case, optimizer)
    assert list(case.slots) == [slot.name for slot in optimizer.slots]
    for ours, theirs in zip(found, case.out, strict=True):
        assert ours.dtype == np.float32
        STEP.assert_close(ours, theirs)


@pytest.mark.parametrize("optimizer", [StochasticGradientDescent, Adagrad])
def test_zero_gradient_changes_nothing(optimizer: type[Optimizer]) -> None:
    _, *row = random_row(optimizer, 5)
    np.testing.assert_array_equal(numpy_step(optimizer(), np.zeros(5), *row), row)


def test_zero_gradient_still_moves_a_momentum() -> None:
    optimizer = Adam(learning_rate=1.0, beta1=0.5, beta2=0.75, epsilon=0.0)
    STEP.assert_close(numpy_step(optimizer, [0], [1], [2], [16]), [[1 - 1 / np.sqrt(12)], [1], [12]])


def test_ftrl_stays_finite_at_a_rate_of_zero_when_linears_carry_the_rate() -> None:
    optimizer = FTRL(learning_rate=0.0, l1=0.1, l2=0.2, multiply_linear_by_lr=True)
    assert np.isfinite(numpy_step(optimizer, *random_row(FTRL, 5))).all()
