"""The pictures of the pages are those that the planner's objects draw."""

from __future__ import annotations

import pytest

from page_pictures import DRAWN, PICTURES


@pytest.mark.parametrize("page", DRAWN)
def test_a_picture_is_what_is_drawn_anew(page: str) -> None:
    kept = (PICTURES / f"{page}.svg").read_text()
    assert kept == str(DRAWN[page]()), "draw it again: python tests/tools/page_pictures.py"


def test_there_are_no_others() -> None:
    assert {file.stem for file in PICTURES.glob("*")} == set(DRAWN)
