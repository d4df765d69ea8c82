"""`EmbeddingTables`: features in, activations that take part in autograd out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch

from anycore.config import EmbeddingConfig
from anycore.engine import EmbeddingEngine
from anycore.errors import AnycoreError, ConfigError, InputError
from anycore.torch.bags import Rows, by_name, read_feature
from anycore.torch.engine_module import EngineModule
from anycore.torch.table_optimizer import TableOptimizer, no_ids


class EmbeddingTables(EngineModule):
    """The tables of a config: `forward` looks up, and `loss.backward()` updates them, each with its own optimizer.

    Every table is a parameter '<table>.parameters' of the module, its slots are buffers '<table>.<slot>': the memory of
    `engine` itself, and so is what `state_dict` returns. A parameter never gets a `grad`; without `requires_grad` its
    table is not updated. Whatever the module is moved or cast to, tables and activations are float32 on the CPU.

    `learning_rates` maps tags or tables to their dynamic rates. `combiners` has one value per table or per feature;
    empty means the tables' own. `padding_id` stands for no id where there are no offsets. `include_last_offset` says
    whether the number of ids follows a feature's offsets; None sees it by their number, which a smaller batch does not
    allow. `missing_gradients` says what a feature outside the loss means to its ids: 'zeros' a gradient of zero, as to
    an engine, 'untouched' that they were not looked up.

    With several tensor cores, gradients accumulate: that many backward passes make one update.
    """

    def __init__(
        self,
        config: EmbeddingConfig,
        *,
        seed: int = 0,
        num_threads: int | None = None,
        learning_rates: Mapping[int | str, float] | None = None,
        combiners: Sequence[str] = (),
        padding_id: int = -1,
        include_last_offset: bool | None = None,
        missing_gradients: str = "zeros",
    ) -> None:
        """Raises ConfigError for what cannot be used."""
        super().__init__(EmbeddingEngine(config, seed=seed, num_threads=num_threads))
        if config.pipeline_execution_with_tensor_core:
            raise ConfigError(
                "a backward pass updates at once, so it cannot be pipelined: use dataclasses.replace(config, pipeline_"
                "execution_with_tensor_core=False) (TPUEmbeddingConfiguration.pipeline_execution_with_tensor_core)"
            )
        if missing_gradients not in ("zeros", "untouched"):
            raise ConfigError(f"missing_gradients must be 'zeros' or 'untouched', got {missing_gradients!r}")
        names = [activation.name for activation in self.engine.activations]
        if len(set(names)) < len(names):
            raise ConfigError(f"features are known by name here, but some share one: {names} (FeatureDescriptor.name)")
        self._combiners, self._padding_id, self._included = tuple(combiners), padding_id, include_last_offset
        self._untouched = missing_gradients == "untouched"
        self.optimizer = TableOptimizer(self.engine, self.by_table, self._combiners)
        for tag_or_table, rate in (learning_rates or {}).items():
            self.set_learning_rate(tag_or_table, rate)

    def set_learning_rate(self, tag_or_table: int | str, value: float) -> None:
        """Sets a dynamic learning rate by tag, or by the name of a table that has it, from the next update on."""
        self.optimizer.set_learning_rate(tag_or_table, value)

    def forward(self, features: Any) -> dict[str, torch.Tensor]:
        """Returns the activations by feature, float32 input_shape + [dimension], of a smaller batch its samples only.

        `features` maps each feature's name to what `torch.nn.EmbeddingBag` takes: ids [n], offsets and maybe weights;
        or without offsets jagged ids, or padded ids of the shape input_shape or with one axis more, which is combined.
        A jagged row is combined too, or it is a sequence along the last of several axes. TorchRec's `JaggedTensor`
        serves as well, and a `KeyedJaggedTensor` in place of the mapping.

        In training mode, with gradients enabled, a backward pass through the result updates the tables. Until then
        nothing is pending: without it nothing happens, and each one through the same graph is an update of its own.

        Raises: InputError that names the feature; AnycoreError where the process does not have the tables for itself.
        """
        if torch.compiler.is_compiling():
            return torch.compiler.disable(self._look_up)(features)
        return self._look_up(features)

    def _look_up(self, features: Any) -> dict[str, torch.Tensor]:
        trains = self.training and torch.is_grad_enabled()
        self.check_process(trains)
        named = by_name(features)
        activations = {activation.name: activation for activation in self.engine.activations}
        if named.keys() != activations.keys():
            raise InputError(f"features must be named {list(activations)}, got {list(named)}")
        read = [read_feature(each, named[name], self._padding_id, self._included) for name, each in activations.items()]
        parameters = [self.by_table[activation.table] for activation in activations.values()]
        with torch.set_grad_enabled(trains):
            whole = _LookUp.apply(self, *parameters, *chain.from_iterable(rows for rows, _ in read))
            return {
                name: values if len(values) == samples else values[:samples]
                for name, values, (_, samples) in zip(activations, whole, read, strict=True)
            }


class _LookUp(torch.autograd.Function):
    """Rows of ids to activations, gradients to updates.

    Its arguments are the tables; for each activation its table's parameter, from which it has requires_grad; and for
    each activation ids, splits and weights.
    """

    @staticmethod
    def forward(ctx: Any, tables: EmbeddingTables, *tensors: Any) -> tuple[torch.Tensor, ...]:
        rows = tensors[len(tables.engine.activations) :]
        ctx.tables = tables
        ctx.set_materialize_grads(False)
        # So torch itself tells when ids are overwritten before their backward pass, or there is a second one unasked.
        ctx.save_for_backward(*rows)
        inputs = [each.as_input() for each in _by_activation(rows)]
        return tuple(map(torch.from_numpy, tables.engine.look_up(inputs, combiners=tables._combiners)))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[None, ...]:
        if torch.is_grad_enabled():
            raise AnycoreError("an update of the tables has no derivative: call backward without create_graph")
        tables, inputs = ctx.tables, []
        is_trained = ctx.needs_input_grad[1 : 1 + len(gradients)]
        for activation, rows, gradient, trained in zip(
            tables.engine.activations, _by_activation(ctx.saved_tensors), gradients, is_trained, strict=True
        ):
            table = tables.engine.config.tables[activation.table]
            if not trained and table.optimizer.updates_every_row:
                raise ConfigError(f"table {table.name!r} updates every row in every step and must have requires_grad")
            touched = trained and not (gradient is None and tables._untouched)
            inputs.append(rows.as_input() if touched else no_ids(activation.num_samples))
        tables.optimizer.gather(inputs, gradients)
        return (None,) * len(ctx.needs_input_grad)


def _by_activation(rows: Sequence[Any]) -> list[Rows]:
    return list(map(Rows, rows[0::3], rows[1::3], rows[2::3]))
