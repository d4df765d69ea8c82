"""Every form of a feature looks up what `EmbeddingBag` does; what cannot be read is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_models import JaggedTensor, KeyedJaggedTensor, ids, rows, small_tables

from anycore import EmbeddingConfig, InputError, TableConfig
from anycore.optimizers import StochasticGradientDescent
from anycore.torch import EmbeddingTables

# Rows 3, 1, 1 and row 0.
IDS, OFFSETS, WEIGHTS = torch.tensor([3, 1, 1, 0]), torch.tensor([0, 3]), torch.tensor([0.5, 2.0, 1.0, -1.0])
JAGGED = torch.nested.nested_tensor_from_jagged(IDS, torch.tensor([0, 3, 4]))
GAPS = torch.nested.narrow(
    torch.tensor([[9, 3, 1, 1, 9], [9, 0, 9, 9, 9]]), 1, torch.tensor([1, 1]), torch.tensor([3, 1]), layout=torch.jagged
)
PADDED = torch.tensor([[3, -1, 1, 1], [-1, -1, 0, -1]])


def keyed(weights: torch.Tensor | None = None) -> KeyedJaggedTensor:
    every = None if weights is None else torch.cat([torch.ones(2), weights])
    return KeyedJaggedTensor(["g", "f"], torch.cat([torch.tensor([0, 0]), IDS]), torch.tensor([1, 1, 3, 1]), every)


FORMS: dict[str, Any] = {
    "starts": (IDS, OFFSETS),
    "starts and last": (IDS, torch.tensor([0, 3, 4])),
    "a list, as a DataLoader makes": [IDS, OFFSETS],
    "int32": (IDS.int(), OFFSETS.int()),
    "jagged": JAGGED,
    "jagged with gaps": GAPS,
    "padded": PADDED,
    "JaggedTensor": JaggedTensor(IDS, torch.tensor([3, 1])),
}
WEIGHTED: dict[str, Any] = {
    "starts": (IDS, OFFSETS, WEIGHTS),
    "narrow weights": (IDS, OFFSETS, WEIGHTS.bfloat16()),
    "jagged": (JAGGED, None, WEIGHTS),
    "both jagged": (JAGGED, None, torch.nested.nested_tensor_from_jagged(WEIGHTS, torch.tensor([0, 3, 4]))),
    "padded": (PADDED, None, torch.tensor([[0.5, 9, 2, 1], [9, 9, -1, 9]])),
    "JaggedTensor": JaggedTensor(IDS, torch.tensor([3, 1]), WEIGHTS),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("combiner", ["sum", "mean"])
def test_every_form_looks_up_what_embedding_bag_does(form: str, combiner: str) -> None:
    tables = small_tables(combiners=[combiner])
    parameters = tables.state_dict()["t.parameters"]
    expected = torch.nn.functional.embedding_bag(IDS, parameters, OFFSETS, mode=combiner)
    torch.testing.assert_close(tables({**ids(0, 0), "f": FORMS[form]})["f"], expected)


@pytest.mark.parametrize("form", WEIGHTED)
def test_every_form_may_be_weighted(form: str) -> None:
    tables = small_tables()
    parameters = tables.state_dict()["t.parameters"]
    expected = torch.nn.functional.embedding_bag(IDS, parameters, OFFSETS, mode="sum", per_sample_weights=WEIGHTS)
    torch.testing.assert_close(tables({**ids(0, 0), "f": WEIGHTED[form]})["f"], expected)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_a_keyed_jagged_tensor_is_read_and_trained_key_by_key(weights: torch.Tensor | None) -> None:
    by_key, apart = small_tables(), small_tables()
    for tables, features in ((by_key, keyed(weights)), (apart, {**ids(0, 0), "f": (IDS, OFFSETS, weights)})):
        activations = tables(features)
        (activations["f"].sum() - activations["g"].square().sum()).backward()
    assert rows(by_key) == rows(apart) != rows(small_tables())


def test_lengths_may_stand_for_offsets() -> None:
    class OnlyLengths(KeyedJaggedTensor):
        offsets = property()

    features = OnlyLengths(["f", "g"], torch.cat([IDS, torch.tensor([0, 0])]), torch.tensor([3, 1, 1, 1]))
    assert not hasattr(features, "offsets")
    assert small_tables()(features)["f"].tolist() == small_tables()(keyed())["f"].tolist()


def test_one_id_a_sample_needs_no_offsets() -> None:
    tables = small_tables()
    assert tables(ids(3, 1))["f"].tolist() == [[6, 7], [2, 3]]
    assert tables(ids(-1, 1))["f"].tolist() == [[0, 0], [2, 3]]
    assert small_tables(padding_id=3)(ids(3, 1))["f"].tolist() == [[0, 0], [2, 3]]


def test_other_negative_ids_are_no_padding() -> None:
    with pytest.raises(InputError, match=r"feature 'f': embedding_indices\[1\] must be an id in \[0, 4\)"):
        small_tables()({**ids(0, 0), "f": torch.tensor([[1, -1], [-2, -1]])})


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([[3, 1, -1], [-1, 0, -1]]),
        torch.tensor([[[3, -1], [-1, 1], [-1, -1]], [[-1, -1], [0, -1], [-1, -1]]]),
    ],
    ids=["one id a place", "combined places"],
)
def test_ids_of_the_features_shape_stay_apart(value: torch.Tensor) -> None:
    activations = small_tables(input_shape=(2, 3))({**ids(0, 0), "f": value})
    assert activations["f"].tolist() == [[[6, 7], [2, 3], [0, 0]], [[0, 0], [0, 1], [0, 0]]]


@pytest.mark.parametrize("value", [(IDS, OFFSETS), (IDS, torch.tensor([0, 3, 4])), JAGGED])
def test_jagged_rows_of_a_feature_with_two_axes_are_sequences(value: Any) -> None:
    activations = small_tables(input_shape=(2, 2))({**ids(0, 0), "f": value})
    assert activations["f"].tolist() == [[[6, 7], [2, 3]], [[0, 1], [0, 0]]]


SMALL: dict[str, Any] = {
    "starts": ((IDS, torch.tensor([0])), False),
    "starts and last": ((IDS, torch.tensor([0, 4])), True),
    "jagged": (torch.nested.nested_tensor_from_jagged(IDS, torch.tensor([0, 4])), None),
    "padded": (IDS[None], None),
}


@pytest.mark.parametrize("form", SMALL)
def test_a_smaller_batch_has_fewer_activations(form: str) -> None:
    value, included = SMALL[form]
    tables = small_tables(include_last_offset=included)
    activations = tables({"f": value, "g": torch.tensor([1])})
    assert activations["f"].tolist() == [[10, 14]]
    activations["f"].sum().backward()
    assert rows(tables) == [[-1, 0], [0, 1], [4, 5], [5, 6]]


def test_a_smaller_batch_of_sequences_and_an_empty_one() -> None:
    tables = small_tables(input_shape=(2, 3))
    empty = torch.zeros((0, 3), dtype=torch.int64)
    activations = tables({"f": torch.tensor([[3, 1, -1]]), "g": empty[:, 0]})
    assert activations["f"].tolist() == [[[6, 7], [2, 3], [0, 0]]]
    assert activations["g"].shape == (0, 2)
    assert tables({"f": empty, "g": torch.zeros(0, dtype=torch.int64)})["f"].shape == (0, 3, 2)


def test_table_mode_names_tables() -> None:
    table = TableConfig("t", 4, 2, StochasticGradientDescent(learning_rate=1.0), num_features=2)
    tables = EmbeddingTables(EmbeddingConfig([table], batch_size_per_tensor_core=3))
    assert tables({"t": torch.tensor([0, 1, 2, 3, 0, 1])})["t"].shape == (6, 2)


REFUSED: dict[str, tuple[Any, str]] = {
    "a list of numbers": ([1, 2], "ids must be a tensor, got int"),
    "too much": ((IDS, OFFSETS, WEIGHTS, 1), "must be ids or .* got 4 parts"),
    "another device": (
        torch.zeros(2, dtype=torch.int64, device="meta"),
        "ids must be a dense .* on the CPU, got .*meta",
    ),
    "a sparse tensor": (torch.eye(2).to_sparse(), "ids must be a dense or jagged tensor"),
    "weights to train": ((IDS, OFFSETS, WEIGHTS.clone().requires_grad_()), "weights require a gradient but get none"),
    "floats": (torch.tensor([0.5, 1.0]), "embedding_indices must be integers, got float32"),
    "offsets of a smaller batch": ((IDS, torch.tensor([0])), "offsets must be 2, or 3 with the last one, got 1"),
    "a larger batch": (torch.nested.nested_tensor_from_jagged(IDS, torch.tensor([0, 1, 2, 4])), "at most 2 rows"),
    "a larger padded batch": (torch.zeros((3, 2), dtype=torch.int64), r"ids must have shape \[2\] or one more axis"),
    "a matrix with offsets": ((PADDED, OFFSETS), r"must have one axis, got shapes \[2, 4\] and \[2\]"),
    "weights of another shape": ((PADDED, None, WEIGHTS), r"weights must have the shape of the ids, \[2, 4\]"),
    "too few weights": ((IDS, OFFSETS, WEIGHTS[:2]), "aggregation_weights must be as many"),
    "descending offsets": ((IDS, torch.tensor([0, 3, 2])), "sample_splits"),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_what_cannot_be_read_is_refused_by_name(problem: str) -> None:
    value, message = REFUSED[problem]
    with pytest.raises(InputError, match=rf"feature 'f': .*{message}"):
        small_tables()({**ids(0, 0), "f": value})


def test_features_must_be_those_of_the_config() -> None:
    with pytest.raises(InputError, match=r"features must be named \['f', 'g'\], got \['f'\]"):
        small_tables()({"f": IDS})
    with pytest.raises(InputError, match="one batch size for all keys"):
        small_tables()(KeyedJaggedTensor(["f", "g"], IDS, torch.tensor([3, 1]), varies=True))
