"""Layers of several processes that share their tables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from keras_models import config
from numpy.typing import NDArray

from anycore.keras import TPUEmbedding
from anycore.transport import InProcessTransport, Transport

IDS = np.array([[3, 1], [0, 2], [5, 5], [0, 3]])


def trained(transport: Transport | None) -> dict[str, NDArray[np.float32]]:
    """Returns a table after two steps; of several processes each has a part of the samples."""
    layer = TPUEmbedding(config(), learning_rates={"people": 0.1}, transport=transport)
    host = layer._built_host()
    ids = IDS if transport is None else np.split(IDS, transport.size)[transport.rank]
    inputs = [ids[:, 0], ids[:, 1], ids[:, 1], ids]
    cells = [each.shape for each in inputs]
    for _ in range(2):
        activations, _ = host.look_up(inputs, cells)
        host.update(inputs, cells, activations, [0.1] * len(layer._layer_config.rates))
    found: dict[str, NDArray[np.float32]] = layer.engine.retrieve("movies")
    return found


def test_processes_share_the_tables() -> None:
    expected = trained(None)
    with ThreadPoolExecutor(2) as threads:
        for found in threads.map(trained, InProcessTransport.group(2)):
            for name, values in expected.items():
                np.testing.assert_allclose(found[name], values, rtol=1e-6)
