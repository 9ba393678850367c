"""Lines for GitHub Actions: what is said arrives, and nothing in it says more."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from planner.errors import UsageError
from planner.printable import printable
from planner.printing.annotation import Annotation

TEXTS = st.text(st.sampled_from("a%:,\r\n=;[]\x1b0D2A5"), max_size=12)


def read(line: str) -> tuple[dict[str, str], str]:
    """What GitHub makes of a line, by its documentation."""
    found = re.fullmatch(r"::error (?P<properties>.*?)::(?P<message>.*)", line)
    assert found is not None
    told = dict(one.split("=", 1) for one in found["properties"].split(","))
    ours = {"%0D": "\r", "%0A": "\n"}
    whole = ours | {"%3A": ":", "%2C": ","}

    def plain(text: str, numbers: dict[str, str]) -> str:
        for number, char in numbers.items():
            text = text.replace(number, char)
        return text.replace("%25", "%")

    return {name: plain(value, whole) for name, value in told.items()}, plain(found["message"], ours)


@given(TEXTS.filter(bool), TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
def test_what_is_written_is_read(title: str, file: str, facts: list[str]) -> None:
    line = str(Annotation("error", title, tuple(facts), file))
    assert "\n" not in line
    assert "\r" not in line
    assert "\x1b" not in line
    properties, message = read(line)
    assert properties == {**({"file": printable(file)} if file else {}), "title": printable(title)}
    assert message == ("\n".join(map(printable, facts)) or printable(title))


def test_an_error_is_told_with_its_facts_and_hint() -> None:
    error = UsageError("costs.json, 100%: wrong", facts=("one", "two"), hint="write it anew")
    assert str(Annotation.of_error(error, "a,b.json")) == (
        "::error file=a%2Cb.json,title=costs.json%2C 100%25%3A wrong::one%0Atwo%0Ahint: write it anew"
    )


def test_a_title_alone_is_the_message_too() -> None:
    assert str(Annotation("error", "no plan: none")) == "::error title=no plan%3A none::no plan: none"
