"""Numba's compiled kernels on disk, kept only as long as all of their sources are what they were compiled from.

Numba compares a kernel with its own file alone. A kernel would go on with an old copy of a function, or of a memory
layout, that it takes from another file.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

STORED = ".step"
"""Ending of the files of `stored`."""


@cache
def digest_of(folder: Path) -> str:
    """Returns a digest of the sources in `folder` as they were when it was first asked for."""
    return blake2b(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))).hexdigest()


def drop_stale(folder: Path) -> None:
    """Removes the compiled kernels in `folder`/__pycache__ unless they belong to the sources in `folder`."""
    digest_of.cache_clear()
    digest = digest_of(folder)
    compiled = folder / "__pycache__"
    stamp = compiled / "sources"
    # A package folder that cannot be written holds no cache of ours: Numba then keeps it elsewhere, by full path.
    with suppress(OSError):
        if not stamp.exists() or stamp.read_text("utf-8") != digest:
            for kernel in (*compiled.glob("*.nb[ci]"), *compiled.glob("*" + STORED)):
                kernel.unlink(missing_ok=True)
            compiled.mkdir(exist_ok=True)
            stamp.write_text(digest, "utf-8")
