"""Sentences of pages are counted as tests/tools/prose.py says."""

from __future__ import annotations

from pathlib import Path

import pytest

import prose

PAGE = """# What it does

Type this. It takes `a. B` and [a link](there.md), e.g. Adam; then
it ends. Why? What else?

    $ what is.typed

- An item, with what it has.
- `tests/graph/test_fold.py` tests it.

```sh
cat planner/errors.py
```

| cell | LONG |
| --- | --- |
| what a cell says | short |
"""


def page(folder: Path, name: str = "page.md") -> prose.Prose:
    file = folder / name
    file.write_text(PAGE.replace("LONG", "word " * 31))
    return prose.read(file)


def test_sentences_are_those_of_paragraphs_and_items(tmp_path: Path) -> None:
    assert page(tmp_path).sentences == (
        "Type this.",
        "It takes `a. B` and a link, e.g. Adam; then it ends.",
        "Why?",
        "What else?",
        "An item, with what it has.",
        "`tests/graph/test_fold.py` tests it.",
    )


def test_long_ones_are_those_of_cells_too(tmp_path: Path) -> None:
    counts = page(tmp_path)
    assert [prose.length(sentence) for sentence in counts.long] == [31]
    assert counts.long_permille == 167
    assert counts.mean_tenths == 42, "2, 11, 1, 2, 6 and 3 words"


def test_what_is_a_subject_but_in_questions_and_code(tmp_path: Path) -> None:
    assert page(tmp_path).whats == ("An item, with what it has.", "What it does", "what a cell says")


@pytest.mark.parametrize(("name", "paths"), [("page.md", ("tests/graph/test_fold.py",)), ("search.md", ())])
def test_source_paths_of_users_pages(tmp_path: Path, name: str, paths: tuple[str, ...]) -> None:
    assert page(tmp_path, name).sources == paths


def test_the_numbers_of_all_pages_add_up(tmp_path: Path) -> None:
    counts = page(tmp_path)
    both = prose.together([counts, counts])
    assert (both.words, len(both.sentences), len(both.whats)) == (2 * counts.words, 12, 6)
    assert both.mean_tenths == counts.mean_tenths
