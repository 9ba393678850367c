"""Topology files: strict YAML into frozen dataclasses.

    name: p2.8xlarge
    source: Tofu §7.1
    device: {memory: 12GiB, compute: {float32: 4.1TFLOP/s}, memory_bandwidth: 240GB/s}
    levels:                          # outermost, slowest first; ways multiply to the device count
      - {name: socket, ways: 2, bandwidth: 10GB/s, latency: 10us}
      - {name: pcie,   ways: 4, bandwidth: 21GB/s, latency: 5us}

YAML is used as a notation and for nothing else: no tags, anchors or aliases; a key twice is an error, and so is
one that nobody reads. All findings of a file are reported at once, each with its line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import yaml

from planner import units
from planner.errors import UsageError, did_you_mean
from planner.graph.model import DType

_MOST_CHARACTERS = 1_000_000
_DEEPEST = 16
_MOST_DEVICES = 2**20


@dataclass(frozen=True, slots=True)
class Device:
    """What each worker runs on."""

    memory_bytes: int
    """What tensors and workspaces of one worker must fit into."""
    compute_flop_per_s: tuple[tuple[DType, float], ...] = ()
    """Peak speed per element type, in the order of the file; a type that is absent is unknown, not slow."""
    memory_bandwidth_bytes_per_s: float | None = None
    """Of the device's own memory; None where the file does not say."""

    def flop_per_s(self, dtype: DType) -> float | None:
        """Peak speed for elements of this type, or None where the file does not say."""
        return dict(self.compute_flop_per_s).get(dtype)


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the interconnect: ``ways`` groups of devices, joined by one kind of link."""

    name: str
    ways: int
    """How many groups this level joins, at least 1."""
    bandwidth_bytes_per_s: float
    """What one device receives over this level when nothing else uses it."""
    latency_seconds: float = 0.0
    """Of one transfer, whatever its size."""


@dataclass(frozen=True, slots=True)
class Topology:
    """A machine, or several: equal devices at the leaves of a tree of levels."""

    name: str
    device: Device
    levels: tuple[Level, ...]
    """Outermost (slowest) first, as cuts are mapped on them; () for a single device."""
    source: str = ""
    """Where the figures are from."""

    @property
    def device_count(self) -> int:
        """The product of the levels' ways."""
        return math.prod(level.ways for level in self.levels)


