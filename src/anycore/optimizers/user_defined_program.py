"""An optimizer that the configuration itself carries, as an XLA program."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from anycore.optimizers.declarations import Slot
from anycore.optimizers.hlo import parse, translate
from anycore.optimizers.optimizer import Optimizer


@dataclass(frozen=True, kw_only=True)
class UserDefinedProgram(Optimizer):
    """What a serialized `xla.HloModuleProto` computes, compiled and fused like any rule of ours.

    The program takes gradient, weight, slots and, if it wants it, the learning rate, and returns weight and slots, all
    of them f32 of shape [1, 1]; JAX lowers one so with `jax.jit(update, keep_unused=True)`. Its slots are called
    Slot_0, Slot_1, … and start at 0, until they are loaded.

    Every element-wise operation of XLA on real numbers is there, inside the program also of pred, s8 … s64, u8 … u64,
    f16, bf16 and f64. It computes what XLA does on CPUs, but denormal numbers stay what they are. What is not
    element-wise, random or complex is refused. A program with 64 bits inside updates JAX's own arrays only with
    `jax_enable_x64`.

    Raises: ConfigError that names the instruction which is not element-wise, or the wrong numbers of arguments.
    Source: `UserDefinedProgramParameters`, optimization_parameters.proto, TensorFlow 2.21.
    """

    program: bytes = field(repr=False)

    rule = None  # an instance has the program's
    wire_name = "user_defined_program"

    def __post_init__(self) -> None:
        # Parsed and written once, fields stand in the order in which the wire will bring them back.
        program = parse(self.program).SerializeToString(deterministic=True)
        translated = translate(program)
        slots = tuple(Slot(f"Slot_{k}") for k in range(translated.num_slots))
        for name, value in {"program": program, "rule": translated.rule, "slots": slots}.items():
            object.__setattr__(self, name, value)
        super().__post_init__()

    def __reduce__(self) -> Any:
        # A compiled rule cannot be pickled; it is made again.
        return _remade, (type(self), {f.name: getattr(self, f.name) for f in fields(self)})

    def hyper_parameters(self) -> dict[str, Any]:
        """None: the program has its numbers inside."""
        return {}

    def constants(self) -> dict[str, Any]:
        """The program's numbers, by the names of the rule's arguments."""
        return translate(self.program).constants


def _remade(optimizer: type[UserDefinedProgram], arguments: dict[str, Any]) -> UserDefinedProgram:
    return optimizer(**arguments)
