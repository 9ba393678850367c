"""No text becomes markup."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from planner.features.report.page.markup import element, escaped, joined

HOSTILE = "</text><script>alert(1)</script>\"' onload=x \x1b[31m[bold]"


class _Reader(HTMLParser):
    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_hostile_name_is_text_and_nothing_else() -> None:
    markup = element("text", HOSTILE, aria_label=HOSTILE)
    shown = HOSTILE.replace("\x1b", "\\x1b")
    reader = _Reader(markup)
    assert reader.tags == ["text"]
    assert reader.attributes == [("aria-label", shown)]
    assert reader.text == shown
    assert "\x1b" not in markup


@given(st.text())
def test_any_text_stays_text(text: str) -> None:
    reader = _Reader(joined(element("p", text, title=text), escaped(text)))
    assert reader.tags == ["p"]
    assert [name for name, _ in reader.attributes] == ["title"]


def test_attributes_are_left_out_or_bare() -> None:
    assert element("input", hidden=True, value=None, checked=False, for_="x") == '<input hidden for="x">'
    assert element("rect", x=1.5, y=2.0, width=3) == '<rect x="1.5" y="2" width="3"></rect>'
