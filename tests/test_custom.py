"""An optimizer of the caller's own trains like ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engines import assert_same_bits, state

from anycore import ConfigError, EmbeddingConfig, EmbeddingEngine, FeatureConfig, Ragged, TableConfig
from anycore.optimizers import Adagrad, AdagradMomentum, DynamicInput, Optimizer, Slot
from anycore.optimizers.custom import custom_optimizer
from anycore.optimizers.declarations import compiled
from anycore.optimizers.vocabulary import ONE, power, sqrt, where


def my_adagrad(w: Any, g: Any, lr: Any, sums: Any) -> Any:
    sums = sums + g * g
    return w - lr * g / sqrt(sums), sums


def my_momentum(
    w: Any, g: Any, lr: Any, sums: Any, momenta: Any, beta: Any, nesterov: Any, exponent: Any, epsilon: Any
) -> Any:
    sums = sums + g * g
    scaled = g * power(sums + epsilon, -ONE / exponent)
    momenta = beta * momenta + scaled
    return w - lr * where(nesterov, beta * momenta + scaled, momenta), sums, momenta


def train(optimizer: Optimizer, slots: dict[str, str]) -> dict[str, Any]:
    config = EmbeddingConfig([TableConfig("t", 50, 17, optimizer)], [FeatureConfig("f", "t", [8])])
    engine = EmbeddingEngine(config)
    engine.load("t", {mine: np.full((50, 17), 0.1) for mine in slots.values()})
    random = np.random.default_rng(0)
    for _ in range(5):
        engine.enqueue([Ragged(np.arange(9) * 3, random.integers(0, 50, 24))])
        (activations,) = engine.receive_activations()
        rates = [0.3] if optimizer.tags else []
        engine.send_gradients([activations + random.standard_normal(activations.shape)], rates)
    found = state(engine)["t"]
    return {"t": {"parameters": found["parameters"], **{ours: found[mine] for ours, mine in slots.items()}}}


def test_it_gives_the_bits_of_the_same_rule_of_ours() -> None:
    mine = custom_optimizer(my_adagrad, slots=["sums"])
    common: dict[str, Any] = {"learning_rate": DynamicInput(0), "gradient_clipping_limits": (-1, 1)}
    assert_same_bits(
        train(mine(**common), {"accumulators": "sums"}), train(Adagrad(**common), {"accumulators": "accumulators"})
    )


def test_hyper_parameters_flags_and_exponents() -> None:
    mine = custom_optimizer(
        my_momentum,
        slots=[Slot("sums", 0.1), "momenta"],
        beta=0.9,
        nesterov=False,
        exponent=compiled(2.0),
        epsilon=1e-10,
    )
    made: Any = mine
    for changes in ({}, {"beta": 0.5, "nesterov": True}, {"exponent": 3.0}):
        ours = {"momentum" if k == "beta" else "use_nesterov" if k == "nesterov" else k: v for k, v in changes.items()}
        assert_same_bits(
            train(made(learning_rate=0.3, **changes), {"accumulators": "sums", "momenta": "momenta"}),
            train(
                AdagradMomentum(learning_rate=0.3, **ours),  # type: ignore[arg-type]
                {"accumulators": "accumulators", "momenta": "momenta"},
            ),
        )


def test_a_dynamic_hyper_parameter_arrives_by_its_tag() -> None:
    def scaled(w: Any, g: Any, lr: Any, scale: Any) -> Any:
        return (w - lr * scale * g,)

    optimizer = custom_optimizer(scaled, scale=DynamicInput(0))(learning_rate=0.5)
    engine = EmbeddingEngine(EmbeddingConfig([TableConfig("t", 1, 1, optimizer)], [FeatureConfig("f", "t", [1])]))
    engine.load("t", {"parameters": [[0]]})
    engine.enqueue([[0]])
    engine.receive_activations()
    engine.send_gradients([[[1.0]]], [3.0])
    assert engine.retrieve("t")["parameters"].item() == -1.5


def test_a_broken_law_is_told_when_the_class_is_made() -> None:
    def literal(w: Any, g: Any, lr: Any) -> Any:
        return (w - 0.5 * g,)

    with pytest.raises(ConfigError, match=r"rule 'literal' holds the number 0\.5"):
        custom_optimizer(literal)
    with pytest.raises(ConfigError, match="must return a tuple of w and 2 slots"):
        custom_optimizer(lambda w, g, lr, a, b: (w, a), slots=["a", "b"])
    with pytest.raises(ConfigError, match="slots must be at most 7, with names of their own"):
        custom_optimizer(my_adagrad, slots=["parameters"])
    with pytest.raises(ConfigError, match="slot 'sums' must start at a finite number, got nan"):
        custom_optimizer(my_adagrad, slots=[Slot("sums", float("nan"))])


@pytest.mark.parametrize("name", ["w", "g", "settings", "update", "tags", "maximum", "learning_rate", "mean_square"])
def test_a_name_that_means_something_else_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"a hyper-parameter cannot be called '{name}'"):
        custom_optimizer(my_adagrad, slots=["sums"], **{name: 1.0})


def test_its_keywords_are_checked_like_ours() -> None:
    mine: Any = custom_optimizer(my_adagrad, slots=["sums"])
    with pytest.raises(ConfigError, match=r"optimizer my_adagrad: learning_rate\.constant must be finite"):
        mine(learning_rate=float("nan"))
    with pytest.raises(TypeError, match="gamma"):
        mine(gamma=1)


def test_it_has_no_form_on_the_wire() -> None:
    optimizer = custom_optimizer(my_adagrad, slots=["sums"])()
    config = EmbeddingConfig([TableConfig("t", 1, 1, optimizer)], [FeatureConfig("f", "t", [1])])
    with pytest.raises(ConfigError, match="optimizer my_adagrad has no form on the wire"):
        config.to_proto()


def repacked(w: Any, g: Any, lr: Any) -> Any:
    (first,) = w
    return (first - lr * g,)


def test_a_rule_that_only_arrays_can_take_is_refused_before_it_trains() -> None:
    with pytest.raises(ConfigError, match="rule 'repacked' fails on float32 arrays"):
        custom_optimizer(repacked)
