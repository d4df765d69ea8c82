"""Hypothesis strategies for whole training runs, and their replay on any engine with anycore's calls.

A scenario is plain data: a configuration message, what each core enqueues at each step, rates, and a seed from which
variables and gradients follow. Two engines that replay it must end up with the same numbers.

Scenarios are well-conditioned, so that float32 and float64 may be compared closely: accumulators and velocities start
above 0.05 (no division by almost nothing); weights are multiples of 0.25 with exact sums, so a denominator is exactly
0 or at least 0.25; rates are at least 0.05 (FTRL divides by them). The rules drawn are continuous, FTRL's threshold
included; those that jump have test files of their own. Rounding to quantization buckets is not continuous either: there
`Outcome.slack` says where a parameter sits on a border.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st
from reference_config import dynamic_tags
from reference_optimizers import OPTIMIZERS
from tolerance import ENGINE

DIMENSIONS = (1, 3, 63, 64, 130)
RATES = (0.05, 0.25)
WEIGHTS = (-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 2.0, 3.0)
SLOT_RANGES = {
    "accumulators": (0.1, 1.0),
    "counters": (0.0, 3.0),
    "linears": (-0.5, 0.5),
    "mg": (-0.2, 0.2),
    "mom": (-0.1, 0.1),
    "momenta": (-0.1, 0.1),
    "ms": (0.1, 1.0),
    "updates": (0.0, 0.1),
    "velocities": (0.05, 1.0),
}

# Optimizer -> (variants that an engine may have to compile, values of the other hyper-parameters).
HYPER_PARAMETERS: dict[str, tuple[list[dict], dict[str, tuple[float, ...]]]] = {
    "stochastic_gradient_descent": ([{}], {}),
    "adadelta": ([{}], {"rho": (0.8, 0.95), "epsilon": (1e-3, 0.1)}),
    "adagrad": ([{}], {}),
    "adagrad_momentum": (
        [{"exponent": 2.0, "beta2": 1.0}, {"exponent": 3.0, "beta2": 0.9, "use_nesterov": True}],
        {"momentum": (0.0, 0.9), "epsilon": (1e-10, 0.1)},
    ),
    "adam": (
        [{}, {"use_sum_inside_sqrt": True}, {"use_non_lazy_adam": True}],
        {"beta1": (0.9, 0.5), "beta2": (0.99, 0.9), "epsilon": (1e-3, 0.1)},
    ),
    "assign": ([{}], {}),
    "bounded_adagrad": (
        [{}, {"update_accumulator_first": True}],
        {"max_var_update": (0.0, 0.1), "max_accumulator": (0.0, 0.8)},
    ),
    # Closer to 0, the variance would lose its digits to cancellation.
    "centered_rms_prop": ([{}], {"rho": (0.8, 0.95), "momentum": (0.0, 0.9), "epsilon": (0.01, 0.1)}),
    "frequency_aware_adagrad": (
        [{"probability_exponent": 0.5}, {"probability_exponent": 0.3}],
        {
            "l2_regularization_strength": (0.0, 0.2),
            "max_lr_multiplier": (0.3, 10.0),
            "accumulator_decay": (0.9, 1.0),
            "initial_accumulator_value": (0.1, 0.5),
        },
    ),
    "ftrl": (
        [{"lr_power": -0.5}, {"lr_power": -0.3, "multiply_linear_by_lr": True}],
        {"l1": (0.0, 0.1), "l2": (0.0, 0.2), "beta": (0.0, 0.5)},
    ),
    "momentum": ([{}, {"use_nesterov": True}], {"momentum": (0.0, 0.9)}),
    "proximal_adagrad": ([{}], {"l1": (0.0, 0.1), "l2": (0.0, 0.2)}),
    "rms_prop": ([{}], {"rho": (0.8, 0.95), "momentum": (0.0, 0.9), "epsilon": (1e-3, 0.1)}),
}


@dataclass(frozen=True)
class Call:
    """One enqueue of one core: descriptions of the inputs, and the keywords of `enqueue`."""

    batch: list[tuple]
    keywords: dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One step: a call for each core, the order in which the cores speak, and what happens afterwards."""

    mode: str | None
    trains: bool
    calls: list[Call]
    core_order: list[int]
    core_by_core: bool  # each core does all of its step before the next one begins
    learning_rates: list[float]
    retrieve: bool  # read all tables after the step
    reload: bool  # load new parameters, slots staying, after the step


