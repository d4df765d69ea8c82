"""The JSON file of results: each measurement is stored as soon as it is made, runs merge."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any


class Results:
    """A file of {section: {key: result}}; a new result replaces the one of the same key."""

    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        """`run` is added to every result: machine, settings."""
        self._path = path
        self._run = run

    def store(self, section: str, key: str, result: dict[str, Any]) -> None:
        """Adds a result to the file, with the date."""
        known = json.loads(self._path.read_text("utf-8")) if self._path.exists() else {}
        date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
        known.setdefault(section, {})[key] = {"date": date, **self._run, **result}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
        new.replace(self._path)
