"""The layer that both public ones are: a nest of ids in, a nest of activations out, tables trained on the way back."""

from __future__ import annotations

import importlib
from typing import Any
from urllib.parse import quote

import keras

from anycore.engine import EmbeddingEngine
from anycore.errors import ConfigError, InputError
from anycore.keras.host import Call, Host
from anycore.keras.host_variable import HostVariable
from anycore.keras.inputs import Tensors
from anycore.keras.layer_config import LayerConfig, as_lists
from anycore.keras.rates import tags_of_tables

_BACKENDS = ("jax", "tensorflow", "torch")


class EmbeddingLayer(keras.layers.Layer):
    """Looks up ids, and updates the tables in the backward pass of a call with `training`.

    Keras differentiates by trainable variables alone, and a table is none: the model's optimizer would make dense
    gradients and slots for it. So the layer owns one trainable scalar, its anchor, which for all that a framework can
    see the activations depend on. Computing the gradient of the anchor updates the tables. That gradient is 0, and so
    is the anchor, always.
    """

    def __init__(self, layer_config: LayerConfig, seed: int, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        backend = keras.backend.backend()
        if backend not in _BACKENDS:
            raise ConfigError(f"the layer runs on Keras' backends {', '.join(_BACKENDS)}, not on {backend}")
        self._hooks = importlib.import_module(f"anycore.keras.{backend}_backend")
        self.supports_jit = self._hooks.SUPPORTS_JIT
        self._layer_config = layer_config
        self._seed = seed
        self._host: Host | None = None
        self._host_variables: list[HostVariable] = []
        self.anchor = self._number("anchor", 0, trainable=layer_config.config.trains)
        self._rates = {
            tag: self._number(f"learning_rate_{tag}", rate.value, trainable=False)
            for tag, rate in enumerate(layer_config.rates)
            if rate.is_number
        }

    def _number(self, name: str, value: Any, *, trainable: bool) -> Any:
        start = keras.initializers.Constant(value)
        return self.add_weight((), start, "float32", trainable=trainable, autocast=False, name=name)

    @property
    def engine(self) -> EmbeddingEngine:
        """The engine that holds the tables, once every step that has begun is done; the layer's."""
        return self._built_host().settled_engine()

    @property
    def updates(self) -> int:
        """The number of updates of the tables so far."""
        return self._built_host().updates()

    @property
    def weights(self) -> list[Any]:
        """The layer's Keras variables, then the state variables of the tables and the number of updates."""
        return [*super().weights, *self._host_variables]

    def learning_rate(self, tag_or_table: int | str) -> Any:
        """Returns the Keras variable that holds a learning rate, for callbacks to `assign`; it acts on the next step.

        `tag_or_table` is the tag of a dynamic input or the name of a table. A callback that assigns between the batches
        of an epoch must reach the layer by its `self.model`: on JAX Keras keeps variables elsewhere meanwhile, and
        looks for what has changed when `self.model` is used.

        Raises: ConfigError when there is no such rate, or when it is a schedule or a function.
        """
        tags = tags_of_tables(self._layer_config.config)
        tag = tags.get(tag_or_table, tag_or_table)
        if tag not in self._rates:
            raise ConfigError(
                f"layer {self.name!r} has no learning rate {tag_or_table!r} to set: its tables have the tags {tags}, "
                f"of which {list(self._rates)} are numbers"
            )
        return self._rates[tag]

    def build(self, inputs_shape: Any = None) -> None:
        """Makes the engine and fills its tables, whatever the shape, for batches may have any size."""
        del inputs_shape
        if self._host is not None:
            return
        if keras.distribution.distribution() is not None:
            raise ConfigError("the tables are on one device, and take no keras.distribution.Distribution")
        with self._hooks.eagerly():
            self._host = Host(self._layer_config, self._seed, self._hooks.wait)
        self._host_variables = self._host.variables()
        self.built = True

    def _built_host(self) -> Host:
        self.build()
        assert self._host is not None
        return self._host

    def call(self, inputs: Any, weights: Any = None, training: bool | None = None) -> Any:
        """Returns the activations, [batch, …, dimension] each, in the nest of the features.

        `inputs` holds integer ids in the same nest, and `weights`, if given, the weight of each id, or None. With
        `training` False nobody's gradients update the tables.
        """
        tensors = [self._hooks.tensors(*pair) for pair in self._pairs(inputs, weights)]
        arrays = [array for each in tensors for array in each.arrays]
        call = Call(self._built_host(), self._layer_config.forms(tensors))
        anchor = keras.ops.convert_to_tensor(self.anchor)
        updates, *activations = self._hooks.look_up(call, anchor, arrays)
        if training is not False and self.trainable and self._layer_config.config.trains:
            if self.compute_dtype == "float16":
                raise ConfigError("Keras scales the loss for float16, and gradients with it: use mixed_bfloat16")
            rates = [rate.before(updates, self._rates.get(tag)) for tag, rate in enumerate(self._layer_config.rates)]
            vector = keras.ops.concatenate([keras.ops.reshape(keras.ops.cast(x, "float32"), (1,)) for x in rates])
            activations = self._hooks.train(call, anchor, updates, vector, arrays, activations)
        return self._nest([keras.ops.cast(activation, self.compute_dtype) for activation in activations])

    def compute_output_spec(self, inputs: Any, weights: Any = None, training: bool = False) -> Any:
        """Returns what `call` makes of symbolic tensors."""
        del training
        forms = self._layer_config.forms([Tensors.of_symbols(*pair) for pair in self._pairs(inputs, weights)])
        return self._nest([keras.KerasTensor(form.activation_shape, self.compute_dtype) for form in forms])

    def compute_output_shape(self, inputs_shape: Any) -> Any:
        """Returns the shapes of the activations of dense ids of these shapes."""
        structure = self._layer_config.structure
        shapes: dict[int, Any] = {}
        keras.tree.map_structure_up_to(structure, shapes.__setitem__, structure, inputs_shape)
        forms = self._layer_config.forms([Tensors("dense", tuple(shapes[i]), [], None) for i in range(len(shapes))])
        return self._nest([form.activation_shape for form in forms])

    def _pairs(self, inputs: Any, weights: Any) -> list[tuple[Any, Any]]:
        """Returns ids and weights by feature. Raises: InputError for another nest than that of the features."""
        ids = self._flat("inputs", inputs)
        return list(zip(ids, [None] * len(ids) if weights is None else self._flat("weights", weights), strict=True))

    def _flat(self, name: str, nest: Any) -> list[Any]:
        structure = self._layer_config.structure
        try:
            keras.tree.assert_same_structure(as_lists(structure), as_lists(nest))
        except ValueError as error:
            raise InputError(f"layer {self.name!r}: {name} must be nested as its features are: {error}") from error
        by_position = dict(zip(keras.tree.flatten(structure), keras.tree.flatten(nest), strict=True))
        return [by_position[position] for position in range(len(by_position))]

    def _nest(self, values: list[Any]) -> Any:
        return keras.tree.map_structure(values.__getitem__, self._layer_config.structure)

    def get_config(self) -> dict[str, Any]:
        """Returns all that makes such a layer again: tables, features, their nest, optimizers and learning rates."""
        return {**super().get_config(), "layer_config": self._layer_config.to_json(), "seed": self._seed}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Returns a new layer as `get_config` describes it."""
        options = {name: value for name, value in config.items() if name != "layer_config"}
        return cls(LayerConfig.from_json(config["layer_config"]), **options)

    def save_own_variables(self, store: Any) -> None:
        """Writes tables, slots, learning rates and the number of updates into the weights of a saved model."""
        for name, variable in self._saved().items():
            store[name] = keras.ops.convert_to_numpy(variable)

    def load_own_variables(self, store: Any) -> None:
        """Reads what `save_own_variables` wrote. Raises: ConfigError when the state variables are others."""
        saved = self._saved()
        if set(store.keys()) != saved.keys():
            raise ConfigError(f"layer {self.name!r} has the variables {list(saved)}, got {list(store.keys())}")
        for name, variable in saved.items():
            variable.assign(store[name])

    def _saved(self) -> dict[str, Any]:
        self._built_host()
        rates = {f"learning_rate_{tag}": rate for tag, rate in self._rates.items()}
        # A slash would be a folder in the file.
        return {**rates, **{quote(variable.path, safe=""): variable for variable in self._host_variables}}
