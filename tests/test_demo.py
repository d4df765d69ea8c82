from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anycore import Ragged, demo
from anycore.demo import movielens, synthetic
from anycore.demo.baselines import bias_only, rmse
from anycore.demo.configuration import configuration
from anycore.demo.dataset import Dataset, age_bucket, split
from anycore.demo.error import DemoError
from anycore.demo.factorization_machine import gradients, scores
from anycore.demo.features import COMBINERS, Features, num_ids
from anycore.demo.history import earlier_ratings
from anycore.demo.hyper_parameters import (
    BATCH_SIZE,
    BETA1,
    BETA2,
    BIAS_SHRINKAGE,
    DIMENSION,
    HISTORY_LENGTH,
    LEARNING_RATE,
    WEIGHT_DECAY,
)
from anycore.demo.training import Trainer, bias_correction, learning_rate
from anycore.proto import TPUEmbeddingConfiguration

INTER = """\
user_id:token\titem_id:token\trating:float\ttimestamp:float
9\t5\t3\t881250949
4\t5\t1\t891717742.0
9\t7\t4.5\t881250950
"""
USER = """\
user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token
4\t17\tM\twriter\t85711
9\t56\tF\tartist\tT8H1N
"""
ITEM = """\
item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq
7\tA "quoted\x85 title\t1995\tWar Children's
5\t\t\tWar
6\tNo genre\t1996\t
"""


