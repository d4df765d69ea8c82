"""The process's embedding system, and the configurations that are its own."""

from __future__ import annotations

from typing import Any

import pytest

from anycore import ConfigError, EmbeddingConfig, FeatureConfig, TableConfig, ops
from anycore.config import parse
from anycore.ops import system
from anycore.optimizers import Adagrad
from anycore.proto import TPUEmbeddingConfiguration


def configuration() -> bytes:
    table = TableConfig("t", 8, 2, Adagrad(learning_rate=0.1))
    return bytes(EmbeddingConfig([table], [FeatureConfig("f", "t", [2])]).to_proto().SerializeToString())


def test_other_bytes_that_say_the_same_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration()
    one_host, two_hosts = (TPUEmbeddingConfiguration(num_hosts=count).SerializeToString() for count in (1, 2))
    same = one_host + config, config + one_host  # of a field that comes twice, the last counts
    parsed: list[Any] = []

    def count_and_parse(given: Any) -> Any:
        parsed.append(given)
        return parse(given)

    ops.configure_tpu_embedding(config)
    monkeypatch.setattr(system, "parse", count_and_parse)
    for _ in range(3):
        for given in same:
            assert ops.is_tpu_embedding_initialized(given)
    assert parsed == list(same)
    for _ in range(2):
        with pytest.raises(ConfigError, match="config is not the one"):
            ops.recv_tpu_embedding_activations(1, config + two_hosts)
    ops.configure_tpu_embedding(config + two_hosts)
    assert not ops.is_tpu_embedding_initialized(same[0])
