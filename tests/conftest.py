"""Settings of the whole test run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import settings

from anycore import ops

# TensorFlow greets on standard error, and with oneDNN its sums are not those of its plain kernels.
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

# The first example compiles kernels, which says nothing about the code's speed. Where CI is set, hypothesis's own
# profile for it is the parent of this one: the same examples in every run.
settings.register_profile("anycore", deadline=None)
settings.load_profile("anycore")

# Shells start what runs in the background with Ctrl-C ignored, and some tests interrupt themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)

# There is no Triton for some systems.
collect_ignore = [] if find_spec("triton") else ["test_triton.py"]

# Importing Triton aborts a process that has TensorFlow, and torch imports it wherever it is installed. Its own tests
# run it in processes of their own.
modules: dict[str, Any] = sys.modules
modules["triton"] = None


@pytest.fixture(autouse=True)
def _no_embedding_system() -> Iterator[None]:
    """Every test begins and ends without the process's one embedding system."""
    ops.shutdown_tpu_system()
    yield
    ops.shutdown_tpu_system()
