"""What the numbers were measured on, and how much memory it took."""

from __future__ import annotations

import os
import platform
import time
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


def process_memory(field: str) -> int:
    """Returns bytes that the kernel counts for this process: VmRSS now, VmHWM at most.

    Unlike those of `getrusage` they are of the program as it is now, not of who started it.
    """
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


class Neighbours:
    """How busy others keep the machine from now on; OpenMP's spinning threads suffer most from it."""

    def __init__(self) -> None:
        self._busy, self._all = _ticks()
        self._own = time.process_time()

    def share(self) -> float:
        """Returns the share of all processors' time that did not idle and was not this process's."""
        busy, everything = _ticks()
        own = (time.process_time() - self._own) * os.sysconf("SC_CLK_TCK")
        return max(0.0, (busy - self._busy - own) / max(1, everything - self._all))


def _ticks() -> tuple[int, int]:
    """Returns the ticks in which processors were busy, for the host of a virtual machine too, and all ticks."""
    # user, nice, system, idle, iowait, irq, softirq, steal
    numbers = [int(text) for text in Path("/proc/stat").read_text("utf-8").split("\n", 1)[0].split()[1:9]]
    return sum(numbers) - numbers[3] - numbers[4], sum(numbers)
