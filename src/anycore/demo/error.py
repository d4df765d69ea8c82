"""The error of the demo."""

from __future__ import annotations

from anycore.errors import AnycoreError


class DemoError(AnycoreError):
    """The demo cannot run here; the text says what is missing and what to do."""