def write_wheel(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for suffix, text in files.items():
            archive.writestr(f"somewhere/deep/ml-100k.{suffix}", text)
    return path


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return write_wheel(tmp_path / "ratings-1.whl", inter=INTER, user=USER, item=ITEM)


@pytest.fixture(scope="module")
def planted() -> Dataset:
    return synthetic.plant(5, num_users=60, num_movies=80, num_ratings=2000)[0]


def test_scores_are_the_sum_over_pairs() -> None:
    embeddings = np.random.default_rng(0).normal(size=(4, 3, 5))
    for b, score in enumerate(scores(embeddings)):
        vectors = embeddings[:, b]
        pairs = sum(vectors[i, 1:] @ vectors[j, 1:] for i in range(4) for j in range(i))
        assert score == pytest.approx(vectors[:, 0].sum() + pairs)


def test_gradients_equal_finite_differences() -> None:
    rng = np.random.default_rng(1)
    embeddings, targets, h = rng.normal(size=(4, 3, 5)), rng.normal(size=3), 1e-6

    def loss(at: Any) -> float:
        return float(np.square(scores(at) - targets).sum() / 2)

    numeric = np.empty_like(embeddings)
    for position in np.ndindex(*embeddings.shape):
        step = np.zeros_like(embeddings)
        step[position] = h
        numeric[position] = (loss(embeddings + step) - loss(embeddings - step)) / (2 * h)
    np.testing.assert_allclose(gradients(embeddings, scores(embeddings) - targets), numeric, rtol=1e-6, atol=1e-7)


def test_split_is_disjoint_complete_and_fixed() -> None:
    train, test = split(1000)
    assert len(test) == 200
    np.testing.assert_array_equal(np.sort(np.concatenate((train, test))), np.arange(1000))
    for again, before in zip(split(1000), (train, test), strict=True):
        np.testing.assert_array_equal(again, before)


def test_history_holds_earlier_training_ratings_only(planted: Dataset) -> None:
    train, _ = split(len(planted.ratings))
    history = earlier_ratings(planted, train)
    mean = planted.ratings[train].mean()
    for n in range(len(planted.ratings)):
        allowed = train[
            (planted.users[train] == planted.users[n]) & (planted.timestamps[train] < planted.timestamps[n])
        ]
        expected = allowed[np.argsort(planted.timestamps[allowed])][-HISTORY_LENGTH:]
        assert n not in expected
        entries = slice(history.starts[n], history.stops[n])
        np.testing.assert_array_equal(history.movies[entries], planted.movies[expected])
        np.testing.assert_allclose(history.opinions[entries], planted.ratings[expected] - mean, atol=1e-6)


def test_ratings_of_one_second_are_not_in_each_others_history() -> None:
    dataset = tiny(timestamps=[7, 7, 7, 9])
    history = earlier_ratings(dataset, np.arange(4))
    np.testing.assert_array_equal(history.stops - history.starts, [0, 0, 0, 3])


def test_held_out_ratings_reach_no_input_and_no_baseline(planted: Dataset) -> None:
    train, test = split(len(planted.ratings))
    altered = planted.ratings.copy()
    altered[test] = 1e6
    blind = Dataset(**{**vars(planted), "ratings": altered})
    everything = np.arange(len(altered))
    seen = Features(planted, earlier_ratings(planted, train)).inputs(everything)["history"]
    unseen = Features(blind, earlier_ratings(blind, train)).inputs(everything)["history"]
    assert isinstance(seen, Ragged) and isinstance(unseen, Ragged)
    np.testing.assert_array_equal(seen.aggregation_weights, unseen.aggregation_weights)
    np.testing.assert_array_equal(bias_only(planted, train, test), bias_only(blind, train, test))


def tiny(timestamps: list[int]) -> Dataset:
    """One user who gave 1, 2, 3 and 6 stars to movies 0 … 3; movie m has the genres 0 … m - 1."""
    return Dataset(
        users=np.zeros(4, np.int32),
        movies=np.arange(4),
        ratings=np.array([1, 2, 3, 6], np.float32),
        timestamps=np.array(timestamps),
        ages=np.array([2]),
        genders=np.array([1]),
        occupations=np.array([4]),
        genre_splits=np.array([0, 0, 1, 3, 6]),
        genres=np.array([0, 0, 1, 0, 1, 2]),
    )


def test_inputs_of_the_features() -> None:
    dataset = tiny(timestamps=[10, 20, 30, 40])
    features = Features(dataset, earlier_ratings(dataset, np.arange(4)))
    inputs = features.inputs(np.array([3, 0, 2]))
    assert list(inputs) == list(COMBINERS) == list(features.vocabulary_sizes())
    plain = {"user": [0] * 3, "movie": [3, 0, 2], "age": [2] * 3, "gender": [1] * 3, "occupation": [4] * 3}
    for name, ids in plain.items():
        np.testing.assert_array_equal(inputs[name], ids)
    genres, history = inputs["genres"], inputs["history"]
    assert isinstance(genres, Ragged) and isinstance(history, Ragged)
    np.testing.assert_array_equal(genres.sample_splits, [0, 3, 3, 5])
    np.testing.assert_array_equal(genres.embedding_indices, [0, 1, 2, 0, 1])
    np.testing.assert_array_equal(history.sample_splits, [0, 3, 3, 5])
    np.testing.assert_array_equal(history.embedding_indices, [0, 1, 2, 0, 1])
    opinions = np.array([-2, -1, 0, -2, -1]) / np.sqrt([3, 3, 3, 2, 2])
    np.testing.assert_allclose(history.aggregation_weights, opinions, rtol=1e-6)
    assert num_ids(inputs) == 5 * 3 + 5 + 5


def test_age_buckets() -> None:
    np.testing.assert_array_equal(age_bucket(np.array([7, 17, 18, 24, 25, 55, 56, 73])), [0, 0, 1, 1, 2, 5, 6, 6])


def test_configuration_states_tables_features_and_adam() -> None:
    message = TPUEmbeddingConfiguration.FromString(configuration({"user": 3, "movie": 5}, 64))
    assert [(t.name, t.vocabulary_size, t.dimension) for t in message.table_descriptor] == [
        ("user", 3, DIMENSION),
        ("movie", 5, DIMENSION),
    ]
    assert [(f.name, f.table_id, list(f.input_shape)) for f in message.feature_descriptor] == [
        ("user", 0, [64]),
        ("movie", 1, [64]),
    ]
    for table in message.table_descriptor:
        parameters = table.optimization_parameters
        assert parameters.WhichOneof("parameters") == "adam"
        assert parameters.learning_rate.HasField("dynamic")
        assert parameters.learning_rate.dynamic.tag == 0
        assert parameters.multiply_weight_decay_factor_by_learning_rate
        assert parameters.weight_decay_factor == WEIGHT_DECAY


def test_learning_rate_falls_in_a_straight_line() -> None:
    rates = [learning_rate(step, 4) for step in range(1, 5)]
    assert rates == pytest.approx([LEARNING_RATE, 0.75 * LEARNING_RATE, 0.5 * LEARNING_RATE, 0.25 * LEARNING_RATE])


def test_bias_correction_turns_plain_moments_into_corrected_ones() -> None:
    # With the same gradient at every step the corrected moments are that gradient and its square.
    g, m, v = 0.3, 0.0, 0.0
    for step in range(1, 6):
        m = BETA1 * m + (1 - BETA1) * g
        v = BETA2 * v + (1 - BETA2) * g * g
        assert bias_correction(step) * m / np.sqrt(v) == pytest.approx(1)


def test_synthetic_ratings_are_seeded_distinct_and_as_noisy_as_stated() -> None:
    dataset, ratings = synthetic.plant(3, num_users=200, num_movies=300, num_ratings=20_000)
    again, _ = synthetic.plant(3, num_users=200, num_movies=300, num_ratings=20_000)
    other, _ = synthetic.plant(4, num_users=200, num_movies=300, num_ratings=20_000)
    np.testing.assert_array_equal(dataset.ratings, again.ratings)
    assert not np.array_equal(dataset.ratings, other.ratings)
    assert len(set(zip(dataset.users.tolist(), dataset.movies.tolist(), strict=True))) == 20_000
    assert rmse(ratings, dataset.ratings) == pytest.approx(synthetic.NOISE, rel=0.03)


def test_bias_only_finds_the_regularised_optimum(planted: Dataset) -> None:
    train, test = split(len(planted.ratings))
    users, movies = planted.users[train], planted.movies[train]
    design = np.zeros((len(train), 60 + 80))
    design[np.arange(len(train)), users] = 1
    design[np.arange(len(train)), 60 + movies] = 1
    mean = planted.ratings[train].mean()
    normal = design.T @ design + BIAS_SHRINKAGE * np.eye(140)
    biases = np.linalg.solve(normal, design.T @ (planted.ratings[train] - mean))
    expected = mean + biases[planted.users[test]] + biases[60 + planted.movies[test]]
    np.testing.assert_allclose(bias_only(planted, train, test), expected, atol=1e-4)


def test_training_lowers_the_error_below_the_global_mean() -> None:
    dataset, _ = synthetic.plant(0, num_users=100, num_movies=120, num_ratings=6000)
    train, test = split(len(dataset.ratings))
    epochs, batches = 8, np.array_split(train, 10)
    assert all(0 < len(batch) < BATCH_SIZE for batch in batches)
    trainer = Trainer(Features(dataset, earlier_ratings(dataset, train)), train, epochs * len(batches), seed=0)
    first = trainer.step(batches[0])
    for batch in (batches * epochs)[1:]:
        last = trainer.step(batch)
    assert np.mean(np.square(last)) < np.mean(np.square(first))
    assert trainer.steps == 80

    tables = {name: trainer.engine.retrieve(name) for name in COMBINERS}
    predictions = trainer.predict(test)
    ratings = dataset.ratings[test]
    assert rmse(predictions, ratings) < 0.9 * rmse(np.full_like(ratings, dataset.ratings[train].mean()), ratings)
    np.testing.assert_array_equal(predictions, trainer.predict(test))
    for name, variables in tables.items():
        assert set(variables) == {"parameters", "momenta", "velocities"}
        for variable, values in trainer.engine.retrieve(name).items():
            np.testing.assert_array_equal(values, variables[variable], err_msg=f"{name} {variable}")


def test_a_wheel_becomes_a_data_set(wheel: Path, tmp_path: Path) -> None:
    movielens.extract(wheel, tmp_path / "made" / "here")
    dataset = movielens.parse(tmp_path / "made" / "here")
    np.testing.assert_array_equal(dataset.users, [1, 0, 1])
    np.testing.assert_array_equal(dataset.movies, [1, 1, 0])
    np.testing.assert_array_equal(dataset.ratings, np.array([3, 1, 4.5], np.float32))
    np.testing.assert_array_equal(dataset.timestamps, [881250949, 891717742, 881250950])
    np.testing.assert_array_equal(dataset.ages, [0, 6])
    np.testing.assert_array_equal(dataset.genders, [1, 0])
    np.testing.assert_array_equal(dataset.occupations, [1, 0])
    np.testing.assert_array_equal(dataset.genre_splits, [0, 2, 3, 3])
    np.testing.assert_array_equal(dataset.genres, [1, 0, 1])
    assert dataset.vocabulary_sizes() == {
        "user": 2,
        "movie": 3,
        "age": 7,
        "gender": 2,
        "occupation": 2,
        "genres": 2,
    }


def test_a_wheel_without_the_ratings_is_refused(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "other-1.whl", inter=INTER)
    with pytest.raises(DemoError, match=r"other-1\.whl does not carry .*ml-100k\.user.*--synthetic"):
        movielens.extract(wheel, tmp_path)


def test_a_cache_that_cannot_be_written_is_named(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DemoError, match=r"cannot keep the ratings: .*XDG_CACHE_HOME"):
        movielens.extract(wheel, tmp_path / "file" / "below")


@pytest.mark.parametrize(
    "inter",
    [
        INTER + "9\tno such movie\t3\t881250949\n",
        INTER + "9\t5\t3\n",
        INTER.replace("\t3\t", "\tthree\t"),
        INTER.replace("rating:", "grade:"),
        "",
    ],
    ids=["unknown movie", "short line", "no number", "missing column", "empty"],
)
def test_damaged_files_are_refused(inter: str, tmp_path: Path) -> None:
    movielens.extract(write_wheel(tmp_path / "w.whl", inter=inter, user=USER, item=ITEM), tmp_path)
    with pytest.raises(DemoError, match=r"are damaged: .*; delete them and run again"):
        movielens.parse(tmp_path)


def test_ratings_are_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        destination = next(word for word in command if word.startswith("--dest=")).removeprefix("--dest=")
        write_wheel(Path(destination) / "recbole-1.2.1-py3-none-any.whl", inter=INTER, user=USER, item=ITEM)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)
    assert len(movielens.load(tmp_path / "cache").ratings) == 3
    assert len(movielens.load(tmp_path / "cache").ratings) == 3
    (command,) = commands
    assert command[-1] == "recbole==1.2.1"
    assert {"download", "--no-deps", "--only-binary=:all:"} < set(command)


def test_a_failed_download_names_the_reason_and_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = subprocess.CompletedProcess([], 1, "", "WARNING: retrying\nERROR: no route to host\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: outcome)
    with pytest.raises(DemoError, match=r"could not download recbole==1\.2\.1.*no route to host.*--synthetic"):
        movielens.load(tmp_path)


def test_a_python_without_pip_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(DemoError, match=r"no pip .*ensurepip.*--synthetic"):
        movielens.load(tmp_path)


def test_cache_directory_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert movielens.cache_directory() == tmp_path / "xdg" / "anycore" / "movielens-100k"
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert movielens.cache_directory() == tmp_path / ".cache" / "anycore" / "movielens-100k"


def test_missing_tqdm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(DemoError, match=r"tqdm: pip install 'anycore\[demo\]'"):
        demo.run(synthetic_ratings=True)