@dataclass(frozen=True)
class Scenario:
    """A configuration, its steps, and the seed of variables and gradients."""

    config: Any
    steps: list[Step]
    seed: int

    def variables(self) -> dict[str, dict[str, np.ndarray]]:
        """Initial float32 values of every state variable, by table and name."""
        found = {}
        for number, table in enumerate(self.config.table_descriptor):
            rng = np.random.default_rng([self.seed, number])
            shape = (table.vocabulary_size, table.dimension)
            found[table.name] = {"parameters": rng.uniform(-1, 1, shape).astype(np.float32)}
            for slot in OPTIMIZERS[table.optimization_parameters.WhichOneof("parameters")].slots:
                found[table.name][slot] = rng.uniform(*SLOT_RANGES[slot], shape).astype(np.float32)
        return found

    def gradients(self, step: int, core: int, activations: Sequence[np.ndarray]) -> list[np.ndarray | None]:
        """Float32 gradients of a core's activations, None for about one in eight."""
        rng = np.random.default_rng([self.seed, 1000 + step, core])
        drawn = [rng.normal(0, 0.5, np.shape(a)).astype(np.float32) for a in activations]
        return [None if rng.random() < 1 / 8 else gradient for gradient in drawn]


@dataclass
class Outcome:
    """All that an engine answered: activations (and slack) by step and core, and every retrieved table."""

    activations: list[dict[int, list[np.ndarray]]]
    slack: list[dict[int, list[np.ndarray]]]
    tables: list[dict[str, dict[str, np.ndarray]]]


def wrapper(sparse: Callable[..., Any], ragged: Callable[..., Any]) -> Callable[[tuple], Any]:
    """A function from the description of an input to the input of the engine with these two classes."""
    classes: dict[str, Callable[..., Any]] = {"dense": np.asarray, "sparse": sparse, "ragged": ragged}
    return lambda description: classes[description[0]](*description[1:])


def replay(scenario: Scenario, engine: Any, wrap: Callable[[tuple], Any]) -> Outcome:
    """What `engine`, built from the scenario's configuration, answers to the scenario."""
    outcome = Outcome([], [], [])
    tables = [table.name for table in scenario.config.table_descriptor]
    for name, variables in scenario.variables().items():
        engine.load(name, variables)
    for number, step in enumerate(scenario.steps):
        activations: dict[int, list[np.ndarray]] = {}
        slack: dict[int, list[np.ndarray]] = {}
        for cores in [[core] for core in step.core_order] if step.core_by_core else [step.core_order]:
            for core in cores:
                call = step.calls[core]
                engine.enqueue([wrap(entry) for entry in call.batch], core=core, mode=step.mode, **call.keywords)
            for core in cores:
                activations[core] = engine.receive_activations(core=core)
                slack[core] = getattr(engine, "slack", {}).get(core, [])
            for core in cores if step.trains else []:
                gradients = scenario.gradients(number, core, activations[core])
                engine.send_gradients(gradients, step.learning_rates, core=core)
        outcome.activations.append(activations)
        outcome.slack.append(slack)
        if step.retrieve:
            outcome.tables.append({name: engine.retrieve(name) for name in tables})
        if step.reload:
            fresh = np.random.default_rng([scenario.seed, 2000 + number])
            shape = engine.retrieve(tables[0])["parameters"].shape
            engine.load(tables[0], {"parameters": fresh.uniform(-1, 1, shape).astype(np.float32)})
    outcome.tables.append({name: engine.retrieve(name) for name in tables})
    return outcome


