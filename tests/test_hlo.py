"""How the instructions of an XLA program are put together, and which programs are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hlo_rules import BACKENDS, NUMBERS, W, in_numpy
from hlo_text import module, program

from anycore import ConfigError
from anycore.optimizers.hlo import parse, translate
from anycore.proto import HloModuleProto


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("c = f32[1,1] divide(a, b)", 0.5),
        ("d = pred[1,1] compare(a, b), direction=LT\n c = f32[1,1] select(d, a, b)", 1.0),
        ("d = s32[1,1] convert(b)\n c = f32[1,1] convert(d)", 2.0),
        ("c = f32[1,1] log(zero)", -np.inf),
    ],
)
def test_what_needs_no_input_is_computed_once(lines: str, expected: float) -> None:
    body = f"""
      zero = f32[] constant(0)
      a = f32[] constant(1)
      b = f32[1] constant(2)
      {lines}
      result = f32[1,1] add(g, c)"""
    translated = translate(program(body))
    assert translated.constants == {"c_0": np.float32(expected)}
    assert type(translated.constants["c_0"]) is np.float32
    assert in_numpy(translated, NUMBERS[1:2], NUMBERS[:1]) == 1 + expected


def test_equal_numbers_are_one_constant_but_zeros_are_two() -> None:
    body = "\n".join(
        [f"c{k} = f32[1,1] constant({number})" for k, number in enumerate(["0.1", "0.1", "0.0", "-0.0"])]
        + [f"a{k} = f32[1,1] add({'g' if k == 0 else f'a{k - 1}'}, c{k})" for k in range(4)]
    )
    numbers = list(translate(program(body)).constants.values())
    assert [(n, bool(np.signbit(n))) for n in numbers] == [(np.float32(0.1), False), (0, False), (0, True)]


def test_a_constant_exponent_of_a_half_is_a_square_root() -> None:
    body = """
      half = f32[1,1] constant(0.5)
      result = f32[1,1] power(g, half)"""
    g = np.random.default_rng(0).lognormal(0, 9, 1000).astype(np.float32)
    roots = program("result = f32[1,1] sqrt(g)")
    for backend in BACKENDS.values():
        np.testing.assert_array_equal(backend(translate(program(body)), g, g), backend(translate(roots), g, g))


@pytest.mark.parametrize(
    ("element_type", "number", "expected"),
    [
        ("pred", "true", 1),
        ("s8", "-128", -128),
        ("s16", "-129", -129),
        ("s32", "16777219", 16777220),
        ("s64", str(-(2**40) - 2**17), -(2**40) - 2**17),
        ("u8", "255", 255),
        ("u16", "65535", 65535),
        ("u32", "4294967040", 4294967040),
        ("u64", str(2**64 - 2**40), 2**64 - 2**40),
        ("f16", "0.0999755859375", 0.0999755859375),
        ("bf16", "0.10009765625", 0.10009765625),
        ("f64", "1.1", np.float32(1.1)),
    ],
)
def test_constants_of_every_type(element_type: str, number: str, expected: float) -> None:
    body = f"""
      c = {element_type}[1,1] constant({number})
      g_of_type = {element_type}[1,1] convert(g)
      no = pred[1,1] compare(g, g), direction=LT
      chosen = {element_type}[1,1] select(no, g_of_type, c)
      result = f32[1,1] convert(chosen)"""
    for name, backend in BACKENDS.items():
        if name != "jax" or "64" not in element_type:
            assert backend(translate(program(body)), NUMBERS[:1], NUMBERS[:1]).tolist() == [expected]


@pytest.mark.parametrize("line", ["f32[1,1] constant(3)", "f32[1,1] copy(w)"])
def test_an_output_may_be_a_number_or_an_input(line: str) -> None:
    expected = W if "copy" in line else np.full_like(W, 3)
    for backend in BACKENDS.values():
        np.testing.assert_array_equal(backend(translate(program(f"result = {line}"))), expected)


CALLED = """
  halve {
    x = f32[1,1] parameter(0)
    two = f32[] constant(2)
    ROOT result = f32[1,1] divide(x, two)
  }
  both {
    b = f32[1,1] parameter(1)
    a = f32[1,1] parameter(0)
    ROOT pair = (f32[1,1], f32[1,1]) tuple(b, a)
  }
  swapped {
    pair = (f32[1,1], f32[1,1]) parameter(0)
    same = (f32[1,1], f32[1,1]) opt-barrier(pair)
    a = f32[1,1] get-tuple-element(same), index=0
    b = f32[1,1] get-tuple-element(same), index=1
    small = f32[1,1] map(a), to_apply=halve
    ROOT result = f32[1,1] subtract(b, small)
  }
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_computations_are_written_out(backend: str) -> None:
    body = """
      small = f32[1,1] call(g), to_apply=halve
      again = f32[1,1] fusion(small), kind=kLoop, calls=halve
      pair = (f32[1,1], f32[1,1]) fusion(again, w), kind=kLoop, calls=both
      result = f32[1,1] call(pair), to_apply=swapped"""
    g, w = NUMBERS[:17], NUMBERS[16::-1]
    np.testing.assert_array_equal(BACKENDS[backend](translate(program(body, CALLED)), g, w), g / 4 - w / 2)


