"""Strict YAML: values out of nodes, every finding with its line, all of them at once.

YAML is used as a notation and for nothing else: no tags, anchors or aliases; a key twice is an error, and so is
one that nobody reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import yaml

from planner.errors import UsageError, did_you_mean
from planner.regular_file import read_regular

_MOST_CHARACTERS = 1_000_000
_DEEPEST = 16
_SHORT_CHARACTERS = 120_000


def loader_for(text: str) -> type[yaml.SafeLoader]:
    """The loader of a text: of more than a list of figures libyaml, where it is there.

    It takes a second for what PyYAML's own reader takes a minute for, and says less of what is no YAML.
    """
    return yaml.SafeLoader if len(text) <= _SHORT_CHARACTERS else getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_text(path: Path, most_bytes: int, option: str = "") -> str:
    """The text of a file.

    Args:
        path: of the file.
        most_bytes: that it may have.
        option: that names it, with a space behind it; "": none needs to be told.

    Raises:
        UsageError: it cannot be read, or is no text.
    """
    try:
        return read_regular(path, most_bytes=most_bytes).decode("utf-8")
    except OSError as error:
        raise UsageError(f"{option}{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error


class Reader:
    """Takes values out of YAML nodes and collects what is wrong with them, by line.

    Every method takes None for a key that is absent and returns None for it: ``mapping`` has reported it already.

    Args:
        content: of a file of this kind, as errors call it.
        most_characters: that a file may have.
    """

    def __init__(self, content: str = "topology", most_characters: int = _MOST_CHARACTERS) -> None:
        self.findings: list[tuple[int, str]] = []
        self._content = content
        self._most_characters = most_characters

    def found(self, node: yaml.Node, finding: str) -> None:
        """Note a finding at the line where the node begins (counted from 1)."""
        self.findings.append((node.start_mark.line + 1, finding))

    def compose(self, text: str, origin: str) -> yaml.Node:
        """The root node; raises UsageError for what is no YAML, or more of it than a list of figures needs."""
        if len(text) > self._most_characters:
            raise UsageError(f"{origin}: too long for a {self._content} ({len(text):,} characters)")
        try:
            self._refuse_machinery(text, origin)
            root: yaml.Node | None = yaml.compose(text, Loader=loader_for(text))
        except yaml.reader.ReaderError as error:
            raise UsageError(f"{origin}: not YAML: it holds the character {shown(error.character)}") from error
        except yaml.MarkedYAMLError as error:
            line = _line_of(error.problem_mark or error.context_mark)
            problem = f"line {line}: {error.problem or error.context}"
            raise UsageError(f"{origin}: not YAML", facts=(problem,)) from error
        if root is None:
            raise UsageError(f"{origin}: the file is empty")
        return root

    def _refuse_machinery(self, text: str, origin: str) -> None:
        # On events, before a node exists: an alias bomb and a tower of brackets cost nothing here.
        depth = documents = 0
        refused: list[tuple[int, str]] = []
        for event in yaml.parse(text, Loader=loader_for(text)):
            line = _line_of(event.start_mark)
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                refused.append((line, f"a second document: one file holds one {self._content}"))
                break
            if isinstance(event, yaml.AliasEvent):
                refused.append((line, f"an alias (*{event.anchor}): write the value out"))
            elif isinstance(event, yaml.NodeEvent) and event.anchor is not None:
                refused.append((line, f"an anchor (&{event.anchor}): write the value out"))
            if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) and event.tag is not None:
                refused.append((line, f"a tag ({event.tag}): values have no types to be chosen"))
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            # No event is read after this one: the rest may be as deep as the file is long.
            if depth > _DEEPEST:
                refused.append((line, f"more than {_DEEPEST} levels of nesting"))
                break
            if len(refused) >= 10:
                break
        if refused:
            facts = tuple(f"line {line}: {finding}" for line, finding in refused)
            raise UsageError(f"{origin}: YAML beyond what a {self._content} needs", facts=facts)

    def mapping(
        self, node: yaml.Node | None, where: str, *, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()
    ) -> dict[str, yaml.Node] | None:
        """The known keys' nodes in the order of the file; unknown, repeated and missing ones are findings."""
        if node is None:
            return None
        if not isinstance(node, yaml.MappingNode):
            self.found(node, f"{where}: expected keys and values, found {_kind(node)}")
            return None
        keys = required + optional
        fields: dict[str, yaml.Node] = {}
        first_lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.found(key, f"{where}: a key must be a name, found {_kind(key)}")
                continue
            name = str(key.value)
            if name in first_lines:
                self.found(key, f"{where}: the key {shown(name)} was given before, on line {first_lines[name]}")
                continue
            first_lines[name] = key.start_mark.line + 1
            if name in keys:
                fields[name] = value
            else:
                # Where more findings stand before this one than are shown, the slow search for a near name is left out.
                advice = did_you_mean(name, keys, len(self.findings)) or f"known are {', '.join(keys)}"
                self.found(key, f"{where}: unknown key {shown(name)}; {advice}")
        for name in required:
            if name not in first_lines:
                self.found(node, f"{where}: the key {name!r} is missing")
        return fields

    def sequence(self, node: yaml.Node | None, where: str) -> list[yaml.Node]:
        """The list's nodes."""
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.found(node, f"{where}: expected a list, found {_kind(node)}")
            return []
        return list(node.value)

    def text(self, node: yaml.Node | None, where: str) -> str | None:
        """A text; what YAML takes for a number, a date or a truth value must be quoted."""
        if node is None:
            return None
        if _kind(node) != "text":
            quoted = isinstance(node, yaml.ScalarNode) and node.value
            advice = f"; in quotes it is text: '{node.value}'" if quoted else ""
            self.found(node, f"{where}: expected text, found {_kind(node)}{advice}")
            return None
        if not node.value.strip():
            self.found(node, f"{where}: is empty")
            return None
        return str(node.value)

    def count(self, node: yaml.Node | None, where: str, *, least: int = 1) -> int | None:
        """A whole number from ``least``, in at most 18 plain decimal digits (YAML would take 010 for 8)."""
        if node is None:
            return None
        is_plain = _kind(node) == "a whole number" and re.fullmatch("0|[1-9][0-9]{0,17}", node.value)
        if not is_plain or int(node.value) < least:
            number = f" {node.value}" if _kind(node) in ("a whole number", "a number") else ""
            self.found(node, f"{where}: expected a whole number from {least}, found {_kind(node)}{number}")
            return None
        return int(node.value)

    def is_whole_number(self, node: yaml.Node) -> bool:
        """Whether a value is written as a whole number."""
        return _kind(node) == "a whole number"

    def quantity(
        self,
        node: yaml.Node | None,
        where: str,
        parse: Callable[[str, str], int | Fraction],
        *,
        positive: bool = False,
    ) -> int | Fraction | None:
        """A number with a unit, read by one of ``planner.units``."""
        if node is None:
            return None
        if not isinstance(node, yaml.ScalarNode):
            self.found(node, f"{where}: expected a number with a unit, found {_kind(node)}")
            return None
        try:
            value = parse(node.value, where)
        except UsageError as error:
            self.found(node, f"{error.what}; {error.hint}" if error.hint else error.what)
            return None
        if positive and not value:
            self.found(node, f"{where}: must be more than zero")
            return None
        return value


_KINDS = {
    "tag:yaml.org,2002:str": "text",
    "tag:yaml.org,2002:int": "a whole number",
    "tag:yaml.org,2002:float": "a number",
    "tag:yaml.org,2002:bool": "a truth value",
    "tag:yaml.org,2002:null": "nothing",
    "tag:yaml.org,2002:timestamp": "a date",
    "tag:yaml.org,2002:map": "keys and values",
    "tag:yaml.org,2002:seq": "a list",
}


def _line_of(mark: yaml.error.Mark | yaml._yaml.Mark | None) -> int:
    """Counted from 1; the first line where YAML does not say."""
    return 1 if mark is None else mark.line + 1


def _kind(node: yaml.Node) -> str:
    return _KINDS.get(node.tag, "something else")


def shown(text: object) -> str:
    """A name from a file, as an error shows it: quoted, escaped, and not endless."""
    quoted = repr(text if isinstance(text, str) else chr(text) if isinstance(text, int) else str(text))
    return quoted if len(quoted) <= 60 else f"{quoted[:57]}…'"
