"""Two tables and three features for tests of `TPUEmbedding`, and steps over them.

The tables, ids and activations are those of TensorFlow's own TPU embedding tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from anycore.tensorflow.embedding import TPUEmbedding

embedding: Any = tf.tpu.experimental.embedding

VIDEO = np.arange(32, dtype=np.float32).reshape(8, 4)
USER = np.arange(32, dtype=np.float32).reshape(16, 2)

ROWS: dict[str, list[list[int]]] = {
    "watched": [[0], [0, 1]],
    "favorited": [[0, 1], [1]],
    "friends": [[3], [0, 1, 2]],
}
ACTIVATIONS = {
    "watched": [[0, 1, 2, 3], [4, 6, 8, 10]],
    "favorited": [[4, 6, 8, 10], [4, 5, 6, 7]],
    "friends": [[6, 7], [2, 3]],
}


def counting(shape: Any, dtype: Any = tf.float32) -> tf.Tensor:
    """An initializer: 0, 1, 2, … row by row."""
    return tf.reshape(tf.range(np.prod(shape), dtype=dtype), shape)


def feature_config(**table_options: Any) -> dict[str, Any]:
    """Returns features on new tables, `video` that is summed and `user` that is averaged."""
    options = {"initializer": counting, **table_options}
    video = embedding.TableConfig(8, 4, combiner="sum", name="video", **options)
    user = embedding.TableConfig(16, 2, combiner="mean", name="user", **options)
    return {
        "watched": embedding.FeatureConfig(video, name="watched"),
        "favorited": embedding.FeatureConfig(video, name="favorited"),
        "friends": embedding.FeatureConfig(user, name="friends"),
    }


def sparse(rows: list[list[Any]], dtype: Any = tf.int64) -> tf.SparseTensor:
    """Returns the rows as a SparseTensor."""
    return tf.ragged.constant(rows, dtype=dtype, ragged_rank=1).to_sparse()


def ragged(rows: list[list[Any]], dtype: Any = tf.int64) -> tf.RaggedTensor:
    """Returns the rows as a RaggedTensor."""
    return tf.ragged.constant(rows, dtype=dtype, ragged_rank=1)


def features(kind: Any = sparse) -> dict[str, Any]:
    """Returns ROWS as tensors of a kind."""
    return {name: kind(rows) for name, rows in ROWS.items()}


def train_step(tables: TPUEmbedding, inputs: Any, weights: Any = None) -> Any:
    """Trains on the mean over the batch of the summed squares, and returns the activations."""
    tables.enqueue(inputs, weights)
    with tf.GradientTape() as tape:
        activations = tables.dequeue()
        tape.watch(activations)
        loss = tf.add_n([tf.reduce_sum(each**2) / each.shape[0] for each in tf.nest.flatten(activations)])
    tables.apply_gradients(tape.gradient(loss, activations))
    return activations


def gradients_of_tables(activations: dict[str, Any]) -> dict[str, np.ndarray]:
    """Returns what `train_step` sends to each table for ROWS, summed per row; NaN in rows that no id touches."""
    gradients = {"video": np.zeros((8, 4)), "user": np.zeros((16, 2))}
    touched = {name: np.zeros(len(gradient), bool) for name, gradient in gradients.items()}
    for feature, rows in ROWS.items():
        table = "user" if feature == "friends" else "video"
        for ids, activation in zip(rows, np.asarray(activations[feature], float), strict=True):
            for row in ids:
                gradients[table][row] += 2 * activation / len(rows) / (len(ids) if table == "user" else 1)
                touched[table][row] = True
    for name, gradient in gradients.items():
        gradient[~touched[name]] = np.nan
    return gradients


def parameters(tables: Any) -> dict[str, np.ndarray]:
    """Returns the tables' parameters by the name of the table."""
    return {table.name: variable.numpy() for table, variable in tables.embedding_tables.items()}


def one_feature(combiner: str = "sum", **options: Any) -> TPUEmbedding:
    """Returns tables of one feature, on a table of 8 rows of which row i is [2i, 2i + 1]."""
    table = embedding.TableConfig(8, 2, counting, combiner=combiner, name="video")
    return TPUEmbedding(embedding.FeatureConfig(table, **options), embedding.SGD(0.1))


def looked_up(tables: TPUEmbedding, inputs: Any, weights: Any = None) -> Any:
    """Returns the activations of a step that does not train."""
    tables.enqueue(inputs, weights, training=False)
    return tables.dequeue()


def served(tables: TPUEmbedding, inputs: Any, weights: Any = None) -> Any:
    """Returns what TensorFlow's own lookup on CPUs answers."""
    return embedding.serving_embedding_lookup(inputs, weights, tables.embedding_tables, tables._feature_config)
