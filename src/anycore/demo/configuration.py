"""The demo's tables and optimizers, as a TPU program would state them."""

from __future__ import annotations

from anycore.demo.hyper_parameters import BETA1, BETA2, DIMENSION, EPSILON, WEIGHT_DECAY
from anycore.proto import TPUEmbeddingConfiguration


def configuration(vocabulary_sizes: dict[str, int], batch_size: int) -> bytes:
    """Returns a serialized `TPUEmbeddingConfiguration`: for every name a table and its feature, one row a sample.

    All tables learn with Adam at the dynamic learning rate of tag 0.
    """
    message = TPUEmbeddingConfiguration(mode=TPUEmbeddingConfiguration.TRAINING, num_hosts=1, num_tensor_cores=1)
    for table_id, (name, vocabulary_size) in enumerate(vocabulary_sizes.items()):
        table = message.table_descriptor.add(name=name, vocabulary_size=vocabulary_size, dimension=DIMENSION)
        parameters = table.optimization_parameters
        parameters.learning_rate.dynamic.tag = 0
        parameters.weight_decay_factor = WEIGHT_DECAY
        parameters.multiply_weight_decay_factor_by_learning_rate = True
        parameters.adam.beta1 = BETA1
        parameters.adam.beta2 = BETA2
        parameters.adam.epsilon = EPSILON
        message.feature_descriptor.add(name=name, table_id=table_id, input_shape=[batch_size])
    return bytes(message.SerializeToString())
