"""The table that the demo ends with."""

from __future__ import annotations

from anycore.demo.training import Trainer


def summary(
    test_errors: dict[str, float], num_test: int, trainer: Trainer, table_names: list[str], seconds: float
) -> str:
    """Returns the text: test RMSE by model, sizes of the trained tables, steps and ids of `seconds` of training."""
    lines = [f"test RMSE on {num_test:,} held-out ratings"]
    lines += [f"  {model:<22}{error:>12.4f}" for model, error in test_errors.items()]
    lines += ["", f"{'trained table':<16}{'rows':>8}{'dimension':>12}{'bytes':>12}  state variables"]
    for name in table_names:
        variables = trainer.engine.retrieve(name)
        rows, dimension = variables["parameters"].shape
        size = sum(values.nbytes for values in variables.values())
        lines += [f"  {name:<14}{rows:>8,}{dimension:>12}{size:>12,}  {', '.join(variables)}"]
    rate = trainer.ids / seconds
    lines += ["", f"{trainer.steps:,} steps, {trainer.ids:,} ids in {seconds:.1f} s: {rate / 1e6:.2f} million ids/s"]
    return "\n".join(lines)
