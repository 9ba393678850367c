"""Names in Markdown: whatever they hold, they are shown, and nothing else comes of them."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from planner.printable import printable
from planner.printing.sheet import Sheet, markdown_code, markdown_text
from printed import as_markdown, as_text

NAMES = st.text(st.sampled_from("ab1 .|`\\<>&*_[]()#@!~$:/\n\x1b"), max_size=10)


@given(NAMES.filter(lambda name: bool(name.strip())))
def test_a_name_is_code_and_all_of_it_is_there(name: str) -> None:
    code = markdown_code(name)
    assert "|" not in code
    assert "\n" not in code
    spans = re.fullmatch(r"`([^`]*)`|<code>([^<`]*)</code>", code)
    assert spans is not None
    assert (spans[1] if spans[1] is not None else html.unescape(spans[2])) == printable(name)


@given(NAMES)
def test_a_text_holds_nothing_that_markdown_takes_for_its_own(name: str) -> None:
    text = markdown_text(name)
    bare = re.sub(r"<code>[@#]</code>|&#[0-9]+;", "", text)
    assert not set(bare) & set("|`\\<>&*[]#@!~$\n\x1b")
    assert html.unescape(re.sub(r"</?code>", "", text)) == printable(name)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("fc.weight", "`fc.weight`"),
        ("S(0)/2 R/2", "`S(0)/2 R/2`"),
        ("[1, 2] -> [2]", "`[1, 2] -> [2]`"),
        ("@all", "`@all`"),
        ("a|b", "<code>a&#124;b</code>"),
        ("``", "<code>&#96;&#96;</code>"),
        ("<script>", "<code>&#60;script&#62;</code>"),
        ("\x1b[31m", "<code>&#92;x1b&#91;31m</code>"),
        ("", ""),
    ],
)
def test_how_names_are_written(name: str, code: str) -> None:
    assert markdown_code(name) == code


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("4 (2 x 2), +1.2%", "4 (2 x 2), +1.2%"),
        ("a_b", "a_b"),
        ("_a_", "&#95;a&#95;"),
        ("see @all, #1", "see <code>@</code>all, <code>#</code>1"),
        ("https://a.b", "https&#58;//a.b"),
        ("www.a.b", "www&#46;a.b"),
    ],
)
def test_how_texts_are_written(text: str, written: str) -> None:
    assert markdown_text(text) == written


@given(NAMES.filter(lambda name: bool(name.strip())), NAMES)
def test_a_reader_of_markdown_finds_the_cells_and_the_names_in_them(name: str, text: str) -> None:
    def report(sheet: Sheet) -> None:
        sheet.table(("name", "verdict"), [(name, f"so {text} it is")], names=("name",))

    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(as_markdown(report))
    assert [token.type for token in tokens].count("td_open") == 2
    inline = [token.children or [] for token in tokens if token.type == "inline"]
    assert {token.type for cell in inline for token in cell} <= {"text", "text_special", "code_inline", "html_inline"}
    assert {token.content for cell in inline for token in cell if token.type == "html_inline"} <= {"<code>", "</code>"}
    said = ["".join(token.content for token in cell if token.type != "html_inline") for cell in inline]
    assert said[2:] == [printable(name), printable(f"so {text} it is")]


def test_one_content_in_two_forms() -> None:
    def report(sheet: Sheet) -> None:
        sheet.title("T")
        sheet.table(("name", "bytes"), [("a", "1"), ("b", "22")], numbers=("bytes",), names=("name",))
        sheet.line("done")
        sheet.title("U")

    assert as_text(report).splitlines()[:1] == ["T"]
    assert as_text(report).endswith("22\n\ndone\n\nU\n")
    table = "| name | bytes |\n| --- | ---: |\n| `a` | 1 |\n| `b` | 22 |\n"
    assert as_markdown(report) == f"### T\n\n{table}\ndone\n\n### U\n\n"
