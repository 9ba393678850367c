"""Docstrings without a subject are found as tests/tools/docstrings.py says."""

from __future__ import annotations

from pathlib import Path

import pytest

import docstrings

MODULE = '''"""What a plan is. And more."""

SIZE = 3
"""Of a tile."""


class Box:
    """A region that
    a worker owns: half open."""

    lo: int
    """Its first index."""

    def meets(self) -> bool:
        """Whether another box overlaps."""
        return True

    def parts(self) -> None:
        """Gives those that are left."""
'''


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("The bytes of a region", ""),
        ("Reads a plan", ""),
        ("Ops that read a tensor", ""),
        ("``run`` and its options", ""),
        ("Whether a region is empty", ""),
        ("What moves", "what"),
        ("Of a bucket", "of"),
        ("One of them", "one"),
        ("One fetch", ""),
        ("Another worker", ""),
        ("Reads what a user writes", "what"),
        ("The one that is nearest", "one"),
        ("", ""),
    ],
)
def test_a_sentence_begins_with_a_noun_or_a_verb(sentence: str, fault: str) -> None:
    assert docstrings.Docstring("", "", sentence).fault == fault


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("A plan.", "A plan"),
        ("A plan of\n  a model: tilings.", "A plan of a model"),
        ("A speed of 3.5 GB/s (``a.b``). More", "A speed of 3.5 GB/s (``a.b``)"),
        ("A plan\n\nof more", "A plan"),
    ],
)
def test_the_first_sentence(text: str, sentence: str) -> None:
    assert docstrings.first_sentence(text) == sentence


def test_modules_classes_functions_and_fields_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docstrings, "ROOT", tmp_path)
    (tmp_path / "boxes.py").write_text(MODULE)
    faults = docstrings.faults([tmp_path / "boxes.py"])
    assert {(fault.place, fault.name, fault.fault) for fault in faults} == {
        ("boxes.py:1", "", "what"),
        ("boxes.py:4", "SIZE", "of"),
        ("boxes.py:12", "lo", "its"),
        ("boxes.py:18", "parts", "those"),
    }
