"""The file of results."""

from __future__ import annotations

import json
import re
from pathlib import Path

from peers.results import Results


def test_runs_merge_and_replace_what_they_measure_again(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "peers.json"
    first = Results(path, {"machine": "old"})
    first.store("steps", "one", {"step": 1})
    first.store("steps", "two", {"step": 2})
    Results(path, {"machine": "new"}).store("steps", "two", {"step": 3})
    Results(path, {"machine": "new"}).store("memory", "one", {"peak": 4})
    stored = json.loads(path.read_text("utf-8"))
    dates = {result.pop("date") for section in stored.values() for result in section.values()}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in dates)
    assert stored == {
        "steps": {"one": {"machine": "old", "step": 1}, "two": {"machine": "new", "step": 3}},
        "memory": {"one": {"machine": "new", "peak": 4}},
    }
    assert [file.name for file in path.parent.iterdir()] == ["peers.json"]
