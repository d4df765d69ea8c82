"""The whole embedding engine once more: float64, plain loops, written from the wire contract alone.

It shares no code with the package under test, so that a mistake there cannot hide here. Numbers the wire carries as
float32 (hyper-parameters, learning rates, weights, gradients, loaded variables) are rounded to float32 first and
computed with in float64 from there on.

Source: tpu_embedding_configuration.proto, optimization_parameters.proto and the TPU embedding operations,
TensorFlow 2.21.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, prod
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from reference_config import complete, dynamic_tags, limits
from reference_inputs import Lookup, lookups
from reference_optimizers import OPTIMIZERS

UNSPECIFIED, INFERENCE, TRAINING, BACKWARD_PASS_ONLY = range(4)
DISABLED = 2
MODES = {"train": TRAINING, "training": TRAINING, "inference": INFERENCE, "backward_pass_only": BACKWARD_PASS_ONLY}


class Block(NamedTuple):
    """The part of an activation tensor that one entry fills: the shape of its cells, the row of each cell."""

    output: int
    shape: tuple[int, ...]
    rows: list[int]


def quantized(x: np.ndarray, message: Any) -> np.ndarray:
    """Rows as the forward pass sees them under a SimulatedQuantization message."""
    if not message.enabled:
        return x
    lower, upper = limits(message.clipping_limits)
    step = (upper - lower) / (message.num_buckets - 1)
    return np.floor((np.clip(x, lower, upper) - lower) / step + 0.5) * step + lower


@dataclass(eq=False)
class Step:
    """What the cores have said about one step so far."""

    mode: int
    lookups: dict[int, list[tuple[int, Lookup]]] = field(default_factory=dict)  # core -> (output, lookup)
    received: set[int] = field(default_factory=set)
    gradients: dict[int, list[np.ndarray]] = field(default_factory=dict)
    learning_rates: list[float] | None = None
    applied: bool = False


class ReferenceEngine:
    """An engine with the calls of `anycore.EmbeddingEngine`, for one thread and small tables.

    Wrong calls raise ValueError (arguments) or RuntimeError (order), never wait. Tables start at zero.
    `tables` holds every state variable by table and name. `slack` holds, for each core's last activations, by how
    much each element may differ because a quantized parameter lies within `edge` of the border between two buckets.
    """

    edge = 1e-4

    def __init__(self, config: Any, dtype: Any = np.float64) -> None:
        self.config, self.layout, self.tags = config, complete(config), dynamic_tags(config)
        self.mode, self.num_cores, self.dtype = config.mode, max(1, config.num_tensor_cores), dtype
        if self.mode not in MODES.values():
            raise ValueError(f"mode must be INFERENCE, TRAINING or BACKWARD_PASS_ONLY, got {self.mode}")
        self.pipelined = self.mode == TRAINING and config.pipeline_execution_with_tensor_core
        self.tables: dict[str, dict[str, np.ndarray]] = {}
        for table in config.table_descriptor:
            optimizer = OPTIMIZERS[table.optimization_parameters.WhichOneof("parameters")]
            if self._updates_all_rows(table) and not self._accumulates(table):
                raise ValueError(f"table {table.name}: a non-lazy optimizer needs gradient accumulation")
            shape = (table.vocabulary_size, table.dimension)
            self.tables[table.name] = {name: np.zeros(shape, dtype) for name in ("parameters", *optimizer.slots)}
        self.steps: list[Step] = []
        self.slack: dict[int, list[np.ndarray]] = {}

    # Variables

    def load(self, table: str, variables: Mapping[str, Any]) -> None:
        self._settle()
        for name, values in variables.items():
            self.tables[table][name][...] = np.asarray(values, np.float32)

    def retrieve(self, table: str) -> dict[str, np.ndarray]:
        self._settle()
        return {name: values.copy() for name, values in self.tables[table].items()}

    # Enqueue

    def enqueue(
        self,
        batch: Sequence[Any] | Mapping[str, Any],
        combiners: Sequence[str] = (),
        table_ids: Sequence[int] | None = None,
        max_sequence_lengths: Sequence[int] = (),
        num_features: Sequence[int] = (),
        core: int = 0,
        mode: str | None = None,
    ) -> None:
        kind = self.mode if mode in (None, "unspecified") else MODES[mode]
        index = sum(core in step.lookups for step in self.steps)
        if not 0 <= core < self.num_cores:
            raise ValueError(f"core must lie in [0, {self.num_cores}), got {core}")
        if index < len(self.steps) and self.steps[index].mode != kind:
            raise RuntimeError("all cores must run a step in the same mode")
        if isinstance(batch, Mapping):
            named = self.config.feature_descriptor or self.config.table_descriptor
            batch = [batch[item.name] for item in named]
        lengths = list(max_sequence_lengths) or [0] * len(batch)
        blocks = self._blocks(len(batch), table_ids, lengths, list(num_features))
        found = self._lookups(batch, combiners, lengths, blocks)
        if index == len(self.steps):
            self.steps.append(Step(kind))
        self.steps[index].lookups[core] = found

    def _lookups(
        self, batch: Sequence[Any], combiners: Sequence[str], lengths: list[int], blocks: list[Block]
    ) -> list[tuple[int, Lookup]]:
        """Every (output, lookup) of one core's batch, by output and activation row, then in input order.

        How entries share the rows of a table changes nothing: a table's completed feature is all of its rows.
        """
        descriptors = self.config.table_descriptor
        if len(combiners) not in (0, len(descriptors), len(batch)):
            raise ValueError(f"combiners must be none, one per table or one per entry, got {len(combiners)}")
        found: list[tuple[int, Lookup]] = []
        per_table = len(combiners) == len(descriptors)
        exact = not self.config.feature_descriptor
        for number, (entry, (output, shape, rows), length) in enumerate(zip(batch, blocks, lengths, strict=True)):
            table = self.layout.outputs[output].table
            combiner = combiners[table if per_table else number] if combiners else "sum"
            for at in lookups(entry, shape, descriptors[table].vocabulary_size, combiner, length, exact):
                found.append((output, at._replace(cell=rows[at.cell])))
        return sorted(found, key=lambda item: (item[0], item[1].cell))

    def _blocks(
        self, count: int, table_ids: Sequence[int] | None, lengths: list[int], num_features: list[int]
    ) -> list[Block]:
        """The place of each entry in the activations."""
        layout = self.layout
        if self.config.feature_descriptor:
            given = [output.table for output in layout.outputs]
            if count != len(given) or len(lengths) != count or (table_ids is not None and list(table_ids) != given):
                raise ValueError(f"expected one entry for each feature, of tables {given}")
            return [Block(f, output.shape, list(range(prod(output.shape)))) for f, output in enumerate(layout.outputs)]
        if table_ids is None:  # one entry fills all rows of its table
            table_ids = range(len(layout.outputs))
            num_features = num_features or [n // max(1, k) for n, k in zip(layout.num_features, lengths, strict=True)]
        num_features = num_features or [1] * count
        if not count == len(table_ids) == len(lengths) == len(num_features):
            raise ValueError("table_ids, max_sequence_lengths and num_features must have one element per entry")
        filled = [0] * len(layout.outputs)
        blocks = []
        for table, length, features in zip(table_ids, lengths, num_features, strict=True):
            shape = (layout.batch_size * features, length) if length else (layout.batch_size * features,)
            width = features * max(1, length)
            starts = [sample * layout.num_features[table] + filled[table] for sample in range(layout.batch_size)]
            blocks.append(Block(table, shape, [start + k for start in starts for k in range(width)]))
            filled[table] += width
        if filled != layout.num_features:
            raise ValueError(f"the entries fill {filled} rows per sample, num_features is {layout.num_features}")
        return blocks

    # Receive

    def receive_activations(self, core: int = 0) -> list[np.ndarray]:
        step = next((s for s in self.steps if s.mode != BACKWARD_PASS_ONLY and core not in s.received), None)
        if step is None or core not in step.lookups:
            raise RuntimeError("receive_activations before enqueue")
        stale = 1 if self.pipelined and step.mode == TRAINING else 0
        if not stale:
            self._settle()
        earlier = self.steps[: self.steps.index(step)]
        if sum(s.mode != INFERENCE and not s.applied for s in earlier) > stale:
            raise RuntimeError("receive_activations before the gradients of the step before")
        step.received.add(core)
        activations, self.slack[core] = self._forward(step, core)
        self._advance()
        return activations

    def _forward(self, step: Step, core: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The activations, and what they may lose or gain at the borders of quantization buckets."""
        activations = [np.zeros(self._shape(k), self.dtype) for k in range(len(self.layout.outputs))]
        slack = [np.zeros(a.shape) for a in activations]
        for output, (cell, i, gain) in step.lookups[core]:
            descriptor = self.config.table_descriptor[self.layout.outputs[output].table]
            quantization = descriptor.optimization_parameters.simulated_quantization
            row = self.tables[descriptor.name]["parameters"][i]
            spread = quantized(row + self.edge, quantization) - quantized(row - self.edge, quantization)
            activations[output].reshape(-1, len(row))[cell] += gain * quantized(row, quantization)
            slack[output].reshape(-1, len(row))[cell] += abs(gain) * spread * bool(quantization.enabled)
        return activations, slack

    def _shape(self, output: int) -> tuple[int, ...]:
        table, shape = self.layout.outputs[output]
        return (*shape, self.config.table_descriptor[table].dimension)

    # Send

    def send_gradients(self, gradients: Sequence[Any], learning_rates: Sequence[float] = (), core: int = 0) -> None:
        step = next((s for s in self.steps if s.mode != INFERENCE and core not in s.gradients), None)
        if step is None or core not in (step.lookups if step.mode == BACKWARD_PASS_ONLY else step.received):
            raise RuntimeError("send_gradients before receive_activations")
        shapes = [self._shape(k) for k in range(len(self.layout.outputs))]
        filled = [
            np.zeros(s) if g is None else np.asarray(g, np.float32) for g, s in zip(gradients, shapes, strict=False)
        ]
        if len(gradients) != len(shapes) or any(g.shape != s for g, s in zip(filled, shapes, strict=True)):
            raise ValueError(f"gradients must have the shapes of the activations, {shapes}")
        rates = [float(np.float32(rate)) for rate in learning_rates]
        if len(rates) != len(self.tags) or not all(map(isfinite, rates)):
            raise ValueError(f"expected {len(self.tags)} finite learning rates, got {rates}")
        if step.learning_rates not in (None, rates):
            raise ValueError("all cores must send the same learning rates")
        step.learning_rates = rates
        step.gradients[core] = [g.astype(self.dtype) for g in filled]
        self._advance()

    # Update

    def _complete(self, step: Step) -> bool:
        return step.mode != INFERENCE and not step.applied and len(step.gradients) == self.num_cores

    def _advance(self) -> None:
        """Apply every update whose time has come: at once, or pipelined after the next step's forward."""
        for step, following in zip(self.steps, [*self.steps[1:], None], strict=True):
            seen = following is not None and len(following.received) == self.num_cores
            if self._complete(step) and (seen or not self.pipelined or step.mode == BACKWARD_PASS_ONLY):
                self._settle(step)

    def _settle(self, last: Step | None = None) -> None:
        """Apply what the pipeline still holds back, up to the step `last`."""
        for step in self.steps[: self.steps.index(last) + 1] if last else self.steps:
            if self._complete(step):
                self._apply(step)

    def _apply(self, step: Step) -> None:
        step.applied = True
        assert step.learning_rates is not None
        for number, table in enumerate(self.config.table_descriptor):
            occurrences = []
            for core in range(self.num_cores):
                for output, (cell, i, gain) in step.lookups[core]:
                    if self.layout.outputs[output].table == number:
                        gradient = step.gradients[core][output].reshape(-1, table.dimension)[cell]
                        occurrences.append((i, gain * gradient))
            if self._accumulates(table):
                zero = np.zeros(table.dimension, self.dtype)
                sums = dict.fromkeys(range(table.vocabulary_size), zero) if self._updates_all_rows(table) else {}
                for i, gradient in occurrences:
                    sums[i] = sums.get(i, zero) + gradient
                occurrences = list(sums.items())
            for i, gradient in occurrences:
                self._update_row(table, i, gradient, step.learning_rates)

    def _update_row(self, table: Any, i: int, g: np.ndarray, rates: list[float]) -> None:
        """Clip the gradient, decay the weight, apply the rule, clip the weight."""
        parameters = table.optimization_parameters
        name = parameters.WhichOneof("parameters")
        given = parameters.learning_rate
        dynamic = given.WhichOneof("learning_rate") == "dynamic"
        lr = rates[given.dynamic.tag] if dynamic else float(np.float32(given.constant))
        variables = self.tables[table.name]
        decay = float(np.float32(parameters.weight_decay_factor))
        if parameters.multiply_weight_decay_factor_by_learning_rate:
            decay *= lr
        w = variables["parameters"][i]
        w = w - decay * w
        g = np.clip(g, *limits(parameters.gradient_clipping_limits))
        slots = [variables[slot][i] for slot in OPTIMIZERS[name].slots]
        w, *slots = OPTIMIZERS[name].rule(self._hyper_parameters(parameters, rates), w, g, lr, *slots)
        variables["parameters"][i] = np.clip(w, *limits(parameters.clipping_limits))
        for slot, values in zip(OPTIMIZERS[name].slots, slots, strict=True):
            variables[slot][i] = values

    @staticmethod
    def _hyper_parameters(parameters: Any, rates: list[float]) -> SimpleNamespace:
        message = getattr(parameters, parameters.WhichOneof("parameters"))
        values = {f.name: getattr(message, f.name) for f in message.DESCRIPTOR.fields}
        if "step_counter" in values:
            values["step_counter"] = rates[values["step_counter"].tag]
        return SimpleNamespace(**values)

    @staticmethod
    def _accumulates(table: Any) -> bool:
        return table.optimization_parameters.gradient_accumulation_status != DISABLED

    @staticmethod
    def _updates_all_rows(table: Any) -> bool:
        parameters = table.optimization_parameters
        return parameters.adam.use_non_lazy_adam or parameters.lion.use_non_lazy_lion
