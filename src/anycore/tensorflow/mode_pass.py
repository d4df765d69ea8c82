"""Which calls of a function train: those that gradients are sent for.

On a TPU a pass over a whole graph finds the operations of one call by their common name, and sets the mode of the
enqueue operation. Here the mode is an input of the function, which is answered when the outermost function is called.
By then that one is whole, and a nested function that several use gets the answer of each.

Source: `_tpu_embedding_layer` in tf.tpu.experimental.embedding.TPUEmbedding, TensorFlow 2.21.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, reduce
from operator import add, or_
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model.save_context import in_save_context

_CALL = "_tpu_embedding_layer"
_ENQUEUE, _SEND = "EnqueueTPUEmbeddingArbitraryTensorBatch", "SendTPUEmbeddingGradients"


def mark(operation: tf.Operation, name: str) -> None:
    """Says in a graph that an operation belongs to the call `name`."""
    operation._set_attr(_CALL, tf.compat.v1.AttrValue(s=name.encode()))


def mode_of_call(name: str, otherwise: str) -> tf.Tensor | None:
    """Returns the mode with which the function that is traced now enqueues for the call `name`.

    It is 'train' if the outermost function that runs sends gradients for that call, else 'inference'. It is `otherwise`
    in a function that is saved and loaded. Outside a function there is none.

    Raises: ValueError, when the outermost function is called, for a second enqueue operation of one call and core.
    """
    function = _function()
    if function is None:
        return None
    with tf.init_scope():
        when_saved = tf.constant(otherwise)
    with function.as_default(), tf.control_dependencies(None):
        function.capture(when_saved)  # a saved function finds its inputs among the constants that it captures
        return _input(function, name, when_saved)


def _function() -> Any:
    """Returns the graph of the function that is traced now, whose branches and loops have graphs of their own."""
    graph: Any = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    while getattr(graph, "is_control_flow_graph", False):
        graph = graph.outer_graph
    return graph if isinstance(graph, tf.__internal__.FuncGraph) else None


def _input(function: Any, name: str, when_saved: tf.Tensor) -> tf.Tensor:
    key, captures = (_CALL, name), function.function_captures
    if key not in captures.by_ref_internal:
        function.capture_call_time_value(lambda: None, tf.TensorSpec([], tf.string), key)
        # The value of TensorFlow's own making would be the same for all that call this function.
        captures.by_ref_external[key] = _Mode(function, name, when_saved)
    return captures.by_ref_internal[key]


class _Mode:
    """What a function gets as its input when it is called."""

    def __init__(self, function: Any, name: str, when_saved: tf.Tensor) -> None:
        self._function = function
        self._name = name
        self._when_saved = when_saved
        self._mode: tf.Tensor | None = None

    def __call__(self) -> tf.Tensor:
        outer = _function()
        if outer is not None:
            return _input(outer, self._name, self._when_saved)
        if in_save_context():
            return self._when_saved
        if self._mode is None:
            with tf.init_scope():
                self._mode = tf.constant(_mode(self._function.as_graph_def(), self._name))
        return self._mode


def _mode(graph: Any, name: str) -> str:
    counts = _operations(graph, name)
    for (operation, core), count in counts.items():
        if operation == _ENQUEUE and count > 1:
            raise ValueError(
                f"Found second enqueue op for call {name!r} on core {core}; give each step of a function another name"
            )
    return "train" if any(operation == _SEND for operation, _ in counts) else "inference"


def _operations(graph: Any, name: str) -> Counter[tuple[str, int]]:
    """Returns how often a graph, with the functions that it calls, has each operation of a call for each core."""
    library = {function.signature.name: function.node_def for function in graph.library.function}

    @cache
    def of_function(function: str) -> Counter[tuple[str, int]]:
        return of_nodes(library.get(function, ()))

    def of_nodes(nodes: Iterable[Any]) -> Counter[tuple[str, int]]:
        return reduce(add, map(of_node, nodes), Counter())

    def of_node(node: Any) -> Counter[tuple[str, int]]:
        if node.op in (_ENQUEUE, _SEND) and node.attr[_CALL].s == name.encode():
            return Counter([(node.op, node.attr["device_ordinal"].i)])
        # Of several functions, one node calls one: they are its branches.
        return reduce(or_, map(of_function, _functions(node)), Counter())

    return of_nodes(graph.node)


def _functions(node: Any) -> Iterator[str]:
    for value in node.attr.values():
        for function in (value.func, *value.list.func):
            if function.name:
                yield function.name
