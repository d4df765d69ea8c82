"""The page of optimizers is what the optimizers say today."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from anycore.optimizers import OPTIMIZERS

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import generate_optimizer_docs

    return generate_optimizer_docs


def test_page_is_up_to_date(generator: ModuleType) -> None:
    assert (ROOT / "docs" / "optimizers.md").read_text("utf-8") == generator.render()


def test_every_optimizer_has_its_row_and_its_section(generator: ModuleType) -> None:
    sections = generator.render().split("\n## ")
    assert len(sections) > len(OPTIMIZERS)
    for optimizer in OPTIMIZERS.values():
        assert f"| [`{optimizer.__name__}`](#{optimizer.__name__.lower()}) | `{optimizer.wire_name}` |" in sections[0]
        (section,) = [text for text in sections if text.startswith(f"{optimizer.__name__}\n")]
        assert section.count("Source: ") == 1
        assert section.count("**New (w") == (optimizer.rule is not None)


def test_what_is_not_certain_says_so(generator: ModuleType) -> None:
    known = {name: generator.status(optimizer) for name, optimizer in OPTIMIZERS.items()}
    assert [name for name in known if known[name] == "inferred"] == [
        "bounded_adagrad",
        "frequency_aware_adagrad",
        "proximal_yogi",
    ]
    assert [name for name in known if known[name] == "not published, does not train"] == [
        "mdl_adagrad_light",
        "online_yogi",
    ]
