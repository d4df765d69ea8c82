"""The errors that anycore raises.

AnycoreError
├── ConfigError      a configuration cannot be used           (also a ValueError)
├── InputError       the arguments of one call cannot be used (also a ValueError)
├── CallOrderError   a call came before one that it needs     (also a RuntimeError)
│   └── CallTimeoutError   and that one did not come in time  (also a TimeoutError)
└── TransportError   another process is gone or silent        (also a ConnectionError)

A call that raises one of them has changed nothing; after a TransportError this process alone knows that.
"""

from __future__ import annotations


class AnycoreError(Exception):
    """Base of every error that anycore raises on purpose."""


class ConfigError(AnycoreError, ValueError):
    """A configuration is empty, malformed or inconsistent; the text names the table or feature and the proto field."""


class InputError(AnycoreError, ValueError):
    """An argument of a call is refused; the text names the feature or table, the position and the value."""


class CallOrderError(AnycoreError, RuntimeError):
    """A call came out of order; the text names the call that is missing."""


class CallTimeoutError(CallOrderError, TimeoutError):
    """A call waited in vain for the missing one."""


class TransportError(AnycoreError, ConnectionError):
    """Another process is gone or did not answer in time; the text names it."""
