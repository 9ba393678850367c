"""Files of pairs: which output replaces which input (``--state``), which is whose gradient (``--gradients``).

    fc.weight: fc.weight.next        # YAML, one pair a line; the state (or parameter) first
    fc.bias: fc.bias.next

YAML is used as a notation and for nothing else: one mapping of strings, without tags, anchors or repeated keys.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import yaml

from planner.errors import UsageError
from planner.strict_yaml import loader_for, read_text, shown

_MOST_BYTES: Final = 10_000_000


def read_pairs(path: Path) -> tuple[tuple[str, str], ...]:
    """The pairs of a file, in its order.

    Raises:
        UsageError: it cannot be read, or is no such mapping; with every finding and its line.
    """
    text = read_text(path, _MOST_BYTES)
    try:
        # Events come one by one and build nothing: an alias is refused before it could be followed.
        events = list(yaml.parse(text, Loader=loader_for(text)))
    except yaml.reader.ReaderError as error:
        raise UsageError(f"{path}: not YAML: it holds the character {shown(error.character)}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise UsageError(f"{path}: not YAML", facts=(f"line {line}: {error.problem or error.context}",)) from error
    return _pairs(path, events)


def _pairs(path: Path, events: list[yaml.Event]) -> tuple[tuple[str, str], ...]:
    inner = [event for event in events if not isinstance(event, yaml.StreamStartEvent | yaml.StreamEndEvent)]
    body = [event for event in inner if not isinstance(event, yaml.DocumentStartEvent | yaml.DocumentEndEvent)]
    if len(inner) - len(body) > 2:
        raise UsageError(f"{path}: more than one YAML document")
    is_mapping = len(body) >= 2 and isinstance(body[0], yaml.MappingStartEvent)
    if not is_mapping or not isinstance(body[-1], yaml.MappingEndEvent):
        raise UsageError(f"{path}: it must be a mapping, one 'state: next state' a line")
    facts: list[str] = []
    names: list[str] = []
    for event in body[1:-1]:
        line = event.start_mark.line + 1 if event.start_mark is not None else 0
        if not isinstance(event, yaml.ScalarEvent) or event.tag or event.anchor:
            facts.append(f"line {line}: only plain names are taken")
        else:
            names.append(event.value)
    pairs = tuple(zip(names[::2], names[1::2], strict=False))
    times = Counter(state for state, _ in pairs)
    facts.extend(f"{state!r} is there twice" for state, count in times.items() if count > 1)
    if facts:
        raise UsageError(f"{path}: not a file of pairs", facts=tuple(facts))
    return pairs
