"""Which mode a step has."""

from __future__ import annotations

import pytest
from engines import small_engine

from anycore import ConfigError, InputError, Mode
from anycore.modes import mode_of
from anycore.optimizers import OnlineYogi


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        (None, Mode.TRAINING),
        ("unspecified", Mode.TRAINING),
        ("train", Mode.TRAINING),
        ("training", Mode.TRAINING),
        ("inference", Mode.INFERENCE),
        ("backward_pass_only", Mode.BACKWARD_PASS_ONLY),
    ],
)
def test_names_of_modes(given: str | None, mode: Mode) -> None:
    assert mode_of(small_engine().config, given) == mode


def test_what_a_config_excludes_is_refused() -> None:
    inference = small_engine(mode=Mode.INFERENCE).config
    assert mode_of(inference, None) == Mode.INFERENCE
    with pytest.raises(InputError, match="'train' needs a config that trains"):
        mode_of(inference, "train")
    with pytest.raises(InputError, match="Unsupported value 'eval'"):
        mode_of(inference, "eval")
    without_rule = small_engine(OnlineYogi()).config
    assert mode_of(without_rule, "inference") == Mode.INFERENCE
    with pytest.raises(ConfigError, match="arithmetic of online_yogi is not published"):
        mode_of(without_rule, None)
