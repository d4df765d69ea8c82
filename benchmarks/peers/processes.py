"""Every measurement in a process of its own, bound to as many processors as it may have threads.

Some libraries take their number of threads from the processors alone, and only when they are imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


class ChildError(Exception):
    """A measurement's process failed."""


def in_child(
    function: Callable[..., Any], num_threads: int, environment: dict[str, str] | None = None, **arguments: Any
) -> Any:
    """Returns what function(num_threads, **arguments) of a module returns in a new process; all goes through JSON.

    Raises: ChildError with the end of what the process wrote, when it fails.
    """
    place = f"{function.__module__}:{function.__name__}"
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, "-m", "peers.processes", place, str(num_threads), json.dumps(arguments), str(result)]
        threads = {name: str(num_threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "ANYCORE_NUM_THREADS")}
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
        child = subprocess.run(
            command,
            env={**os.environ, **threads, **quiet, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if child.returncode or not result.exists():
            raise ChildError(f"{place} {arguments}: exit status {child.returncode}\n{child.stdout[-3000:]}")
        return json.loads(result.read_text("utf-8"))


def _main() -> None:
    place, num_threads, arguments, result = sys.argv[1:]
    processors = sorted(os.sched_getaffinity(0))[: int(num_threads)]
    os.sched_setaffinity(0, processors)
    module, name = place.split(":")
    found = getattr(import_module(module), name)(int(num_threads), **json.loads(arguments))
    Path(result).write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    _main()
