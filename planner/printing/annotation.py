"""Annotations: lines that GitHub Actions shows beside a pull request's changes.

The form is that of GitHub's workflow commands: ``::error file=train.onnx,title=...::message``. In it, ``%``, a carriage
return and a line feed are written by their numbers; in what stands before the message a colon and a comma, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.errors import TofuError
from planner.printable import printable

_OF_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_OF_PROPERTIES = _OF_DATA | {":": "%3A", ",": "%2C"}


@dataclass(frozen=True, slots=True)
class Annotation:
    """A line that GitHub shows beside a file."""

    level: Literal["error", "warning", "notice"]
    title: str
    facts: tuple[str, ...] = ()
    """A line for each."""
    file: str = ""
    """What it is about, as seen from the repository's root; "" for nothing in it."""

    @classmethod
    def of_error(cls, error: TofuError, file: str) -> Annotation:
        """An error that ended a command."""
        return cls("error", error.what, (*error.shown_facts, *([f"hint: {error.hint}"] if error.hint else [])), file)

    def __str__(self) -> str:
        """The line; names come from models, and cannot end it."""
        properties = [("file", self.file)] if self.file else []
        parameters = ",".join(
            f"{name}={_escaped(value, _OF_PROPERTIES)}" for name, value in (*properties, ("title", self.title))
        )
        facts = "\n".join(printable(fact) for fact in self.facts) or printable(self.title)
        return f"::{self.level} {parameters}::{_escaped(facts, _OF_DATA, keep=chr(10))}"


def _escaped(text: str, by: dict[str, str], keep: str = "") -> str:
    return "".join(by.get(char, char) for char in printable(text, keep=keep))
