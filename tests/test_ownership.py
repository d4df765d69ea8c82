"""Whose the one embedding system is."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from engines import small_engine

from anycore import ops
from anycore.tensorflow.ownership import OwnedSystem

CONFIG = small_engine().config.to_proto().SerializeToString()


class Owner:
    """Something that a weak reference can be made to."""

    me: Any = None


def test_one_owner_at_a_time() -> None:
    owner = Owner()
    engine = OwnedSystem(owner, CONFIG).engine
    with pytest.raises(RuntimeError, match=r"TPU is already initialized for embeddings\. .*shutdown_tpu_system"):
        OwnedSystem(Owner(), CONFIG)
    assert ops.system.engine_of(CONFIG, "test") is engine


@pytest.mark.parametrize("circle", [False, True])
def test_the_system_of_an_owner_that_is_gone_can_be_had(circle: bool) -> None:
    owner = Owner()
    owner.me = owner if circle else None
    system = OwnedSystem(owner, CONFIG)
    tables = weakref.ref(system.engine)
    del owner
    other = Owner()
    OwnedSystem(other, CONFIG)
    assert tables() is None
    with pytest.raises(RuntimeError, match="was shut down or configured anew"):
        _ = system.engine


def test_a_system_that_was_shut_down_can_be_had() -> None:
    owner, other = Owner(), Owner()
    system = OwnedSystem(owner, CONFIG)
    ops.shutdown_tpu_system()
    with pytest.raises(RuntimeError, match="Create a new TPUEmbedding and restore a checkpoint"):
        _ = system.engine
    later = OwnedSystem(other, CONFIG)
    system.shut_down()
    assert later.engine is not None
    later.shut_down()
    assert not ops.is_tpu_embedding_initialized()


def test_a_system_that_others_configured_stays_theirs() -> None:
    ops.configure_tpu_embedding(CONFIG)
    with pytest.raises(RuntimeError, match="already initialized"):
        OwnedSystem(Owner(), CONFIG)
    ops.shutdown_tpu_system()
    owner = Owner()
    system = OwnedSystem(owner, CONFIG)
    ops.configure_tpu_embedding(CONFIG)
    with pytest.raises(RuntimeError, match="already initialized"):
        OwnedSystem(Owner(), CONFIG)
    with pytest.raises(RuntimeError, match="configured anew"):
        _ = system.engine
