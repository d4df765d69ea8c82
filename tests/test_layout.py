"""The laws of the shape: files are short and named for one thing, imports go down, the public names are listed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import anycore

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "anycore"
MODULES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = ("benchmarks", "examples", "scripts", "tests")
SOURCES = [*MODULES, *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]

LONGEST = 400
GENERATED = {PACKAGE / "proto" / "descriptors.py"}
VAGUE = {"common", "core", "helper", "helpers", "misc", "util", "utils"}
FRAMEWORKS = {"jax", "keras", "tensorflow", "torch"}
TOP_FLOOR = 8
ASKS_A_FRAMEWORK = {PACKAGE / "transport" / "torch_distributed.py"}
"""What is handed the framework's processes by a caller that runs it, and imports it only then."""

# Tests of no single source file.
WITHOUT_SOURCE = {
    "layout": "the laws on this page",
    "docs": "the pages' own examples",
    "schedule_given_up": "steps that are given up, and waiting that ends",
    "engine_refusals": "what the engine refuses, and its threads' order",
    "engine_in_processes": "refusals and late answers between the engines of several processes",
    "engine_outside_steps": "lookups, updates, views and shapes outside the engine's steps",
    "sharded_tables_in_processes": "the bits of processes that torchrun and mpiexec start",
    "faults": "what processes do when one is refused, makes other calls, falls silent or dies",
    "tensorflow_kernels": "the arithmetic of TensorFlow, for many optimizers at once",
    "tensorflow_conformance": "what TensorFlow's tests of TPU embeddings check, of the class and of the operations",
    "tensorflow_conformance_inputs": "the same, for inputs that are not lists of ids",
    "tensorflow_conformance_lookups": "lookups beside TensorFlow's own",
    "tensorflow_conformance_refusals": "what is refused, and in which words",
}

# Rows of the table of floors: | floor | `file` or `folder/` | …
FLOORS = {
    PACKAGE / place: int(floor)
    for floor, place in re.findall(
        r"^\| (\d) \| `([\w./]+)` \|", (ROOT / "docs" / "architecture.md").read_text("utf-8"), re.MULTILINE
    )
}


def floor_of(module: Path) -> int:
    """Returns the floor of the row that names the module, or else its folder."""
    return next(FLOORS[place] for place in (module, *module.parents) if place in FLOORS)


def imported_names(module: Path) -> Iterator[str]:
    """Yields the dotted names that a module imports anywhere in it."""
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_modules(module: Path) -> set[Path]:
    """Returns the files of the package that a module imports."""
    return {module_of(name) for name in imported_names(module) if name.split(".")[0] == "anycore"}


def module_of(name: str) -> Path:
    """Returns the file that defines the dotted name of a module, or of something in a module."""
    place = PACKAGE.parent.joinpath(*name.split("."))
    candidates = (file for path in (place, place.parent) for file in (path.with_suffix(".py"), path / "__init__.py"))
    return next(file for file in candidates if file in MODULES)


def relative(paths: Iterable[Path]) -> list[str]:
    """Returns the paths as seen from the root, in order."""
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def test_files_are_short() -> None:
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in SOURCES if path not in GENERATED}
    assert not relative(path for path, length in lengths.items() if length > LONGEST)


def test_names_say_what_is_inside() -> None:
    def words(path: Path) -> set[str]:
        return {part.removeprefix("test_") for part in path.relative_to(ROOT).with_suffix("").parts}

    assert not relative(path for path in SOURCES if words(path) & VAGUE)


def test_floors_name_places_that_exist() -> None:
    assert not relative(place for place in FLOORS if not place.exists())


def test_imports_go_down() -> None:
    upwards = [
        f"{module.relative_to(PACKAGE)} imports {imported.relative_to(PACKAGE)}"
        for module in MODULES
        for imported in imported_modules(module)
        if floor_of(imported) > floor_of(module)
    ]
    assert not upwards


def test_imports_go_in_no_circle() -> None:
    TopologicalSorter({module: imported_modules(module) for module in MODULES}).prepare()


def test_frameworks_stay_on_the_top_floor() -> None:
    importing = {module for module in MODULES for name in imported_names(module) if name.split(".")[0] in FRAMEWORKS}
    assert not relative(module for module in importing - ASKS_A_FRAMEWORK if floor_of(module) < TOP_FLOOR)


def test_importing_anycore_imports_no_framework() -> None:
    program = "import sys; import anycore, anycore.ops, anycore.cli, anycore.demo; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert "anycore.engine" in modules
    assert not FRAMEWORKS & set(modules)


def test_no_kernel_trades_exactness_for_speed() -> None:
    def keywords(path: Path) -> set[str | None]:
        return {node.arg for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.keyword)}

    assert not relative(module for module in MODULES if "fastmath" in keywords(module))


def test_every_test_file_mirrors_a_source_file() -> None:
    tests = {path for path in SOURCES if path.stem.startswith("test_")}
    stems = {path.parent.name if path.stem == "__init__" else path.stem for path in set(SOURCES) - tests}
    named = {path.stem.removeprefix("test_") for path in tests}
    assert named - stems == WITHOUT_SOURCE.keys()


def test_public_names_are_all_that_is_imported() -> None:
    body = ast.parse((PACKAGE / "__init__.py").read_text("utf-8")).body
    imported = [alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert anycore.__all__ == sorted(imported)
