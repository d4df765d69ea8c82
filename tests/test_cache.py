from __future__ import annotations

from pathlib import Path

from anycore.kernels.cache import drop_stale


def test_compiled_kernels_go_with_any_source(tmp_path: Path) -> None:
    cache = tmp_path / "__pycache__"
    cache.mkdir()
    sources = [tmp_path / "a.py", tmp_path / "b.py"]
    compiled = [cache / "a.f.nbi", cache / "a.f.nbc", cache / "0a.step", cache / "a.cpython-311.pyc"]
    for path in [*sources, *compiled]:
        path.write_text("1")
    drop_stale(tmp_path)
    assert [path.exists() for path in compiled] == [False, False, False, True]
    compiled[0].write_text("1")
    drop_stale(tmp_path)
    assert compiled[0].exists()
    sources[1].write_text("2")
    drop_stale(tmp_path)
    assert not compiled[0].exists()


def test_a_folder_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").write_text("a file in the way")
    drop_stale(tmp_path)
    assert (tmp_path / "__pycache__").read_text() == "a file in the way"