def assert_agree(outcome: Outcome, reference: Outcome) -> None:
    """Compare with the outcome of the float64 reference; `atol` is relative to an array's largest value above 1."""
    assert len(outcome.activations) == len(reference.activations)
    assert len(outcome.tables) == len(reference.tables)
    for number, (ours, theirs, slack) in enumerate(
        zip(outcome.activations, reference.activations, reference.slack, strict=True)
    ):
        assert ours.keys() == theirs.keys()
        for core in theirs:
            assert len(ours[core]) == len(theirs[core])
            for k, (a, b) in enumerate(zip(ours[core], theirs[core], strict=True)):
                what = f"activations of step {number}, core {core}, output {k}"
                _assert_close(a, b, slack[core][k], what)
    for number, (ours_then, theirs_then) in enumerate(zip(outcome.tables, reference.tables, strict=True)):
        for table, variables in theirs_then.items():
            assert ours_then[table].keys() == variables.keys()
            for name, b in variables.items():
                _assert_close(ours_then[table][name], b, 0.0, f"{name} of {table}, retrieval {number}")


def _assert_close(a: np.ndarray, b: np.ndarray, slack: Any, what: str) -> None:
    assert a.shape == b.shape, f"{what}: shape {a.shape} is not {b.shape}"
    allowed = ENGINE.atol * max(1.0, np.abs(b).max(initial=0.0)) + ENGINE.rtol * np.abs(b) + slack
    wrong = ~(np.abs(a - b) <= allowed)
    assert not wrong.any(), f"{what}: {a[wrong][:5]} is not {b[wrong][:5]} at {np.argwhere(wrong)[:5].tolist()}"


# Configurations


def _limits(draw: Any, *choices: tuple[float | None, float | None]) -> dict | None:
    lower, upper = draw(st.sampled_from([(None, None), *choices]))
    bounds = {"lower": lower, "upper": upper}
    return {side: {"value": value} for side, value in bounds.items() if value is not None} or None


@st.composite
def optimization_parameters(draw: Any, optimizers: Sequence[str]) -> dict:
    """The fields of an OptimizationParameters message; tags of dynamic inputs are any of 0 to 2, a table's distinct."""
    name = draw(st.sampled_from(optimizers))
    variants, values = HYPER_PARAMETERS[name]
    hyper = {**draw(st.sampled_from(variants)), **{key: draw(st.sampled_from(v)) for key, v in values.items()}}
    tag, other_tag = draw(st.permutations(range(3)))[:2]
    if name == "frequency_aware_adagrad":
        hyper["step_counter"] = {"tag": other_tag}
    constant = draw(st.sampled_from([None, *RATES]))
    statuses = ["UNSPECIFIED", "ENABLED"] + ["DISABLED"] * (not hyper.get("use_non_lazy_adam"))
    quantization = {"enabled": True, "clipping_limits": {"lower": {"value": -0.7}, "upper": {"value": 1.3}}}
    buckets = draw(st.sampled_from([None, None, 2, 9, 16]))
    return {
        name: hyper,
        "learning_rate": {"dynamic": {"tag": tag}} if constant is None else {"constant": constant},
        "clipping_limits": _limits(draw, (-0.8, 0.9), (None, 0.5)),
        "gradient_clipping_limits": _limits(draw, (-0.3, 0.4), (-0.5, None)),
        "weight_decay_factor": draw(st.sampled_from([0.0, 0.1])),
        "multiply_weight_decay_factor_by_learning_rate": draw(st.booleans()),
        "gradient_accumulation_status": draw(st.sampled_from(statuses)),
        "simulated_quantization": {**quantization, "num_buckets": buckets} if buckets else None,
    }


