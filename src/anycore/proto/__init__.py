"""The wire messages, in a descriptor pool of their own.

A descriptor pool holds a message name once. TensorFlow registers the same names in the default pool, so ours live in a
private one and both packages can be imported, in either order; messages of the two travel between them as bytes.

The classes are made at run time from `descriptors`, so there is nothing a type checker could know of their fields: they
are `Any`.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pool, message_factory, wrappers_pb2

from anycore.proto.descriptors import FILES

_pool = descriptor_pool.DescriptorPool()
for _file in (wrappers_pb2.DESCRIPTOR.serialized_pb, *FILES):
    _pool.AddSerializedFile(_file)


def message_class(full_name: str) -> Any:
    """Returns the message class of a name with its package, such as `tensorflow.tpu.AdagradParameters`.

    Raises:
        KeyError: no message has that name.
    """
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(full_name))


TPUEmbeddingConfiguration: Any = message_class("tensorflow.tpu.TPUEmbeddingConfiguration")
OptimizationParameters: Any = message_class("tensorflow.tpu.OptimizationParameters")
GradientAccumulationStatus: Any = message_class("tensorflow.tpu.GradientAccumulationStatus")
HotIdReplicationConfiguration: Any = message_class("tensorflow.tpu.HotIdReplicationConfiguration")
LowDimensionalPackingStatus: Any = message_class("tensorflow.tpu.LowDimensionalPackingStatus")
StateVariableSpecification: Any = message_class("tensorflow.tpu.StateVariableSpecification")
HloModuleProto: Any = message_class("xla.HloModuleProto")
TopologyProto: Any = message_class("tensorflow.tpu.TopologyProto")
TensorProto: Any = message_class("tensorflow.TensorProto")
