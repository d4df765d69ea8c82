"""Tables in PyTorch that several processes share; what one does alone is in test_torch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from engines import State, assert_same_bits, state
from test_torch import batches, dense_part, loss_of, make_config
from torch_models import small_tables

from anycore import ConfigError
from anycore.torch import EmbeddingTables
from anycore.transport import InProcessTransport, Transport


def train(transport: Transport | None, num_tensor_cores: int, dense: torch.nn.Module) -> State:
    """Trains with the batches of this process's cores; the dense part stays as it is."""
    options: dict[str, Any] = {"seed": 3, "learning_rates": {0: 0.2, "t1": 0.05}, "num_threads": 1}
    tables = EmbeddingTables(make_config(num_tensor_cores), transport=transport, **options)
    first = transport.rank * tables.engine.num_cores if transport else 0
    for number, features in enumerate(batches(5 * num_tensor_cores)):
        if first <= number % num_tensor_cores < first + tables.engine.num_cores:
            loss_of(dense, tables(features)).backward()
    return state(tables.engine)


@pytest.mark.parametrize(("size", "num_tensor_cores"), [(3, 3), (2, 4)])
def test_processes_that_share_the_tables_give_the_bits_of_one(size: int, num_tensor_cores: int) -> None:
    dense = dense_part()[0].requires_grad_(False)
    expected = train(None, num_tensor_cores, dense)
    with ThreadPoolExecutor(size) as threads:
        for found in threads.map(lambda t: train(t, num_tensor_cores, dense), InProcessTransport.group(size)):
            assert_same_bits(found, expected)


def test_a_process_has_its_own_rows() -> None:
    def shapes(transport: Transport) -> dict[str, list[int]]:
        tables = small_tables(num_tensor_cores=2, transport=transport)
        return {name: list(tensor.shape) for name, tensor in tables.state_dict().items()}

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(shapes, InProcessTransport.group(2))) == [{"t.parameters": [2, 2]}] * 2


def test_processes_make_as_many_passes() -> None:
    with pytest.raises(ConfigError, match="num_tensor_cores must be a multiple of the 2 processes, got 3"):
        small_tables(num_tensor_cores=3, transport=InProcessTransport.group(2)[0])
