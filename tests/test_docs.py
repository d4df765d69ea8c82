"""What the pages show is true: their code runs, their links lead somewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LANGUAGES = {"proto", "python", "sh", "text", "yaml"}

FENCE = re.compile(r"^\s*```", re.MULTILINE)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)[^)]*\)")


def python_code(page: Path) -> str:
    """Returns the page's Python blocks as one program, every line with the number that it has on the page."""
    text = page.read_text("utf-8")
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        if block[1] == "python":
            first, code = text.count("\n", 0, block.start(2)), block[2].splitlines()
            lines[first : first + len(code)] = code
    return "\n".join(lines)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if python_code(page).strip()], ids=name)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / f"{page.stem}.py"
    program.write_text(python_code(page), "utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(program), run_name="__main__")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_blocks_name_their_language(page: Path) -> None:
    text = page.read_text("utf-8")
    languages = [block[1] for block in BLOCK.finditer(text)]
    assert len(FENCE.findall(text)) == 2 * len(languages)
    assert not set(languages) - LANGUAGES


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files(page: Path) -> None:
    assert not [link for link in LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]