def _tagged(described: dict) -> list[dict]:
    """The messages with a tag in a description of a message, at any depth."""
    inside = [found for value in described.values() if isinstance(value, dict) for found in _tagged(value)]
    return [described, *inside] if "tag" in described else inside


@st.composite
def configs(draw: Any, message_class: type, optimizers: Sequence[str] = tuple(HYPER_PARAMETERS)) -> Any:
    """A TPUEmbeddingConfiguration of one to three tables, in table or in feature mode."""
    table = st.fixed_dictionaries(
        {
            "vocabulary_size": st.integers(1, 40),
            "dimension": st.sampled_from(DIMENSIONS),
            "optimization_parameters": optimization_parameters(optimizers),
        }
    )
    tables = draw(st.lists(table, min_size=1, max_size=3))
    dynamic_inputs = [found for described in tables for found in _tagged(described)]
    tags = sorted({found["tag"] for found in dynamic_inputs})
    for found in dynamic_inputs:  # close the gaps
        found["tag"] = tags.index(found["tag"])
    for number, described in enumerate(tables):
        described["name"] = f"table{number}"
    fields: dict[str, Any] = {
        "table_descriptor": tables,
        "mode": draw(st.sampled_from(["TRAINING", "TRAINING", "TRAINING", "INFERENCE"])),
        "num_hosts": 1,
        "sharding_strategy": draw(st.sampled_from(["DIV_DEFAULT", "MOD"])),
        "num_tensor_cores": draw(st.integers(1, 3)),
        "pipeline_execution_with_tensor_core": draw(st.booleans()),
    }
    if draw(st.booleans()):
        table_of_feature = [*range(len(tables)), *draw(st.lists(st.integers(0, len(tables) - 1), max_size=2))]
        fields["feature_descriptor"] = [
            {
                "name": f"feature{number}",
                "table_id": table_id,
                "input_shape": draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)),
            }
            for number, table_id in enumerate(draw(st.permutations(table_of_feature)))
        ]
    else:
        fields["batch_size_per_tensor_core"] = draw(st.integers(1, 4))
        for described in tables:
            described["num_features"] = draw(st.integers(1, 4))
    return message_class(**fields)


# Batches


