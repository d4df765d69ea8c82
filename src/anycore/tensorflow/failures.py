"""Python's exceptions as TensorFlow's errors."""

from __future__ import annotations

import logging
import traceback

import tensorflow as tf

from anycore.errors import CallOrderError, CallTimeoutError, ConfigError, InputError

_log = logging.getLogger("anycore")

_CODES: dict[type[BaseException], int] = {
    InputError: tf.errors.INVALID_ARGUMENT,
    ConfigError: tf.errors.INVALID_ARGUMENT,
    CallTimeoutError: tf.errors.DEADLINE_EXCEEDED,
    CallOrderError: tf.errors.FAILED_PRECONDITION,
    NotImplementedError: tf.errors.UNIMPLEMENTED,
    MemoryError: tf.errors.RESOURCE_EXHAUSTED,
    KeyboardInterrupt: tf.errors.CANCELLED,
}


def status_of(error: BaseException) -> tuple[int, str]:
    """Returns the code and the message with which an operation fails.

    What nobody raises on purpose is INTERNAL, and its traceback goes to the log.
    """
    if isinstance(error, tf.errors.OpError):
        return error.error_code, error.message
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
    last_line = traceback.format_exception_only(error)[-1].strip()
    if code is not None:
        return code, str(error) or last_line
    _log.error("an operation failed: %s", last_line, exc_info=error)
    return tf.errors.INTERNAL, last_line
