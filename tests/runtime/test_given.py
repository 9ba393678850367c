"""Ranks tell by a digest whether they were given the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.runtime.values import given
from planner.runtime.values.given import digest_of_given


def test_whether_it_was_given_and_is_there(tmp_path: Path) -> None:
    assert digest_of_given(None) == "not given"
    assert digest_of_given(tmp_path / "nothing.npz") == "not there"


@pytest.mark.parametrize("whole_bytes", [given.WHOLE_BYTES, 0])
def test_files_differ_by_content(tmp_path: Path, whole_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "WHOLE_BYTES", whole_bytes)
    contents = {
        "a": b"x" * 2_000_000,
        "same": b"x" * 2_000_000,
        "end": b"x" * 1_999_999 + b"y",
        "long": b"x" * 2_000_001,
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    found = {name: digest_of_given(tmp_path / name) for name in contents}
    assert found["a"] == found["same"]
    assert len(set(found.values())) == 3


def test_folders_differ_by_names_and_sizes(tmp_path: Path) -> None:
    for folder, name, size in (("a", "0.npz", 3), ("same", "0.npz", 3), ("name", "1.npz", 3), ("size", "0.npz", 4)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(b"x" * size)
    found = {folder: digest_of_given(tmp_path / folder) for folder in ("a", "same", "name", "size")}
    assert found["a"] == found["same"]
    assert len(set(found.values())) == 3
