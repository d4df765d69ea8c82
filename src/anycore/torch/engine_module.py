"""The tables of an engine as the parameters and buffers of a module."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from anycore.arrays import address
from anycore.engine import EmbeddingEngine
from anycore.errors import AnycoreError


class EngineModule(torch.nn.Module):
    """Every table is a parameter '<table>.parameters', every slot a buffer '<table>.<slot>': the engine's own memory.

    It stays where the engine has it, in one process.
    """

    def __init__(self, engine: EmbeddingEngine) -> None:
        super().__init__()
        self.engine = engine
        self.by_table: list[torch.nn.Parameter] = []
        """The parameter of each table, in the order of the config."""
        self._process = os.getpid()
        self._loads_whole = False
        for table in engine.config.tables:
            tensors = _tensors(engine.views(table.name))
            self.by_table.append(torch.nn.Parameter(tensors.pop("parameters"), engine.config.trains))
            # Not by register_parameter and register_buffer, which refuse a dot in a name.
            self._parameters[f"{table.name}.parameters"] = self.by_table[-1]
            self._buffers.update({f"{table.name}.{name}": slot for name, slot in tensors.items()})

    def check_process(self, trains: bool) -> None:
        """Raises AnycoreError in a process that does not have the tables for itself."""
        if os.getpid() != self._process:
            raise AnycoreError("a fork lacks the threads of the tables: make them in the process that uses them")
        group = torch.distributed
        if trains and group.is_available() and group.is_initialized() and group.get_world_size() > 1:
            raise AnycoreError("each of several processes would train tables of its own: train in one process")

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Copies state variables into the tables, all or, when it raises, none; `assign` makes no difference.

        As a part of another module, what is missing or unexpected does not keep the rest from being loaded.
        """
        self._loads_whole = strict
        try:
            return super().load_state_dict(state_dict, strict, assign)
        finally:
            self._loads_whole = False

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        own = {prefix + name: tensor for name, tensor in chain(self._parameters.items(), self._buffers.items())}
        given = {key: value for key, value in state_dict.items() if key.startswith(prefix)}
        missing, unexpected = [key for key in own if key not in given], [key for key in given if key not in own]
        problems = [
            f"{key} must be a tensor of shape {list(own[key].shape)}, got {list(getattr(value, 'shape', ())) or value}"
            for key, value in given.items()
            if key in own and not (isinstance(value, torch.Tensor) and value.shape == own[key].shape)
        ]
        missing_keys += missing
        unexpected_keys += unexpected
        error_msgs += problems
        if not problems and not (self._loads_whole and missing + unexpected):
            with torch.no_grad():
                for key in own.keys() & given.keys():
                    own[key].copy_(given[key])

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> EngineModule:
        # What moves or casts a model leaves the tables where the engine has them.
        probe = fn(torch.zeros(1))
        if probe.device.type == "cpu" and probe.is_shared():
            raise AnycoreError("the tables cannot be shared among processes: train in one process")
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        name = type(self).__name__
        raise TypeError(f"{name} cannot be copied or pickled: make another of its config, and use state_dict")


def _tensors(views: Mapping[str, NDArray[np.float32]]) -> dict[str, torch.Tensor]:
    """Returns views of one array as views of one tensor, so that `torch.save` writes it once."""
    memory: Any = views["parameters"].base
    whole = torch.from_numpy(memory)
    return {
        name: whole.as_strided(
            view.shape,
            [stride // view.itemsize for stride in view.strides],
            (address(view) - address(memory)) // view.itemsize,
        )
        for name, view in views.items()
    }
