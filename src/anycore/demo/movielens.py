"""MovieLens-100k: 100,000 ratings that 943 people gave to 1,682 movies, fetched when the demo runs."""

from __future__ import annotations

import csv
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from anycore.demo.dataset import Dataset, IntArray, age_bucket
from anycore.demo.error import DemoError

TERMS = """\
MovieLens-100k was collected by the GroupLens research group at the University of Minnesota and is lent for research:
no commercial use and no passing on of the data without the group's permission, no claim that the university or the
group endorses the results, no warranty. Publications cite F. M. Harper and J. A. Konstan, The MovieLens Datasets:
History and Context, ACM Transactions on Interactive Intelligent Systems 5(4), 2015, doi.org/10.1145/2827872."""

_WHEEL = "recbole==1.2.1"
_FILES = ("ml-100k.inter", "ml-100k.user", "ml-100k.item")
_INSTEAD = "`anycore demo --synthetic` needs no download"


def cache_directory() -> Path:
    """Returns where the files are kept between runs.

    Source: XDG Base Directory Specification, `XDG_CACHE_HOME`.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "anycore" / "movielens-100k"


def load(directory: Path) -> Dataset:
    """Returns the ratings that stand in `directory`, fetched into it first if they are not there yet.

    Raises:
        DemoError: they cannot be fetched, kept or read.
    """
    if not all((directory / name).is_file() for name in _FILES):
        with tempfile.TemporaryDirectory() as scratch:
            extract(_download(Path(scratch)), directory)
    return parse(directory)


def _download(directory: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise DemoError(
            f"this Python has no pip to fetch the ratings with: run `{sys.executable} -m ensurepip`; {_INSTEAD}"
        )
    # A wheel is only unpacked; anything else could run code of its own.
    options = ("--no-deps", "--only-binary=:all:", "--retries=2", "--quiet", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "download", *options, f"--dest={directory}", _WHEEL]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(directory.glob("*.whl"))
    if outcome.returncode or not wheels:
        reason = (outcome.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise DemoError(f"pip could not download {_WHEEL}, which carries the ratings ({reason}); {_INSTEAD}")
    return wheels[0]


def extract(wheel: Path, directory: Path) -> None:
    """Copies the three files of the data set out of `wheel`, wherever they stand in it, into `directory`.

    Raises:
        DemoError: `wheel` lacks one, or `directory` cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            members = {member.rpartition("/")[2]: member for member in archive.namelist()}
            for name in _FILES:
                # Several processes may come here at once.
                part = directory / f"{name}.{os.getpid()}.part"
                part.write_bytes(archive.read(members[name]))
                part.replace(directory / name)
    except (KeyError, zipfile.BadZipFile) as error:
        raise DemoError(f"{wheel.name} does not carry the ratings that {_WHEEL} should: {error}; {_INSTEAD}") from error
    except OSError as error:
        raise DemoError(f"cannot keep the ratings: {error}; set XDG_CACHE_HOME to a directory to write to") from error


def parse(directory: Path) -> Dataset:
    """Returns the data set of the three files in `directory`; ids are numbered in the order of the files.

    Raises:
        DemoError: the files are damaged.
    """
    try:
        ratings, people, items = (_columns(directory / name) for name in _FILES)
        genres = [names.split() for names in items["class"]]
        all_genres = [name for names in genres for name in names]
        return Dataset(
            users=_numbered(ratings["user_id"], people["user_id"]),
            movies=_numbered(ratings["item_id"], items["item_id"]),
            ratings=np.array(ratings["rating"], np.float32),
            timestamps=np.array(ratings["timestamp"], np.float64).astype(np.int64),
            ages=age_bucket(np.array(people["age"], np.int64)),
            genders=_numbered(people["gender"], sorted(set(people["gender"]))),
            occupations=_numbered(people["occupation"], sorted(set(people["occupation"]))),
            genre_splits=np.concatenate(([0], np.cumsum([len(names) for names in genres]))),
            genres=_numbered(all_genres, sorted(set(all_genres))),
        )
    except (KeyError, ValueError) as error:
        raise DemoError(f"the files in {directory} are damaged: {error!r}; delete them and run again") from error


def _columns(path: Path) -> dict[str, tuple[str, ...]]:
    # The first line names the columns, each as `name:type`.
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    names = [cell.partition(":")[0] for cell in header]
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def _numbered(values: tuple[str, ...] | list[str], vocabulary: tuple[str, ...] | list[str]) -> IntArray:
    ids = {value: number for number, value in enumerate(vocabulary)}
    return np.array([ids[value] for value in values], np.int32)
