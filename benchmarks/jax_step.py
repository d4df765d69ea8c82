"""Times training steps through JAX beside the bare engine's, forward and backward, all in one run.

The contenders take turns in every repetition, on one engine and with ids of their own; the table shows medians and the
ratio to the bare engine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from workload import Workload

from anycore import EmbeddingEngine, Ragged
from anycore.jax import lookup, tables
from anycore.kernels.parallel import available_threads

Step = Callable[[list[Ragged], list[Any]], None]


def bare(engine: EmbeddingEngine) -> Step:
    """Returns a step of the engine alone."""

    def step(batch: list[Ragged], gradients: list[Any]) -> None:
        engine.enqueue(batch)
        engine.receive_activations()
        engine.send_gradients(gradients)

    return step


def explicit(engine: EmbeddingEngine) -> Step:
    """Returns a step whose gradients are made by a compiled program from the activations that the engine gave."""
    dense = jax.jit(lambda activations, gradients: [gradient + 0 for gradient in gradients], keep_unused=True)

    def step(batch: list[Ragged], gradients: list[Any]) -> None:
        engine.enqueue(batch)
        engine.send_gradients(dense(jax.device_put(engine.receive_activations()), gradients))

    return step


def in_jit(engine: EmbeddingEngine) -> Step:
    """Returns a step that is one compiled program."""

    @jax.jit  # type: ignore[untyped-decorator]
    def program(token: Any, batch: list[Ragged], gradients: list[Any]) -> Any:
        _, pull_back = jax.vjp(lambda token: lookup(token, batch), token)
        return pull_back(gradients)[0]

    return _threaded(program, tables(engine))


def queued(engine: EmbeddingEngine) -> Step:
    """Returns a step that is one compiled program over a batch that was queued outside."""

    @jax.jit  # type: ignore[untyped-decorator]
    def program(token: Any, batch: list[Ragged], gradients: list[Any]) -> Any:
        _, pull_back = jax.vjp(lookup, token)
        return pull_back(gradients)[0]

    run = _threaded(program, tables(engine))

    def step(batch: list[Ragged], gradients: list[Any]) -> None:
        engine.enqueue(batch)
        run([], gradients)

    return step


def ordered_callback(engine: EmbeddingEngine) -> Step:
    """Returns a step that is one compiled program with the engine behind JAX's ordered callbacks, for comparison."""
    results = [jax.ShapeDtypeStruct(activation.shape, jnp.float32) for activation in engine.activations]

    def receive(*arrays: Any) -> Any:
        engine.enqueue([Ragged(*map(np.asarray, pair)) for pair in zip(arrays[::2], arrays[1::2], strict=True)])
        return engine.receive_activations()

    def send(*gradients: Any) -> Any:
        engine.send_gradients(gradients)
        return np.float32(0)

    @jax.jit  # type: ignore[untyped-decorator]
    def program(token: Any, batch: list[Ragged], gradients: list[Any]) -> Any:
        arrays = [array for ragged in batch for array in (ragged.sample_splits, ragged.embedding_indices)]
        io_callback(receive, results, *arrays, ordered=True)
        return io_callback(send, jax.ShapeDtypeStruct((), jnp.float32), *gradients, ordered=True)

    return _threaded(program, jnp.float32(0))


def _threaded(program: Any, token: Any) -> Step:
    def step(batch: list[Ragged], gradients: list[Any]) -> None:
        nonlocal token
        token = jax.block_until_ready(program(token, batch, gradients))

    return step


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=available_threads())
    parser.add_argument("--repetitions", type=int, default=25)
    options = parser.parse_args()
    contenders = {
        "bare engine": bare,
        "explicit, around a program": explicit,
        "lookup(tables, batch) in jit": in_jit,
        "lookup(tables) in jit": queued,
        "ordered callbacks": ordered_callback,
    }
    for ids_per_sample in (20, 1):
        workload = Workload(ids_per_sample=ids_per_sample)
        engine = EmbeddingEngine(workload.config(), num_threads=options.threads)
        steps = {name: contender(engine) for name, contender in contenders.items()}
        medians = _medians(workload, steps, options.repetitions)
        print(f"\n{workload}, Adagrad, {options.threads} threads, median of {options.repetitions}\n")
        print("| forward and backward | ms | to the bare engine |\n|---|---|---|")
        for name, median in medians.items():
            print(f"| {name} | {median:.2f} | {median / medians['bare engine']:.2f} |", flush=True)


def _medians(workload: Workload, steps: dict[str, Step], repetitions: int) -> dict[str, float]:
    """Returns milliseconds by name; the first two repetitions warm up."""
    random = np.random.default_rng(0)
    gradients = workload.gradients(random)
    on_device = jax.block_until_ready(jax.device_put(gradients))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repetitions + 2):
        for name, step in steps.items():
            batch = workload.batch(random)
            # What a program is given lies on JAX's side already, as what the engine is given lies on its own.
            given = (
                (batch, gradients)
                if name == "bare engine"
                else jax.block_until_ready(jax.device_put((batch, on_device)))
            )
            started = time.perf_counter()
            step(*given)
            times[name].append(time.perf_counter() - started)
    return {name: 1e3 * float(np.median(taken[2:])) for name, taken in times.items()}


if __name__ == "__main__":
    main()
