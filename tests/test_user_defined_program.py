"""Programs that JAX has lowered, as optimizers: the numbers of ours, on the wire and in an engine."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engines import assert_same_bits, state
from hlo_programs import BETA1, BETA2, EPSILON, KINDS, PROGRAMS, RATE, Program
from hlo_text import program as written
from operations import configured
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2
from tolerance import STEP, STEPS

from anycore import ConfigError, EmbeddingConfig, EmbeddingEngine, FeatureConfig, TableConfig
from anycore.kernels.bind import compiled_step
from anycore.optimizers import (
    Adagrad,
    Adam,
    DynamicInput,
    Lion,
    Optimizer,
    SimulatedQuantization,
    StochasticGradientDescent,
    UserDefinedProgram,
)
from anycore.optimizers.wire import optimizer_from_proto, optimizer_to_proto

OURS: dict[str, Optimizer] = {
    "sgd": StochasticGradientDescent(),
    "adagrad": Adagrad(),
    "adam": Adam(beta1=BETA1, beta2=BETA2, epsilon=EPSILON),
    "lion": Lion(beta1=BETA1, beta2=BETA2),
}
NAMED = {program.name: program for program in PROGRAMS}
ROWS, DIMENSION, NUM_STEPS = 8, 5, 4


def lowered(name: str = "adagrad_rate", **common: Any) -> UserDefinedProgram:
    return UserDefinedProgram(program=NAMED[name].stored("lowered"), **common)


def trained(optimizer: Optimizer, *rates: float) -> EmbeddingEngine:
    """Returns an engine, configured from the wire by TensorFlow's message, after some steps."""
    config = EmbeddingConfig([TableConfig("t", ROWS, DIMENSION, optimizer)], [FeatureConfig("f", "t", [6])])
    message = tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration.FromString(
        config.to_proto().SerializeToString()
    )
    engine = EmbeddingEngine(EmbeddingConfig.from_proto(message))
    rng = np.random.default_rng(0)
    for slot in optimizer.state_variables:
        engine.load("t", {slot: rng.uniform(0.1, 1, (ROWS, DIMENSION))})
    for _ in range(NUM_STEPS):
        engine.enqueue([rng.integers(0, ROWS, 6)])
        engine.receive_activations()
        engine.send_gradients([rng.normal(0, 1, (6, DIMENSION))], rates)
    return engine


