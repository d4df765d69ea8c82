"""Several engines that share their tables, each in a thread of its own as if in a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from anycore import EmbeddingConfig, EmbeddingEngine
from anycore.transport import InProcessTransport, Transport


def in_processes(size: int, program: Callable[[Transport], Any]) -> list[Any]:
    """Returns what the program returns in each of `size` processes, an error where it raises one."""

    def run(transport: Transport) -> Any:
        try:
            return program(transport)
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, InProcessTransport.group(size)))


def unless_raised(results: Sequence[Any]) -> list[Any]:
    """Returns the results; raises the first that is an error."""
    for result in results:
        if isinstance(result, Exception):
            raise result
    return list(results)


class OfProcess:
    """One process's engine with the numbers that cores have in the whole system; calls for others' cores do nothing."""

    def __init__(self, config: EmbeddingConfig, transport: Transport, **options: Any) -> None:
        self.engine = EmbeddingEngine(config, transport=transport, timeout=30, **options)
        counts = [int(count) for count in transport.all_gather(str(self.engine.num_cores).encode())]
        first = sum(counts[: transport.rank])
        self.cores = range(first, first + counts[transport.rank])
        self.load, self.retrieve, self.reshape = self.engine.load, self.engine.retrieve, self.engine.reshape

    def enqueue(self, inputs: Any, *, core: int, **options: Any) -> None:
        if core in self.cores:
            self.engine.enqueue(inputs, core=self.cores.index(core), **options)

    def receive_activations(self, core: int) -> Any:
        return self.engine.receive_activations(self.cores.index(core)) if core in self.cores else []

    def send_gradients(self, gradients: Any, learning_rates: Any, core: int) -> None:
        if core in self.cores:
            self.engine.send_gradients(gradients, learning_rates, self.cores.index(core))
