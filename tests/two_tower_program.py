"""Trains the model of examples/jax_two_tower.py on a few ratings, and prints how good it is."""

from __future__ import annotations

from typing import Any

from anycore.demo import synthetic


def trained(example: Any) -> dict[str, float]:
    """Returns errors on the ratings that were held out."""
    dataset, _ = synthetic.plant(0, num_users=60, num_movies=80, num_ratings=1500)
    return example.train(dataset, epochs=2, batch_size=151)


if __name__ == "__main__":
    import jax_two_tower
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    results = trained(jax_two_tower)
    if jax_two_tower.RANK == 0:
        print(results)
