"""Texts that are kept in files beside the tests; ``TOFU_GOLDEN=update`` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path


def same_as_golden(file: Path, text: str) -> None:
    """The text is that of the file, to the letter; where the texts are to be written, it is from now on."""
    if os.environ.get("TOFU_GOLDEN") == "update":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert file.is_file(), f"{file} is not there: TOFU_GOLDEN=update writes it"
    assert text == file.read_text(encoding="utf-8"), f"other than {file.name}: TOFU_GOLDEN=update writes it anew"
