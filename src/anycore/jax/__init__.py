"""JAX's front end: an engine's tables looked up and trained inside `jax.jit`, as if they were parameters.

```python
tables = anycore.jax.tables(engine)  # stands for the tables among the parameters


@jax.jit
def step(parameters, tables, batch):
    def loss_of(parameters, tables):
        activations = anycore.jax.lookup(tables, batch)
        ...

    loss, (gradients, tables) = jax.value_and_grad(loss_of, argnums=(0, 1))(parameters, tables)
```

The backward pass updates the tables; what comes back as their gradient is a zero that depends on the update, and passed
on, itself or added to `tables` as an optimizer does, it makes the next lookup come after. Nothing else of JAX needs to
know: programs are ordered by their data.
"""

from anycore.jax.lookup import lookup
from anycore.jax.stand_in import Tables, tables

__all__ = ["Tables", "lookup", "tables"]
