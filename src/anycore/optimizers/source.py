"""Functions that are written at run time; tracebacks and compilers find their source."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Sequence
from types import FunctionType
from typing import Any


def define(name: str, arguments: Sequence[str], lines: Sequence[str], namespace: dict[str, Any]) -> FunctionType:
    """Returns the function `name(*arguments)` of those lines; `namespace` becomes its globals."""
    source = "\n    ".join([f"def {name}({', '.join(arguments)}):", *lines]) + "\n"
    # Equal sources share an entry, and the cache keeps one that has no time of modification.
    file = f"<{name} {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace.setdefault("__name__", __name__)
    exec(compile(source, file, "exec"), namespace)
    return namespace[name]
