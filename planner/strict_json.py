"""Strict JSON: values by their place, and what is wrong with a file in words, with the line or the place.

A value knows where it stands: ``tilings.fc.weight`` is the member ``fc.weight`` of the member ``tilings``,
``cuts[1]`` the second of a list. A key twice in one object is an error, as are NaN and the infinities.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, Final, NoReturn

from planner.regular_file import read_regular

_PROBLEMS: Final = {
    "Expecting value": "a value is missing",
    "Expecting property name enclosed in double quotes": "a key in double quotes is missing",
    "Expecting ':' delimiter": "a colon is missing after a key",
    "Expecting ',' delimiter": "a comma or a closing bracket is missing",
    "Extra data": "there is more after the end",
    "Unterminated string starting at": "a text has no end",
    "Invalid control character at": "a text holds a control character",
    "Illegal trailing comma before end of object": "a comma has nothing after it",
    "Illegal trailing comma before end of array": "a comma has nothing after it",
    "Unexpected UTF-8 BOM (decode using utf-8-sig)": "it begins with a byte order mark",
}
_KINDS: Final = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
_LONGEST: Final = 60
_MOST_BYTES: Final = 2**29
"""Of a file."""
_LARGEST: Final = 2**64
"""Of whole numbers: no bytes, steps or sizes are larger, and arithmetic of floats takes each."""


class JsonError(ValueError):
    """What is wrong with JSON, in words that follow ``... cannot be read:``."""


class Value:
    """A value and its place.

    Every method raises JsonError where the value is of another kind.

    Args:
        value: as ``json`` reads it.
        inside: the object or the list that it is in; None for the whole.
        key: its key there, or its number.
    """

    __slots__ = ("_inside", "_key", "value")

    def __init__(self, value: Any, inside: Value | None = None, key: str | int = "") -> None:
        self.value = value
        self._inside = inside
        self._key = key

    def __getitem__(self, key: str) -> Value:
        """A member of an object."""
        members = self._expect(dict, "an object")
        if key not in members:
            raise JsonError(f"{self._place or 'it'} lacks {key!r}")
        return Value(members[key], self, key)

    def get(self, key: str) -> Value | None:
        """A member of an object; None if it is absent or null."""
        if self._expect(dict, "an object").get(key) is None:
            return None
        return self[key]

    def members(self) -> dict[str, Value]:
        """The members of an object."""
        return {key: Value(value, self, key) for key, value in self._expect(dict, "an object").items()}

    def values(self) -> list[Value]:
        """The values of a list."""
        return [Value(value, self, number) for number, value in enumerate(self._expect(list, "a list"))]

    def text(self) -> str:
        """A text."""
        text: str = self._expect(str, "a text")
        return text

    def texts(self) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(value.text() for value in self.values())

    def integer(self) -> int:
        """A whole number."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self._stands("a whole number")
        if abs(self.value) >= _LARGEST:
            self._stands("a number of at most 64 bits")
        return self.value

    def count(self, least: int = 0) -> int:
        """A whole number that is not negative, or at least some other one."""
        count = self.integer()
        if count < least:
            self._stands(f"a whole number of at least {least}")
        return count

    def counts(self, least: int = 0) -> tuple[int, ...]:
        """A list of such numbers."""
        return tuple(value.count(least) for value in self.values())

    def number(self) -> float:
        """A finite number that is not negative."""
        value = self.value
        limit = _LARGEST if isinstance(value, int) else math.inf
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < limit:
            self._stands("a finite number that is not negative")
        return value

    def flag(self) -> bool:
        """True or false."""
        flag: bool = self._expect(bool, "true or false")
        return flag

    def require_version(self, version: int) -> None:
        """Refuses an object whose ``schema_version`` is another one."""
        stated = self["schema_version"]
        if stated.integer() != version:
            raise stated.fault(f"is {stated.value}; this tofu reads {version}")

    def fault(self, why: str) -> JsonError:
        """A fault of the caller's finding, with the place."""
        return JsonError(f"{self._place or 'it'} {why}")

    def _expect(self, kind: type, wanted: str) -> Any:
        if not isinstance(self.value, kind):
            self._stands(wanted)
        return self.value

    def _stands(self, wanted: str) -> NoReturn:
        kind = _KINDS.get(type(self.value))
        shown = f" ({_shown(json.dumps(self.value))})" if not isinstance(self.value, dict | list | type(None)) else ""
        raise JsonError(f"{self._place or 'it'} is {kind or 'a number'}{shown}, not {wanted}")

    @property
    def _place(self) -> str:
        """Where it stands; "" for the whole."""
        if self._inside is None:
            return ""
        around = self._inside._place
        if isinstance(self._key, int):
            return f"{around}[{self._key}]"
        shown = _shown(self._key if self._key.isprintable() else repr(self._key))
        return f"{around}.{shown}" if around else shown


def parse_json(content: str | bytes, *, most_values: int = 5_000_000) -> Value:
    """The value that a text is.

    Args:
        content: of a file.
        most_values: how many there may be in all: a byte of text can become a hundred of memory.

    Raises:
        JsonError: it is not UTF-8, no JSON, or too much of it.
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.start} is not UTF-8") from None
    if sum(map(text.count, ",[{")) > most_values:
        raise JsonError(f"it holds more than {most_values:,} values")
    if not text.strip():
        raise JsonError("it is empty")
    try:
        return Value(json.loads(text, object_pairs_hook=_members, parse_constant=_refuse_constant))
    except JsonError:
        raise
    except json.JSONDecodeError as error:
        problem = _PROBLEMS.get(error.msg, "a text holds an escape that JSON does not have")
        raise JsonError(f"it is no JSON: line {error.lineno}, character {error.colno}: {problem}") from None
    except RecursionError:
        raise JsonError("it is nested too deeply") from None
    except ValueError:
        raise JsonError("a number has too many digits") from None


def read_json(path: Path) -> Value:
    """The value that a file holds.

    Raises:
        JsonError: the file cannot be read, is not UTF-8, or no JSON.
    """
    try:
        return parse_json(read_regular(path, most_bytes=_MOST_BYTES))
    except OSError as error:
        raise JsonError(error.strerror or "the system does not say why") from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        often = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise JsonError(f"the key {_shown(repr(often))} is there twice")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is no number of JSON")


def _shown(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
