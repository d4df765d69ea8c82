"""The one scenario through Keras, in a process of its own that has one backend: `python one_scenario_keras.py FILE`."""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np
from engines import state
from one_scenario import BATCH, CONFIG, LENGTH, RATE, SEED, Bag, dense_start, losses, outcome, steps

from anycore.keras import TPUEmbedding


class Dense(keras.layers.Layer):
    """The dense part: its losses, one after another."""

    def build(self, *_: Any) -> None:
        """Makes the parameters."""
        self.parameters = {
            name: self.add_weight(values.shape, lambda shape, dtype, start=values: keras.ops.convert_to_tensor(start))
            for name, values in dense_start().items()
        }

    def call(self, activations: Any, targets: Any) -> Any:
        """Returns [batch, losses of a sample]."""
        parts = losses(self.parameters, activations, targets)
        return keras.ops.concatenate([keras.ops.reshape(part, (BATCH, -1)) for part in parts], axis=1)


class Rates(keras.callbacks.Callback):
    """Sets the rate of the table 'people' before each step."""

    def __init__(self, rates: list[float]) -> None:
        super().__init__()
        self.rates = rates

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets it."""
        # Not a layer of one's own: by `model` Keras' JAX backend learns that a variable changes.
        self.model.get_layer("tables").learning_rate("people").assign(self.rates[batch])


def padded(bag: Bag, width: int) -> list[np.ndarray]:
    """Returns ids and weights [batch, width], filled up with -1 and 0."""
    rows = np.repeat(np.arange(BATCH), np.diff(bag.splits))
    columns = np.arange(len(bag.ids)) - bag.splits[rows]
    kept = columns < width
    ids, weights = np.full((BATCH, width), -1, np.int32), np.zeros((BATCH, width), np.float32)
    ids[rows[kept], columns[kept]] = bag.ids[kept]
    weights[rows[kept], columns[kept]] = 1 if bag.weights is None else bag.weights[kept]
    return [ids, weights]


def widths() -> dict[str, int]:
    """Returns the most ids of a row by feature."""
    return {
        name: LENGTH if name == "recent" else max(int(np.diff(step.bags[name].splits).max()) for step in steps())
        for name in next(steps()).bags
    }


def data() -> tuple[dict[str, Any], list[float]]:
    """Returns the whole training as one data set, and the rates of the table 'people'."""
    batches, rates = [], []
    for step in steps():
        batch: dict[str, Any] = {"who": step.who.astype(np.int32)}
        for name, width in widths().items():
            batch[name], weights = padded(step.bags[name], width)
            if step.bags[name].weights is not None:
                batch[f"{name}_weights"] = weights
        batches.append({**batch, **{f"{name}_target": target for name, target in step.targets.items()}})
        rates.append(float(step.rate))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}, rates


def main(file: str) -> None:
    """Trains, and saves all that was trained."""
    inputs, rates = data()
    symbols = {
        name: keras.Input(batch_shape=(BATCH, *values.shape[1:]), dtype=values.dtype.name, name=name)
        for name, values in inputs.items()
    }
    names = [feature.name for feature in CONFIG.features]
    layer, dense = TPUEmbedding(CONFIG, learning_rates={"people": 1.0}, seed=SEED, name="tables"), Dense()
    weights = {name: symbols.get(f"{name}_weights") for name in names}
    activations = layer({name: symbols[name] for name in names}, weights)
    targets = {name.removesuffix("_target"): symbol for name, symbol in symbols.items() if name.endswith("_target")}
    model = keras.Model(symbols, dense(activations, targets))
    model.compile(keras.optimizers.SGD(RATE), lambda _, got: keras.ops.sum(got))
    ignored = np.zeros(len(inputs["who"]), np.float32)
    model.fit(inputs, ignored, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[Rates(rates)])
    trained = {name: keras.ops.convert_to_numpy(values) for name, values in dense.parameters.items()}
    found = outcome(state(layer.engine), trained)
    arrays: dict[str, Any] = {f"{t}/{name}": values for t, part in found.items() for name, values in part.items()}
    np.savez(file, **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