def renamed(engine: EmbeddingEngine, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Returns what the engine holds, its state variables called otherwise."""
    return {"t": dict(zip(names, state(engine)["t"].values(), strict=True))}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.function.__name__ in OURS], ids=lambda p: p.name)
def test_a_program_computes_what_our_own_rule_does(program: Program, kind: str) -> None:
    ours, theirs = OURS[program.function.__name__], UserDefinedProgram(program=program.stored(kind))
    expected = state(trained(replace(ours, learning_rate=RATE)))
    # A program without the extra input has its own rate.
    other_rate = RATE if program.rate_shape is not None else 99.0
    found = renamed(trained(replace(theirs, learning_rate=other_rate)), ours.state_variables)
    if (program.function.__name__, kind) == ("adagrad", "optimized"):  # XLA multiplies by 1/√a
        for name, values in expected["t"].items():
            STEPS.assert_close(found["t"][name], values)
    else:
        assert_same_bits(found, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["mixture", "mixture_rate"])
def test_a_program_of_many_operations(name: str, kind: str) -> None:
    program = NAMED[name]
    rng = np.random.default_rng(1)
    g, w, s = rng.normal(0, 1, (3, 1, DIMENSION)).astype(np.float32)
    g[0, 0], n = 0, np.array([[0, 1, 2, 3, 4]], np.float32)
    expected = program.function(np, *(x.astype(float) for x in (g, w, s, n)), RATE)
    optimizer = UserDefinedProgram(program=program.stored(kind), learning_rate=RATE)
    engine = EmbeddingEngine(
        EmbeddingConfig([TableConfig("t", 1, DIMENSION, optimizer)], [FeatureConfig("f", "t", [1])])
    )
    engine.load("t", {"parameters": w, "Slot_0": s, "Slot_1": n})
    engine.enqueue([[0]])
    engine.receive_activations()
    engine.send_gradients([g])
    for found, values in zip(engine.retrieve("t").values(), expected, strict=True):
        STEP.assert_close(found, values)


def test_a_dynamic_learning_rate_is_the_extra_input() -> None:
    dynamic = trained(lowered(learning_rate=DynamicInput(0)), 0.25)
    assert_same_bits(state(dynamic), state(trained(lowered(learning_rate=0.25))))


@pytest.mark.parametrize("name", ["adam_rate", "adam"])
def test_operations_train_with_a_program(name: str) -> None:
    rng = np.random.default_rng(0)
    loaded = rng.uniform(0.1, 1, (3, ROWS, DIMENSION)).astype(np.float32)
    rates = [0.25] if name == "adam_rate" else []
    with configured(lowered(name, learning_rate=DynamicInput(0) if rates else 99.0), ROWS, DIMENSION) as table:
        table.load([*loaded])
        np.testing.assert_array_equal(table.look_up([5, 0], "inference"), loaded[0][[5, 0]])
        np.testing.assert_array_equal(table.look_up([5, 0], "training"), loaded[0][[5, 0]])
        gradient = rng.normal(0, 1, (2, DIMENSION)).astype(np.float32)
        table.send(gradient, rates)
        found = table.retrieve(3)
    expected = loaded.copy()
    w, slots = OURS["adam"].update(loaded[0][[5, 0]], gradient, rates[0] if rates else RATE, [*loaded[1:, [5, 0]]])
    expected[:, [5, 0]] = w, *slots
    np.testing.assert_array_equal(found, expected)


def test_common_parameters_surround_a_program() -> None:
    common: dict[str, Any] = {
        "learning_rate": 0.5,
        "clipping_limits": (-0.5, 0.75),
        "gradient_clipping_limits": (None, 0.25),
        "weight_decay_factor": 0.125,
        "multiply_weight_decay_factor_by_learning_rate": True,
        "gradient_accumulation": False,
    }
    expected = state(trained(Adagrad(**common)))
    assert_same_bits(renamed(trained(lowered(**common)), ("parameters", "accumulators")), expected)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_its_rule_keeps_the_laws(program: Program) -> None:
    lowered(program.name).check_rule()


def test_slots_are_numbered_and_start_at_0() -> None:
    optimizer = lowered("adam")
    assert optimizer.state_variables == ("parameters", "Slot_0", "Slot_1")
    assert [slot.initial_value for slot in optimizer.slots] == [0, 0]
    assert lowered("sgd").state_variables == ("parameters",)
    assert (optimizer.hyper_parameters(), optimizer.variables(), optimizer.tags) == ({}, {}, set())


def test_equal_programs_share_compiled_code() -> None:
    one, other = (lowered("adam_rate", learning_rate=rate, clipping_limits=(-rate, rate)) for rate in (0.5, 0.25))
    assert one != other and compiled_step(one) == compiled_step(other)
    assert hash(one) == hash(replace(one))
    assert compiled_step(lowered("adam")) != compiled_step(lowered("adam_rate"))


def numbered(number: float) -> UserDefinedProgram:
    body = f"""
      c = f32[1,1] constant({number})
      result = f32[1,1] multiply(w, c)"""
    return UserDefinedProgram(program=written(body))


def test_programs_that_differ_in_a_number_do_not() -> None:
    assert numbered(2) != numbered(3)
    assert compiled_step(numbered(2)) != compiled_step(numbered(3))
    assert [trained(numbered(k)).retrieve("t")["parameters"].max() > 100 for k in (1, 999)] == [False, True]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_there_and_back(program: Program) -> None:
    optimizer = lowered(
        program.name, learning_rate=DynamicInput(0), simulated_quantization=SimulatedQuantization((-1, 1), 4)
    )
    message = optimizer_to_proto(optimizer)
    assert optimizer_from_proto(message) == optimizer
    theirs = hlo_pb2.HloModuleProto.FromString(program.stored("lowered"))
    assert hlo_pb2.HloModuleProto.FromString(message.user_defined_program.program.SerializeToString()) == theirs


def test_what_we_do_not_read_stays_on_the_wire() -> None:
    theirs = hlo_pb2.HloModuleProto.FromString(NAMED["sgd"].stored("lowered"))
    theirs.is_dynamic = True
    theirs.computations[0].instructions[0].metadata.op_name = "w"
    optimizer = UserDefinedProgram(program=theirs.SerializeToString(), learning_rate=0.5)
    assert hlo_pb2.HloModuleProto.FromString(optimizer.program) == theirs
    assert optimizer_from_proto(optimizer_to_proto(optimizer)) == optimizer


def test_a_program_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(lowered("lion")))
    assert again == lowered("lion")
    assert (again.rule, again.slots) == (lowered("lion").rule, lowered("lion").slots)


def test_its_text_does_not_hold_the_program() -> None:
    assert len(repr(lowered("mixture"))) < 500


def test_a_refused_program_names_the_table() -> None:
    message = EmbeddingConfig(
        [TableConfig("t", ROWS, DIMENSION, lowered("sgd"))], [FeatureConfig("f", "t", [6])]
    ).to_proto()
    module = message.table_descriptor[0].optimization_parameters.user_defined_program.program
    module.computations[0].instructions[-1].opcode = "dot"
    name = module.computations[0].instructions[-1].name
    with pytest.raises(
        ConfigError,
        match=rf"^table 't': optimizer user_defined_program: instruction '{name}': opcode 'dot' is not supported, .*"
        r"\(OptimizationParameters\.user_defined_program\)$",
    ):
        EmbeddingConfig.from_proto(message.SerializeToString())


def test_no_program_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="the program has no entry computation"):
        UserDefinedProgram(program=b"")
