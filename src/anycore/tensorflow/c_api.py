"""TensorFlow's C API for kernels, through ctypes: its functions, and what registration needs of them.

Source: tensorflow/c/c_api.h, kernels.h, ops.h, tf_tensor.h, tf_tstring.h, tf_status.h, tf_buffer.h, TensorFlow 2.21.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.op_def_pb2 import OpDef, OpList
from tensorflow.core.framework.resource_handle_pb2 import ResourceHandleProto


class _Buffer(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("length", c_size_t), ("data_deallocator", c_void_p)]


Prototypes = dict[str, tuple[Any, list[Any]]]
"""Types of result and arguments of functions, by name."""

_PROTOTYPES: Prototypes = {
    "TF_AllocateOutput": (c_void_p, [c_void_p, c_int, c_int, POINTER(c_int64), c_int, c_size_t, c_void_p]),
    "TF_DeleteBuffer": (None, [POINTER(_Buffer)]),
    "TF_DeleteStatus": (None, [c_void_p]),
    "TF_DeleteTensor": (None, [c_void_p]),
    "TF_Dim": (c_int64, [c_void_p, c_int]),
    "TF_GetAllOpList": (POINTER(_Buffer), []),
    "TF_GetCode": (c_int, [c_void_p]),
    "TF_GetDeviceId": (c_int, [c_void_p]),
    "TF_GetInput": (None, [c_void_p, c_int, POINTER(c_void_p), c_void_p]),
    "TF_GetSerializedResourceHandleProto": (None, [c_void_p, c_int, POINTER(_Buffer), c_void_p]),
    "TF_Message": (c_char_p, [c_void_p]),
    "TF_NewBuffer": (POINTER(_Buffer), []),
    "TF_NewKernelBuilder": (c_void_p, [c_char_p, c_char_p, c_void_p, c_void_p, c_void_p]),
    "TF_NewStatus": (c_void_p, []),
    "TF_NumDims": (c_int, [c_void_p]),
    "TF_OpKernelConstruction_Failure": (None, [c_void_p, c_void_p]),
    "TF_OpKernelConstruction_GetNodeDef": (POINTER(_Buffer), [c_void_p, c_void_p]),
    "TF_OpKernelContext_Failure": (None, [c_void_p, c_void_p]),
    "TF_RegisterKernelBuilder": (None, [c_char_p, c_void_p, c_void_p]),
    "TF_SetStatus": (None, [c_void_p, c_int, c_char_p]),
    "TF_StringCopy": (None, [c_void_p, c_char_p, c_size_t]),
    "TF_StringGetDataPointer": (c_void_p, [c_void_p]),
    "TF_StringGetSize": (c_size_t, [c_void_p]),
    "TF_TensorData": (c_void_p, [c_void_p]),
}


def libraries(kind: type[ctypes.CDLL]) -> list[ctypes.CDLL]:
    """Returns TensorFlow's libraries; `kind` says what calls do with the interpreter's lock."""
    paths = sorted(Path(tf.sysconfig.get_lib()).glob("libtensorflow_*"), reverse=True)
    return [kind(str(path)) for path in paths]


def bound(prototypes: Prototypes, libraries: Sequence[ctypes.CDLL], version: str) -> SimpleNamespace:
    """Returns functions by name; pointers are integers to them, and null pointers None.

    Raises: ImportError that names TensorFlow's version when one is missing.
    """
    functions = SimpleNamespace()
    for name, (result, arguments) in prototypes.items():
        function = next((getattr(library, name) for library in libraries if hasattr(library, name)), None)
        if function is None:
            raise ImportError(
                f"TensorFlow {version} has no {name} in its C API, without which anycore cannot give its operations "
                "kernels; use TensorFlow 2.21"
            )
        function.restype, function.argtypes = result, arguments
        setattr(functions, name, function)
    return functions


# PyDLL keeps the interpreter's lock: giving it up and getting it back takes longer than most of these calls.
C = bound(_PROTOTYPES, libraries(ctypes.PyDLL), tf.__version__)


class Status:
    """A `TF_Status` for the time of a with block."""

    def __enter__(self) -> Status:
        self.pointer: int = C.TF_NewStatus()
        return self

    def __exit__(self, *_: object) -> None:
        C.TF_DeleteStatus(self.pointer)

    def set(self, code: int, message: str) -> None:
        """Gives it a code of tf.errors and a message."""
        C.TF_SetStatus(self.pointer, code, message.replace("\0", "\\0").encode(errors="backslashreplace"))

    def check(self) -> None:
        """Raises: tf.errors.OpError of its code, if that is not OK."""
        code = C.TF_GetCode(self.pointer)
        if code:
            message = C.TF_Message(self.pointer).decode(errors="backslashreplace")
            raise tf.compat.v1.errors.exception_type_from_error_code(code)(None, None, message)


def operations() -> Iterable[OpDef]:
    """Returns the definitions of all operations that TensorFlow has."""
    return OpList.FromString(_content(C.TF_GetAllOpList())).op


def node_of(construction: int) -> Any:
    """Returns the NodeDef message of the node that a kernel is constructed for."""
    with Status() as status:
        buffer = C.TF_OpKernelConstruction_GetNodeDef(construction, status.pointer)
        status.check()
    return tf.compat.v1.NodeDef.FromString(_content(buffer))


def resource_handle(context: int, index: int, status: Status) -> Any:
    """Returns the ResourceHandleProto message of an input of a running kernel."""
    buffer = C.TF_NewBuffer()
    C.TF_GetSerializedResourceHandleProto(context, index, buffer, status.pointer)
    message = ResourceHandleProto.FromString(_content(buffer))
    status.check()
    return message


def register_kernel(operation: str, create: int, compute: int) -> None:
    """Registers a CPU kernel: `create` is run for each node, its result is an argument of `compute`.

    Both are addresses of functions that stay. Raises: tf.errors.OpError with TensorFlow's reason.
    """
    name = operation.encode()
    builder = C.TF_NewKernelBuilder(name, b"CPU", create, compute, None)
    with Status() as status:
        C.TF_RegisterKernelBuilder(name, builder, status.pointer)
        status.check()


def _content(buffer: Any) -> bytes:
    """Returns what a buffer holds, and deletes it."""
    try:
        return ctypes.string_at(buffer.contents.data, buffer.contents.length)
    finally:
        C.TF_DeleteBuffer(buffer)