def load_topology(name_or_path: str | Path) -> Topology:
    """Read a topology file, or one that ships with tofu by its name.

    Args:
        name_or_path: a path, or a shipped file's name without the suffix ("p2.8xlarge"). What looks like a path
            (has a separator, or ends in .yaml or .yml) is one; an existing file goes before a shipped name.

    Raises:
        UsageError: there is no such file, or it is not a topology; with every finding and its line.
    """
    text = str(name_or_path)
    path = Path(name_or_path)
    looks_like_a_path = isinstance(name_or_path, Path) or "/" in text or text.endswith((".yaml", ".yml"))
    if not looks_like_a_path and not path.is_file():
        import configs

        try:
            path = configs.find(text)
        except KeyError:
            known = configs.names()
            raise UsageError(
                f"--topology: there is no file {text!r}, and no topology of that name ships with tofu",
                facts=(f"shipped: {', '.join(known)}",),
                hint=did_you_mean(text, known),
            ) from None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return parse_topology(content.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error


def parse_topology(text: str, origin: str) -> Topology:
    """Read the text of a topology file.

    Args:
        text: the YAML.
        origin: what errors call it, e.g. its path.

    Raises:
        UsageError: it is not a topology; with every finding and its line.
    """
    reader = _Reader()
    root = reader.compose(text, origin)
    topology = _read_topology(reader, root)
    if topology is None or reader.findings:
        facts = tuple(f"line {line}: {finding}" for line, finding in sorted(dict.fromkeys(reader.findings)))
        raise UsageError(f"{origin}: not a usable topology", facts=facts)
    return topology


def _read_topology(reader: _Reader, root: yaml.Node) -> Topology | None:
    if (
        isinstance(root, yaml.MappingNode)
        and (graph_form := {"devices", "links"} & set(_written_keys(root)))
        and "levels" not in _written_keys(root)
    ):
        reader.found(root, f"a device graph ({', '.join(sorted(graph_form))}) is not read yet: describe it as levels")
        return None
    fields = reader.mapping(root, "the file", required=("name", "device", "levels"), optional=("source",))
    if fields is None:
        return None
    name = reader.text(fields.get("name"), "name")
    source = reader.text(fields.get("source"), "source")
    device = _read_device(reader, fields.get("device"))
    nodes = reader.sequence(fields.get("levels"), "levels")
    levels = [_read_level(reader, node, f"levels[{i}]") for i, node in enumerate(nodes)]
    read = tuple(level for level in levels if level is not None)
    _check_levels(reader, read, nodes)
    if name is None or device is None or len(read) != len(nodes):
        return None
    return Topology(name=name, source=source or "", device=device, levels=read)


def _check_levels(reader: _Reader, levels: tuple[Level, ...], nodes: list[yaml.Node]) -> None:
    if len(levels) != len(nodes):
        return
    first: dict[str, yaml.Node] = {}
    for level, node in zip(levels, nodes, strict=True):
        if level.name in first:
            line = first[level.name].start_mark.line + 1
            reader.found(node, f"levels: the name {level.name!r} is taken by the level of line {line}")
        first.setdefault(level.name, node)
    if nodes and math.prod(level.ways for level in levels) > _MOST_DEVICES:
        reader.found(nodes[0], f"levels: their ways multiply to more than {_MOST_DEVICES:,} devices")


def _read_device(reader: _Reader, node: yaml.Node | None) -> Device | None:
    fields = reader.mapping(node, "device", required=("memory",), optional=("compute", "memory_bandwidth"))
    if fields is None:
        return None
    memory = reader.quantity(fields.get("memory"), "device.memory", units.parse_bytes)
    bandwidth = reader.quantity(
        fields.get("memory_bandwidth"), "device.memory_bandwidth", units.parse_bytes_per_s, positive=True
    )
    by_dtype = {dtype.value: dtype for dtype in DType}
    speeds = reader.mapping(fields.get("compute"), "device.compute", optional=tuple(by_dtype))
    compute: list[tuple[DType, float]] = []
    for key, value in (speeds or {}).items():
        speed = reader.quantity(value, f"device.compute.{key}", units.parse_flop_per_s, positive=True)
        if speed is not None:
            compute.append((by_dtype[key], float(speed)))
    if memory is None:
        return None
    return Device(int(memory), tuple(compute), None if bandwidth is None else float(bandwidth))


def _read_level(reader: _Reader, node: yaml.Node, where: str) -> Level | None:
    fields = reader.mapping(node, where, required=("name", "ways", "bandwidth"), optional=("latency",))
    if fields is None:
        return None
    name = reader.text(fields.get("name"), f"{where}.name")
    ways = reader.count(fields.get("ways"), f"{where}.ways")
    bandwidth = reader.quantity(fields.get("bandwidth"), f"{where}.bandwidth", units.parse_bytes_per_s, positive=True)
    latency = reader.quantity(fields.get("latency"), f"{where}.latency", units.parse_seconds)
    if name is None or ways is None or bandwidth is None:
        return None
    return Level(name, ways, float(bandwidth), float(latency or 0))


def _written_keys(node: yaml.MappingNode) -> list[str]:
    return [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]


class _Reader:
    """Takes values out of YAML nodes and collects what is wrong with them, by line.

    Every method takes None for a key that is absent and returns None for it: ``mapping`` has reported it already.
    """

    def __init__(self) -> None:
        self.findings: list[tuple[int, str]] = []

    def found(self, node: yaml.Node, finding: str) -> None:
        """Note a finding at the line where the node begins (counted from 1)."""
        self.findings.append((node.start_mark.line + 1, finding))

    def compose(self, text: str, origin: str) -> yaml.Node:
        """The root node; raises UsageError for what is no YAML, or more of it than a list of figures needs."""
        if len(text) > _MOST_CHARACTERS:
            raise UsageError(f"{origin}: too long for a topology ({len(text):,} characters)")
        try:
            self._refuse_machinery(text, origin)
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.reader.ReaderError as error:
            raise UsageError(f"{origin}: not YAML: it holds the character {_shown(error.character)}") from error
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
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            line = _line_of(event.start_mark)
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                refused.append((line, "a second document: one file holds one topology"))
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
            if depth > _DEEPEST:
                refused.append((line, f"more than {_DEEPEST} levels of nesting"))
                break
            if len(refused) >= 10:
                break
        if refused:
            facts = tuple(f"line {line}: {finding}" for line, finding in refused)
            raise UsageError(f"{origin}: YAML beyond what a topology needs", facts=facts)

    def mapping(
        self, node: yaml.Node | None, where: str, *, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()
    ) -> dict[str, yaml.Node] | None:
        """The known keys' nodes in the order of the file; unknown, repeated and missing ones are findings."""
        if node is None:
            return None
        if not isinstance(node, yaml.MappingNode):
            self.found(node, f"{where}: expected keys and values, found {_kind(node)}")
            return None
        known = required + optional
        fields: dict[str, yaml.Node] = {}
        first_lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.found(key, f"{where}: a key must be a name, found {_kind(key)}")
                continue
            name = str(key.value)
            if name in first_lines:
                self.found(key, f"{where}: the key {_shown(name)} was given before, on line {first_lines[name]}")
                continue
            first_lines[name] = key.start_mark.line + 1
            if name in known:
                fields[name] = value
            else:
                advice = did_you_mean(name, known) or f"known are {', '.join(known)}"
                self.found(key, f"{where}: unknown key {_shown(name)}; {advice}")
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

    def count(self, node: yaml.Node | None, where: str) -> int | None:
        """A whole number from 1, in plain decimal digits (YAML would take 010 for 8)."""
        if node is None:
            return None
        if _kind(node) != "a whole number" or not re.fullmatch(r"[1-9][0-9]{0,8}", node.value):
            shown = f" {node.value}" if _kind(node) in ("a whole number", "a number") else ""
            self.found(node, f"{where}: expected a whole number from 1, found {_kind(node)}{shown}")
            return None
        return int(node.value)

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


def _shown(text: object) -> str:
    """A name from a file, as an error shows it: quoted, escaped, and not endless."""
    quoted = repr(text if isinstance(text, str) else chr(text) if isinstance(text, int) else str(text))
    return quoted if len(quoted) <= 60 else f"{quoted[:57]}…'"
