"""Bytes between processes that torchrun starts."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from launched import torchrun
from transports import PROGRAM, SIZE, check_all_got_everything

from anycore.errors import ConfigError
from anycore.transport import TorchTransport


def test_every_process_gets_everything(tmp_path: Path) -> None:
    torchrun(SIZE, PROGRAM, "torch", str(tmp_path))
    check_all_got_everything(tmp_path)


def test_torch_distributed_must_be_initialised() -> None:
    with pytest.raises(ConfigError, match=r'call torch.distributed.init_process_group\("gloo"\) first'):
        TorchTransport()


PROGRAM_OF_TIMEOUTS = """
import torch.distributed as dist
from anycore.transport import TorchTransport

dist.init_process_group("gloo")
transport = TorchTransport()
transport.channel(0)
transport.channel({longest}).barrier()
dist.barrier()
dist.destroy_process_group()
"""


def test_any_timeout_connects(tmp_path: Path) -> None:
    program = tmp_path / "timeouts.py"
    program.write_text(PROGRAM_OF_TIMEOUTS.format(longest=threading.TIMEOUT_MAX))
    torchrun(2, program)