@st.composite
def inputs(draw: Any, shape: tuple[int, ...], length: int, vocabulary_size: int, exact: bool) -> tuple:
    """The description of one input whose lookups fall on cells of `shape`; `length` > 0 makes it a sequence."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = ["sparse", "sparse rank 1", "ragged"] if length else ["dense", "sparse", "sparse rank 1", "ragged"]
    kind = draw(st.sampled_from(kinds))
    index_type, id_type, weight_type = draw(
        st.tuples(*(st.sampled_from(types) for types in (["i4", "i8"], ["i4", "i8"], [None, "", "f4", "f8"])))
    )
    rows, cells = prod(shape[:-1]) if length else prod(shape), prod(shape)
    sequence = length > 0
    if kind == "ragged" and not length:  # any count of rows; as many as the leading axes have makes a sequence
        rows = draw(st.sampled_from([cells, prod(shape[:-1]), rng.integers(0, cells + 1)]))
        sequence = len(shape) > 1 and rows == prod(shape[:-1]) != cells
    counts = rng.integers(0, 4 + length, rows) * (rng.random(rows) < 0.8)
    if kind == "dense":
        counts = np.ones(cells if exact else rng.integers(0, cells + 1), int)
    ids = rng.integers(0, rng.integers(1, vocabulary_size + 1), counts.sum()).astype(id_type)
    if sequence or weight_type is None:
        weights = None
    else:
        weights = rng.choice(WEIGHTS, len(ids) if weight_type else 0).astype(weight_type or "f4")
    if kind == "dense":  # weights need an index tensor, which is empty
        return ("dense", ids) if weights is None else ("sparse", np.zeros((0, 2), index_type), ids, weights)
    if kind == "ragged":
        return ("ragged", np.concatenate([[0], np.cumsum(counts)]).astype(index_type), ids, weights)
    row = np.repeat(np.arange(rows), counts)
    if kind == "sparse rank 1":
        return ("sparse", row.astype(index_type), ids, weights)
    # Positions ascend within a row; those of a sequence have gaps and pass its end.
    position = [sorted(rng.choice(count + 2, count, replace=False)) for count in counts]
    leading = np.unravel_index(row, shape) if not length and draw(st.booleans()) else (row,)
    indices = np.stack([*leading, np.concatenate([*position, []])], axis=1)
    return ("sparse", indices.astype(index_type), ids, weights)


@st.composite
def _parts(draw: Any, num_features: int) -> list[tuple[int, int]]:
    """(num_features, max_sequence_length) of entries that together fill the rows of one sample."""
    parts = []
    while num_features:
        size = draw(st.integers(1, num_features))
        length = draw(st.sampled_from([0, 0, *(n for n in range(1, size + 1) if size % n == 0)]))
        parts.append((size // max(1, length), length))
        num_features -= size
    return parts


@st.composite
def calls(draw: Any, config: Any) -> Call:
    """One core's enqueue: of all features, of all tables, or of several entries that share the rows of a table."""
    tables, features = config.table_descriptor, config.feature_descriptor
    keywords: dict[str, Any] = {}
    if features:
        table_ids = [feature.table_id for feature in features]
        shapes = [tuple(feature.input_shape) for feature in features]
        lengths = [shape[-1] if len(shape) > 1 and draw(st.booleans()) else 0 for shape in shapes]
    else:
        entries = [(t, table.num_features, 0) for t, table in enumerate(tables)]
        if draw(st.booleans()):
            split = [(t, *part) for t, table in enumerate(tables) for part in draw(_parts(table.num_features))]
            entries = draw(st.permutations(split))
            keywords["table_ids"] = [t for t, _, _ in entries]
            if any(count > 1 for _, count, _ in entries) or draw(st.booleans()):
                keywords["num_features"] = [count for _, count, _ in entries]
        table_ids, counts, lengths = (list(column) for column in zip(*entries, strict=True))
        rows = [config.batch_size_per_tensor_core * count for count in counts]
        shapes = [(n, length) if length else (n,) for n, length in zip(rows, lengths, strict=True)]
    if any(lengths):
        keywords["max_sequence_lengths"] = lengths
    combiners = draw(st.sampled_from([0, len(tables), len(table_ids)]))
    if combiners:
        keywords["combiners"] = [draw(st.sampled_from(["sum", "mean", "sqrtn"])) for _ in range(combiners)]
    batch = [
        draw(inputs(shape, length, tables[table_id].vocabulary_size, not features))
        for shape, length, table_id in zip(shapes, lengths, table_ids, strict=True)
    ]
    return Call(batch, keywords)


@st.composite
def scenarios(draw: Any, message_class: type, optimizers: Sequence[str] = tuple(HYPER_PARAMETERS)) -> Scenario:
    """One to four steps, training and inference mixed, on a random configuration of the class given."""
    config = draw(configs(message_class, optimizers))
    learns = config.mode == type(config).Mode.Value("TRAINING")
    tags = dynamic_tags(config)
    seldom = st.sampled_from([False, False, False, True])  # both end the pipeline's staleness
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        mode = draw(st.sampled_from([None, "unspecified", "inference", *["train", "training"] * 2 * learns]))
        steps.append(
            Step(
                mode=mode,
                trains=learns and mode != "inference",
                calls=[draw(calls(config)) for _ in range(config.num_tensor_cores)],
                core_order=draw(st.permutations(range(config.num_tensor_cores))),
                core_by_core=draw(st.booleans()),
                learning_rates=[draw(st.sampled_from(RATES)) for _ in tags],
                retrieve=draw(seldom),
                reload=draw(seldom),
            )
        )
    return Scenario(config, steps, draw(st.integers(0, 2**32 - 1)))
