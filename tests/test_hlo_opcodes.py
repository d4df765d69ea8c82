"""Every opcode of XLA is an operation of ours, or refused for a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tensorflow as tf
from hlo_text import program

from anycore import ConfigError
from anycore.optimizers.hlo import translate
from anycore.optimizers.hlo_opcodes import REFUSED
from anycore.optimizers.hlo_operations import OPCODES

HEADER = Path(tf.sysconfig.get_include()) / "xla" / "hlo" / "ir" / "hlo_opcode.h"


def test_all_that_tensorflow_lists() -> None:
    listed = re.findall(r'V\(k\w+, "([\w-]+)"', HEADER.read_text())
    assert sorted(listed) == sorted(OPCODES | REFUSED.keys())
    assert not OPCODES & REFUSED.keys()


@pytest.mark.parametrize("opcode", REFUSED)
def test_a_refused_one_is_named_with_the_reason(opcode: str) -> None:
    message = f"'r': opcode '{opcode}' is not supported, {REFUSED[opcode]}; use element-wise operations"
    with pytest.raises(ConfigError, match=f"^optimizer user_defined_program: instruction {message}"):
        translate(program(f"r = f32[1,1] {opcode}(g)"))


def test_an_unknown_one_is_named() -> None:
    with pytest.raises(ConfigError, match="'r': opcode 'frobnicate' is not supported, it is none of XLA's"):
        translate(program("r = f32[1,1] frobnicate(g)"))