def test_equal_programs_are_translated_once() -> None:
    first, second = (program("result = f32[1,1] add(g, w)") for _ in range(2))
    assert first is not second and translate(first) is translate(second)


# Programs with another number of inputs or outputs


def shaped(num_inputs: int, num_outputs: int) -> bytes:
    inputs = [f"i{k} = f32[1,1] parameter({k})" for k in range(num_inputs)] or ["i0 = f32[1,1] constant(1)"]
    types, operands = ", ".join(["f32[1,1]"] * num_outputs), ", ".join(["i0"] * num_outputs)
    return module("\n".join(["ENTRY main {", *inputs, f"outputs = ({types}) tuple({operands})", "}"]))


@pytest.mark.parametrize(("num_inputs", "num_outputs"), [(2, 1), (3, 1), (3, 2), (4, 2), (9, 8), (10, 8)])
def test_slots_are_counted(num_inputs: int, num_outputs: int) -> None:
    translated = translate(shaped(num_inputs, num_outputs))
    assert translated.num_slots == num_outputs - 1
    assert len(translated.rule(*"wgr", *range(translated.num_slots))) == num_outputs


@pytest.mark.parametrize(
    ("num_inputs", "num_outputs"), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 2), (3, 3), (4, 1), (5, 2)]
)
def test_wrong_numbers_of_inputs_and_outputs(num_inputs: int, num_outputs: int) -> None:
    message = (
        "^optimizer user_defined_program: User-defined TPU embedding optimizer program must have at least two inputs, "
        rf".*got {num_inputs} inputs and {num_outputs} outputs \(OptimizationParameters\.user_defined_program\)$"
    )
    with pytest.raises(ConfigError, match=message):
        translate(shaped(num_inputs, num_outputs))


def test_too_many_slots() -> None:
    with pytest.raises(ConfigError, match="program must have at most 7 slots, got 8"):
        translate(shaped(10, 9))


