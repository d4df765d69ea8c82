"""Compiled loops: arrays in, arrays out. They know no configuration and no classes, and run without the GIL."""

from pathlib import Path

from anycore.kernels.cache import drop_stale

drop_stale(Path(__file__).parent)
