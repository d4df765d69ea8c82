"""The layout of a table in memory, as kernels see it.

A table is one block of records, one record a row: `[parameters | slot | slot …]`, each `dimension` float32 wide. A row
then costs one stream and one page, whatever the optimizer. Kernels get all tables as one int64[T, 4] array whose
columns are named here.
"""

from __future__ import annotations

ADDRESS = 0
"""Of the first record."""
STRIDE = 1
"""Bytes from one record to the next."""
DIMENSION = 2
ROWS = 3
COLUMNS = 4
