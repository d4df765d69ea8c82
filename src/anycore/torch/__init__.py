"""The tables of a config as a PyTorch module that `loss.backward()` trains."""

from anycore.torch.embedding_tables import EmbeddingTables
from anycore.torch.table_optimizer import TableOptimizer

__all__ = ["EmbeddingTables", "TableOptimizer"]