# Programs that are refused


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("r = f32[1,1] bitcast-convert(g, w)", r"'r': bitcast-convert of \(f32, f32\) to f32"),
        ("r = s8[1,1] bitcast-convert(g)", r"'r': bitcast-convert of \(f32\) to s8"),
        (
            "r = f32[1,1] reduce-precision(g), exponent_bits=0, mantissa_bits=3",
            "'r': a float has at least one exponent",
        ),
        ("r = f32[2,1] broadcast(g)", r"'r': shape f32\[2, 1\] is not supported, use f32 .* of one element"),
        ("r = f32[1,1,1] reshape(g)", r"'r': shape f32\[1, 1, 1\]"),
        (
            "r = c64[1,1] convert(g)",
            r"'r': shape c64\[1, 1\] is not supported, use f32 \(inside also pred, s8, .*, f64\)",
        ),
        ("r = f8e5m2[1,1] convert(g)", r"'r': shape f8e5m2\[1, 1\]"),
        ("r = s4[1,1] convert(g)", r"'r': shape s4\[1, 1\]"),
        ("r = f64[1,1] convert(g)", "output 0 of the program must be f32"),
        ("x = f32[4] parameter(2)\n r = f32[1,1] copy(g)", r"'x': shape f32\[4\]"),
        ("x = s32[] parameter(2)\n r = f32[1,1] copy(g)", r"'x': parameter of \(f32\) to s32"),
        ("x = f32[] parameter(3)\n r = f32[1,1] copy(g)", "'x': there is no argument 3"),
        ("r = pred[1,1] compare(g, w), direction=LT", "output 0 of the program must be f32"),
        ("r = f32[1,1] compare(g, w), direction=LT", r"'r': compare LT of \(f32, f32\) to f32"),
        ("r = pred[1,1] compare(g, w)", r"'r': compare  ?of \(f32, f32\) to pred"),
        ("i = s32[1,1] convert(g)\n r = s32[1,1] add(i, g)", r"'r': add of \(s32, f32\) to s32 is not supported"),
        ("i = s32[1,1] convert(g)\n r = s32[1,1] sine(i)", r"'r': sine of \(s32\) to s32"),
        ("i = u32[1,1] convert(g)\n r = u32[1,1] abs(i)", r"'r': abs of \(u32\) to u32"),
        (
            "i = s32[1,1] convert(g)\n r = pred[1,1] compare(i, i), direction=LT, type=TOTALORDER",
            "LT in total order of",
        ),
        ("r = s16[1,1] bitcast(g)", r"'r': bitcast of \(f32\) to s16"),
        ("r = f32[1,1] add(g)", r"'r': add of \(f32\) to f32"),
        ("r = f32[1,1] power()", r"'r': power of \(\) to f32"),
        ("t = (f32[1,1]) tuple(g)\n r = f32[1,1] add(t, g)", r"'r': add of \(tuple, f32\) to f32"),
        ("t = (f32[1,1]) tuple(g)\n r = f32[1,1] get-tuple-element(t), index=1", "'r': its operand has no element 1"),
        ("r = f32[1,1] get-tuple-element(g), index=0", "'r': its operand has no element 0"),
        ("r = f32[1,1] call(g)", "'r' calls no computation None"),
        ("t = (f32[1,1]) tuple(g)\n r = ((f32[1,1])) tuple(t)", "output 0 of the program must be f32"),
        ("t = (f32[1,1]) tuple(g)\n r = (f32[1,1], f32[1,1]) copy(t)", "2 outputs by its shape, and 1 in fact"),
    ],
)
def test_an_instruction_that_is_refused_is_named(body: str, text: str) -> None:
    extra = "x = f32[] parameter(2)\n" if "2 outputs" in text else ""
    with pytest.raises(ConfigError, match=rf"^optimizer user_defined_program: .*{text}.*\(OptimizationParameters\."):
        translate(program(extra + body))


def changed(change: Callable[[Any], Any]) -> bytes:
    """Returns a good program with a change."""
    message = HloModuleProto.FromString(program("two = f32[] constant(2)\n result = f32[1,1] multiply(g, two)"))
    change(message)
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m.Clear(), "the program has no entry computation 0"),
        (lambda m: setattr(m, "entry_computation_id", 9), "the program has no entry computation 9"),
        (lambda m: setattr(m.computations[0], "root_id", 9), "computation 'main' has no root 9"),
        (lambda m: m.computations[0].instructions[3].operand_ids.append(9), "instruction 'result' has no operand 9"),
        (
            lambda m: m.computations[0].instructions[2].ClearField("literal"),
            "'two': its literal must hold one f32, got 0",
        ),
        (lambda m: m.computations[0].instructions[2].literal.f32s.append(1), "its literal must hold one f32, got 2"),
        (lambda m: setattr(m.computations[0].instructions[3].shape, "element_type", 99), r"shape 99\[1, 1\]"),
        (lambda m: m.computations[0].instructions[3].shape.is_dynamic_dimension.append(True), "'result': shape f32"),
        (
            lambda m: (
                m.computations[0]
                .instructions[3]
                .MergeFrom(type(m.computations[0].instructions[3])(opcode="call", called_computation_ids=[1]))
            ),
            "computation 'main' calls itself",
        ),
    ],
)
def test_a_malformed_program_is_refused(change: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(ConfigError, match=f"^optimizer user_defined_program: .*{text}"):
        translate(changed(change))


@pytest.mark.parametrize("not_a_program", [b"\xff", "text", None])
def test_what_is_no_program_is_refused(not_a_program: Any) -> None:
    with pytest.raises(ConfigError, match=r"program must be a serialized xla\.HloModuleProto"):
        parse(not_a_program)
