"""Which mode a step has, and what that asks of a config."""

from __future__ import annotations

from anycore.config import EmbeddingConfig, Mode
from anycore.errors import ConfigError, InputError

MODES = {
    "inference": Mode.INFERENCE,
    "train": Mode.TRAINING,
    "training": Mode.TRAINING,
    "backward_pass_only": Mode.BACKWARD_PASS_ONLY,
}
"""`mode_override` → mode; None and 'unspecified' mean the config's."""


def mode_of(config: EmbeddingConfig, mode: str | None) -> Mode:
    """Returns the mode of a step.

    Raises: InputError for a mode that there is not or that the config excludes; ConfigError when a table of a step that
    trains has an optimizer without a rule.
    """
    if mode is None or mode == "unspecified":
        chosen = config.mode
    elif mode not in MODES:
        raise InputError(f"Unsupported value {mode!r} specified for mode_override, use one of {', '.join(MODES)}")
    else:
        chosen = MODES[mode]
    if not config.trains and chosen != Mode.INFERENCE:
        raise InputError(
            f"mode_override {mode!r} needs a config that trains, this one has mode INFERENCE "
            "(TPUEmbeddingConfiguration.mode)"
        )
    if chosen != Mode.INFERENCE:
        _check_rules(config)
    return chosen


def _check_rules(config: EmbeddingConfig) -> None:
    for table in config.tables:
        name = table.optimizer.wire_name
        if table.optimizer.rule is None:
            raise ConfigError(
                f"table {table.name!r}: the arithmetic of {name} is not published, so it looks up but does not "
                f"train; supply a rule: derive YourClass with one from {type(table.optimizer).__name__}, and give "
                f"optimizer=YourClass() to TableConfig, or optimizers={{{name!r}: YourClass}} to "
                f"EmbeddingConfig.from_proto or configure_tpu_embedding (OptimizationParameters.{name})"
            )
