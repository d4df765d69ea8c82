"""anycore: enqueue, receive, send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import sqrt

from trained_optimizers import trained_optimizers

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, Ragged, TableConfig
from anycore.optimizers import Adagrad, Adam, DynamicInput, Optimizer, RowWiseAdagrad, StochasticGradientDescent
from peers.batches import Batch, Floats, Integers, initial_values
from peers.contenders.contender import (
    ADAM_EPSILON,
    BETA1,
    BETA2,
    INITIAL_ACCUMULATOR,
    LEARNING_RATE,
    Contender,
    Lap,
)
from peers.workloads import Workload

OPTIMIZERS: dict[str, Optimizer] = trained_optimizers() | {
    "stochastic_gradient_descent": StochasticGradientDescent(learning_rate=LEARNING_RATE),
    "adagrad": Adagrad(learning_rate=LEARNING_RATE),
    "row_wise_adagrad": RowWiseAdagrad(learning_rate=LEARNING_RATE),
    # The wire leaves Adam's correction of the bias to the caller, who puts it into the rate.
    "adam": Adam(learning_rate=DynamicInput(0), beta1=BETA1, beta2=BETA2, epsilon=ADAM_EPSILON),
}
assert Adagrad.slots[0].initial_value == INITIAL_ACCUMULATOR


def config_of(workload: Workload) -> EmbeddingConfig:
    """Returns the workload's tables and features; a sequence has the length that its one draw says."""
    combiner = "mean" if workload.weighted_mean else "sum"
    shape = [workload.batch_size]
    if workload.sequence:
        (draw,) = workload.draws
        shape.append(draw.ids_per_sample)
    tables, features = [], []
    for t in range(workload.num_tables):
        initializer = partial(initial_values, t)
        tables.append(
            TableConfig(
                f"table_{t}",
                workload.vocabulary_size,
                workload.dimension,
                OPTIMIZERS[workload.optimizer],
                combiner=combiner,
                initializer=initializer,
            )
        )
        features += [FeatureConfig(f"feature_{t}_{f}", f"table_{t}", shape) for f in range(workload.features_per_table)]
    return EmbeddingConfig(tables, features)


@dataclass(frozen=True)
class Prepared:
    """A batch as anycore takes it: the arrays as they are."""

    inputs: list[Ragged]
    gradients: list[Floats]


class Anycore(Contender):
    """All checks and the sort by row are in `enqueue`."""

    optimizers = frozenset(OPTIMIZERS)

    def __init__(self, workload: Workload, num_threads: int) -> None:
        self._config = config_of(workload)
        self.engine = EmbeddingEngine(self._config, num_threads=num_threads)
        self._corrects = workload.optimizer == "adam"
        self._steps = count(1)

    def prepare(self, batch: Batch) -> Prepared:
        weights: Sequence[Floats | None] = batch.weights or [None] * len(batch.ids)
        inputs = [Ragged(batch.splits, ids, weight) for ids, weight in zip(batch.ids, weights, strict=True)]
        shapes = [(*f.input_shape, g.shape[-1]) for f, g in zip(self._config.features, batch.gradients, strict=True)]
        return Prepared(inputs, [g.reshape(shape) for g, shape in zip(batch.gradients, shapes, strict=True)])

    def look_up(self, prepared: Prepared) -> Sequence[Floats]:
        self.engine.enqueue(prepared.inputs, mode="inference")
        return self.engine.receive_activations()

    def step(self, prepared: Prepared, lap: Lap) -> Sequence[Floats]:
        self.engine.enqueue(prepared.inputs)
        lap("enqueue")
        activations = self.engine.receive_activations()
        lap("receive")
        self.engine.send_gradients(prepared.gradients, self._learning_rates())
        lap("send")
        return activations

    def _learning_rates(self) -> list[float]:
        step = next(self._steps)
        correction = sqrt(1 - BETA2**step) / (1 - BETA1**step) if self._corrects else 1.0
        return [LEARNING_RATE * correction] * self.engine._plan.num_tags

    def parameters(self, table: int, rows: Integers) -> Floats:
        # A view: `retrieve` copies the whole table.
        return self.engine._tables[table].view("parameters")[rows]


class AnycoreOneThread(Anycore):
    """The same with one thread, to see beside it what the other threads bring."""

    def __init__(self, workload: Workload, num_threads: int) -> None:
        super().__init__(workload, 1)
