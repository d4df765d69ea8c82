"""Compiled loops: arrays in, arrays out. They know no configuration and no classes, and run without the GIL."""
