"""The page of measurements beside other engines is what its results say."""

from __future__ import annotations

import json

from generate_performance_docs import PAGE, RESULTS, render
from measured import memory, startup, steps, times


def test_page_is_up_to_date() -> None:
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    assert PAGE.read_text("utf-8") == render(results)


def test_every_result_has_its_place() -> None:
    stages = {"forward": 4.0, "backward and update": 61.0}
    peers = {"fbgemm": {**times(6.5, 0.9), "stages": stages}, "torch": times(1234.5, 2.0, repetitions=3)}
    page = render(
        {
            "steps": steps("dlrm:adagrad", {"20 ids, uniform": peers})
            | steps("one-thread:adagrad", {"1 id, uniform": {}}, threads=1)
            | steps("ids:adagrad", {"5 ids, uniform": {}}),
            "memory": memory("dlrm:adagrad", "torch", 3.0),
            "startup": startup("import", {"anycore": {"import": 0.25}}),
        }
    )
    # Times, nanoseconds a distinct row, the floor, how far from it, ratios; few repetitions in brackets.
    assert "| `dlrm:adagrad` 20 ids, uniform | 10 | 10,000 | 5 | 2.00 | 6.5 | 1,234 (3) |  |  |" in page
    assert "| `dlrm:adagrad` 20 ids, uniform | 4 | 4 | 0.9 | 2 (3) |  |  |" in page
    assert "| `dlrm:adagrad` 20 ids, uniform | 1 | 4 | 5 | 3 | 2 | 4 | 61 |" in page
    assert "| `one-thread:adagrad` 1 id, uniform | 1 | 4 | 5 | 3 | 2 |  |  |" in page
    assert page.index("## 2 threads") < page.index("## 1 thread\n")
    assert "differed by 2e-07 at most" in page
    assert "![Step time against ids a sample](performance/ids.png)" in page
    assert "performance/batch.png" not in page
    assert "| `dlrm:adagrad` | PyTorch | 2.00 | 0.00 | 3.00 | 1.50 |" in page
    assert "| anycore | 0.25 |" in page


def test_without_results_the_page_says_so() -> None:
    assert render({}).endswith("Nothing is measured yet.\n")
