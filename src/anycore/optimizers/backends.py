"""The words of a rule in each array library, and the update of a library's own arrays.

A library is found by the type of the arrays, and only if the caller has imported it.
"""

from __future__ import annotations

from typing import Any

from anycore.optimizers import vocabulary

NUMPY: dict[str, Any] = {word: getattr(vocabulary, word) for word in vocabulary.__all__}
