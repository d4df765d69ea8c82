"""Numba's compiled kernels on disk, kept only as long as all of their sources are what they were compiled from.

Numba compares a kernel with its own file alone. A kernel would go on with an old copy of a function, or of a memory
layout, that it takes from another file.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from pathlib import Path


def drop_stale(folder: Path) -> None:
    """Removes the compiled kernels in `folder`/__pycache__ unless they belong to the sources in `folder`."""
    digest = blake2b(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))).hexdigest()
    cache = folder / "__pycache__"
    stamp = cache / "sources"
    # A package folder that cannot be written holds no cache of ours: Numba then keeps it elsewhere, by full path.
    with suppress(OSError):
        if not stamp.exists() or stamp.read_text("utf-8") != digest:
            for compiled in cache.glob("*.nb[ci]"):
                compiled.unlink(missing_ok=True)
            cache.mkdir(exist_ok=True)
            stamp.write_text(digest, "utf-8")
