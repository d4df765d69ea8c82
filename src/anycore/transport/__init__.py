"""How bytes move between processes: one protocol, and what carries it."""

from anycore.transport.in_process import InProcessTransport
from anycore.transport.mpi import MPITransport
from anycore.transport.torch_distributed import TorchTransport
from anycore.transport.transport import Transport

__all__ = ["InProcessTransport", "MPITransport", "TorchTransport", "Transport"]
