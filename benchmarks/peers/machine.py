"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from anycore import __version__

_PACKAGES = ("numpy", "numba", "fbgemm-gpu-cpu", "torch", "tensorflow-cpu", "jax", "optax")
_CPU = Path("/sys/devices/system/cpu/cpu0/cache")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def describe_machine() -> dict[str, str]:
    """Returns processor, caches, memory and versions, in words."""
    info = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    caches = [f"L{_text(index / 'level')} {_text(index / 'size')}" for index in sorted(_CPU.glob("index[23]"))]
    return {
        "processor": f"{len(os.sched_getaffinity(0))} cores of {model}",
        "caches": ", ".join(caches),
        "memory": f"{memory / 2**30:.0f} GiB",
        "huge pages": _text(_HUGE_PAGES) if _HUGE_PAGES.exists() else "none",
        "system": f"{platform.system()} {platform.release().split('-')[0]}, Python {platform.python_version()}",
        "versions": ", ".join([f"anycore {__version__}", *(f"{name} {version(name)}" for name in _PACKAGES)]),
    }


def _text(path: Path) -> str:
    return path.read_text("utf-8").strip()
