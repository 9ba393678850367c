"""Colours on a terminal, and nowhere else."""

from __future__ import annotations

import io

import pytest

from planner.printing.console import ReportConsole
from planner.printing.tone import Tone, tone, toned_lines


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _colourful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("verified", Tone.GOOD),
        ("NOT verified", Tone.BAD),
        ("error: no such file", Tone.BAD),
        ("hint: write --gpus K", Tone.HINT),
        ("warning", Tone.WARNING),
        ("hints.weight", None),
        ("error_rate", None),
        ("verified.weight", None),
        ("", None),
    ],
)
def test_a_word_of_news_has_a_tone_and_a_name_that_begins_like_one_has_none(text: str, expected: Tone | None) -> None:
    assert tone(text) is expected


def test_the_first_word_of_each_line_is_coloured_on_a_terminal() -> None:
    text = "error: x\n  error: a fact\nhint: y"
    assert toned_lines(text, Terminal()) == "\x1b[1;31merror\x1b[0m: x\n  error: a fact\n\x1b[36mhint\x1b[0m: y"
    assert toned_lines(text, io.StringIO()) == text


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_whoever_wants_no_colours_gets_none(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    assert toned_lines("error: x", Terminal()) == "error: x"
    assert "\x1b[3" not in printed(Terminal())


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_a_file_gets_no_colours(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    assert "\x1b" not in printed(io.StringIO())


def test_a_verdict_is_coloured_in_a_report() -> None:
    assert "\x1b[32mverified" in printed(Terminal())


def printed(stream: io.StringIO) -> str:
    console = ReportConsole(stream)
    console.print_facts([("verdict", "verified")])
    console.print_table(["verdict"], [["GREW: cost"]])
    return stream.getvalue()
