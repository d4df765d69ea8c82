"""What three processes of `transport_program` must have got."""

from __future__ import annotations

import json
from pathlib import Path

from launched import ROOT
from transport_program import LENGTHS, ROUNDS

PROGRAM = ROOT / "tests" / "transport_program.py"
SIZE = 3


def check_all_got_everything(folder: Path) -> None:
    """Reads what the processes wrote."""
    for rank in range(SIZE):
        found = json.loads((folder / f"{rank}.json").read_text())
        lengths = [LENGTHS[(rank - other) % SIZE] for other in range(SIZE)]
        values = [[10 * other + rank] if length else [] for other, length in enumerate(lengths)]
        assert found["exchanged"] == {
            "arrays": [list(pair) for pair in zip(lengths, values, strict=True)],
            "bytes": [8 * sum(LENGTHS[1:])] * 2,
        }
        assert found["gathered"] == ["", "x", "xx"]
        assert found["on channels"] == [SIZE * ROUNDS] * 2
        assert found["among some"] == (None if rank == 1 else [rank // 2, 2, [0, 2]])
