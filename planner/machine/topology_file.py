"""Topology files: strict YAML into frozen dataclasses.

    name: p2.8xlarge
    source: Tofu §7.1
    device: {memory: 12GiB, compute: {float32: 4.1TFLOP/s}, memory_bandwidth: 240GB/s}
    levels:                          # outermost, slowest first; ways multiply to the device count
      - {name: socket, ways: 2, bandwidth: 10GB/s, latency: 10us, shared_by: 4}
      - {name: pcie,   ways: 4, bandwidth: 21GB/s, latency: 5us}

or a graph of devices and links (ICML'18, section 4):

    device: {memory: 16GB}           # what entries of ``devices`` leave out
    devices: [{id: 0}, {id: 1}, {id: 2, memory: 24GB}]
    switches: [host]                 # joins links, computes nothing
    links:
      - {between: [0, 1], bandwidth: 20GB/s, latency: 3us}
      - {between: [1, host], bandwidth: 16GB/s}
      - {between: [2, host], bandwidth: 16GB/s}

All findings of a file are reported at once, each with its line (``planner.strict_yaml``). Both forms are documented
in docs/machines.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeAlias

import yaml

from planner.errors import UsageError, did_you_mean
from planner.graph.core.model import DType
from planner.machine.figures import read_fields
from planner.records import Above0, Kind, Positive
from planner.strict_yaml import Reader, read_text, shown
from planner.walk import walk

_MOST_DEVICES = 2**20
_MOST_GRAPH_DEVICES = 1024
"""Of a device graph, whose routes are found between all pairs."""
_MOST_BYTES = 4_000_000


_Share: TypeAlias = Annotated[float, Kind(above=0, maximum=1)]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The share of their peak that kernels attain."""

    compute: _Share
    memory: _Share


@dataclass(frozen=True, slots=True)
class Device:
    """The device of a worker."""

    memory_bytes: int
    """What tensors and workspaces of one worker must fit into."""
    compute_flop_per_s: Annotated[tuple[tuple[DType, float], ...], Kind(above=0)] = ()
    """Peak speed per element type, in the order of the file; a type that is absent is unknown, not slow."""
    memory_bandwidth_bytes_per_s: Above0 | None = None
    """Peak of the device's own memory; None where the file does not say."""
    efficiency: Efficiency = Efficiency(1.0, 1.0)
    """Of both peaks."""
    launch_seconds: float | None = None
    """Least time of a kernel: the host launches the next one no sooner. None where the file does not say: ops launch
    no kernels (``planner.cost.kernels``)."""

    def flop_per_s(self, dtype: DType) -> float | None:
        """Peak speed for elements of this type, or None where the file does not say."""
        return dict(self.compute_flop_per_s).get(dtype)

    @property
    def speed(self) -> Device:
        """Equal for devices that take equally long for an op."""
        speeds = sorted(self.compute_flop_per_s, key=lambda pair: pair[0].value)
        return replace(self, memory_bytes=0, compute_flop_per_s=tuple(speeds))


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the interconnect: ``ways`` groups of devices, joined by one kind of link."""

    name: str
    ways: Positive
    """How many groups this level joins, at least 1."""
    bandwidth_bytes_per_s: Above0
    """What one device receives over this level when nothing else uses it; as much can be sent at the same time."""
    latency_seconds: float = 0.0
    """Of one transfer, whatever its size."""
    shared_by: Positive = 1
    """How many neighbouring devices share that bandwidth: 4 where four GPUs have one network adapter."""


@dataclass(frozen=True, slots=True)
class Topology:
    """A machine, or several: equal devices at the leaves of a tree of levels."""

    name: str
    device: Device
    levels: tuple[Level, ...]
    """Outermost (slowest) first, as cuts are mapped on them; () for a single device."""
    source: str = ""
    """Where the figures are from."""
    used: int | None = None
    """Of a part of the machine: the first so many devices, which are the nearest to each other; None: all of them."""

    @property
    def whole_count(self) -> int:
        """The devices of the whole machine: the product of the levels' ways."""
        return math.prod(level.ways for level in self.levels)

    @property
    def device_count(self) -> int:
        """The devices that are used."""
        return self.whole_count if self.used is None else self.used

    @property
    def devices(self) -> tuple[Device, ...]:
        """One entry for each device, all of them equal."""
        return (self.device,) * self.device_count


@dataclass(frozen=True, slots=True)
class DeviceLink:
    """A link between two nodes of a device graph; each direction has all of the bandwidth."""

    between: tuple[int, int]
    """Nodes: devices by their ids; switches count on from there, in the order of the file."""
    bandwidth_bytes_per_s: Above0
    latency_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceGraph:
    """Devices, of one kind or several, and the links between them (ICML'18, section 4)."""

    name: str
    devices: tuple[Device, ...]
    """By id."""
    links: tuple[DeviceLink, ...]
    switches: tuple[str, ...] = ()
    """Names of the nodes that only join links."""
    source: str = ""

    @property
    def device_count(self) -> int:
        return len(self.devices)

    def node_name(self, node: int) -> str:
        """The name of a node in messages."""
        return f"device {node}" if node < len(self.devices) else f"switch {self.switches[node - len(self.devices)]}"


Machine: TypeAlias = Topology | DeviceGraph
"""What a topology file describes."""


def load_topology(name_or_path: str | Path) -> Machine:
    """Read a topology file, or one that ships with tofu by its name.

    Args:
        name_or_path: a path, or a shipped file's name without the suffix ("p2.8xlarge"). What looks like a path
            (has a separator, or ends in .yaml or .yml) is one; an existing file goes before a shipped name.

    Raises:
        UsageError: there is no such file, or it is not a topology; with every finding and its line.
    """
    path = topology_file(name_or_path)
    return shipped_topology(str(name_or_path)) if path is None else _read_file(path)


def topology_file(name_or_path: str | Path) -> Path | None:
    """The user's file that a topology is read from, there or not; None for the name of one that ships with tofu."""
    text, path = str(name_or_path), Path(name_or_path)
    looks_like_a_path = isinstance(name_or_path, Path) or "/" in text or text.endswith((".yaml", ".yml"))
    return path if looks_like_a_path or path.is_file() else None


def shipped_topology(name: str) -> Machine:
    """A topology that ships with tofu. What a plan calls its topology is looked up here, and never taken for a path.

    Args:
        name: its file's name without the suffix.

    Raises:
        UsageError: none of that name ships.
    """
    from planner import configs

    try:
        return _read_file(configs.find(name))
    except KeyError:
        known = configs.names()
        raise UsageError(
            f"--topology: there is no file {name!r}, and no topology of that name ships with tofu",
            facts=(f"shipped: {', '.join(known)}",),
            hint=did_you_mean(name, known),
        ) from None


def _read_file(path: Path) -> Machine:
    return parse_topology(read_text(path, _MOST_BYTES), str(path))


def parse_topology(text: str, origin: str) -> Machine:
    """Read the text of a topology file.

    Args:
        text: the YAML.
        origin: what errors call it, e.g. its path.

    Raises:
        UsageError: it is not a topology; with every finding and its line.
    """
    reader = Reader()
    root = reader.compose(text, origin)
    is_graph = isinstance(root, yaml.MappingNode) and _is_graph({_written(key) for key, _ in root.value})
    machine = _read_graph(reader, root) if is_graph else _read_topology(reader, root)
    if machine is None or reader.findings:
        facts = tuple(f"line {line}: {finding}" for line, finding in sorted(dict.fromkeys(reader.findings)))
        raise UsageError(f"{origin}: not a usable topology", facts=facts)
    return machine


def _is_graph(keys: set[str]) -> bool:
    return bool({"devices", "links"} & keys) and "levels" not in keys


def _written(key: yaml.Node) -> str:
    return str(key.value) if isinstance(key, yaml.ScalarNode) else ""


def _read_topology(reader: Reader, root: yaml.Node) -> Topology | None:
    nodes, values = read_fields(reader, root, "the file", Topology, apart=("used",))
    if values is None:
        return None
    topology = Topology(**values)
    _check_levels(reader, topology.levels, reader.sequence(nodes["levels"], "levels"))
    return topology


def _check_levels(reader: Reader, levels: tuple[Level, ...], nodes: list[yaml.Node]) -> None:
    first: dict[str, yaml.Node] = {}
    for level, node in zip(levels, nodes, strict=True):
        if level.name in first:
            line = first[level.name].start_mark.line + 1
            reader.found(node, f"levels: the name {level.name!r} is taken by the level of line {line}")
        first.setdefault(level.name, node)
    if nodes and math.prod(level.ways for level in levels) > _MOST_DEVICES:
        reader.found(nodes[0], f"levels: their ways multiply to more than {_MOST_DEVICES:,} devices")
        return
    below = 1
    for number in reversed(range(len(levels))):
        if below % levels[number].shared_by:
            text = f"a group of this level has {below} devices, and {levels[number].shared_by} does not divide that"
            reader.found(nodes[number], f"levels[{number}].shared_by: {text}")
        below *= levels[number].ways


def _read_device(
    reader: Reader, node: yaml.Node | None, where: str, *, base: Device | None = None, is_entry: bool = False
) -> Device | None:
    """A device; an entry of ``devices`` has an id besides, and may leave out what ``base`` says."""
    has_base = base is not None
    _, values = read_fields(reader, node, where, Device, required=("id",) * is_entry, has_base=has_base)
    if values is None or node is None:
        return None
    return Device(**values) if base is None else replace(base, **values)


def _read_graph(reader: Reader, root: yaml.Node) -> DeviceGraph | None:
    fields = reader.mapping(
        root, "the file", required=("name", "devices", "links"), optional=("source", "device", "switches")
    )
    if fields is None:
        return None
    name = reader.text(fields.get("name"), "name")
    source = reader.text(fields.get("source"), "source")
    base = _read_device(reader, fields.get("device"), "device")
    devices = _read_devices(reader, fields.get("devices"), base)
    switches: dict[str, None] = {}
    for number, node in enumerate(reader.sequence(fields.get("switches"), "switches")):
        switch = reader.text(node, f"switches[{number}]")
        if switch in switches:
            reader.found(node, f"switches[{number}]: {shown(switch)} is there twice")
        if switch is not None:
            switches[switch] = None
    ends: dict[int | str, int] = {device: device for device in range(len(devices))}
    ends |= {switch: len(devices) + number for number, switch in enumerate(switches)}
    links: dict[tuple[int, int], DeviceLink] = {}
    for number, node in enumerate(reader.sequence(fields.get("links"), "links")):
        link = _read_link(reader, node, f"links[{number}]", ends)
        if link is None:
            continue
        pair = (min(link.between), max(link.between))
        if pair in links:
            reader.found(node, f"links[{number}]: these two are linked already; add the bandwidths up")
        links[pair] = link
    if name is None or not devices or "links" not in fields:
        return None
    graph = DeviceGraph(name, devices, tuple(links.values()), tuple(switches), source or "")
    if not reader.findings:
        _check_connected(reader, graph, fields["links"])
    return graph


def _read_devices(reader: Reader, node: yaml.Node | None, base: Device | None) -> tuple[Device, ...]:
    """The devices by id; () where they are not those from 0 on."""
    found: dict[int, Device] = {}
    nodes = reader.sequence(node, "devices")
    for number, entry in enumerate(nodes):
        where = f"devices[{number}]"
        device = _read_device(reader, entry, where, base=base, is_entry=True)
        identity = next((value for key, value in entry.value if _written(key) == "id"), None) if device else None
        wanted = reader.count(identity, f"{where}.id", least=0)
        if device is None or wanted is None:
            continue
        if wanted in found or wanted >= len(nodes):
            what = (
                "is there twice" if wanted in found else f"is beyond the last of {len(nodes)} devices, counted from 0"
            )
            reader.found(entry, f"{where}.id: {wanted} {what}")
        found[wanted] = device
    if node is not None and isinstance(node, yaml.SequenceNode) and not 1 <= len(nodes) <= _MOST_GRAPH_DEVICES:
        reader.found(node, f"devices: {len(nodes):,} devices; a device graph has 1 to {_MOST_GRAPH_DEVICES:,}")
    return tuple(found[number] for number in range(len(found)) if number in found)


def _read_link(reader: Reader, node: yaml.Node, where: str, ends: dict[int | str, int]) -> DeviceLink | None:
    fields, values = read_fields(reader, node, where, DeviceLink, apart=("between",), required=("between",))
    named = reader.sequence(fields.get("between"), f"{where}.between")
    if "between" in fields and len(named) != 2:
        reader.found(node, f"{where}.between: expected two devices or switches, found {len(named)}")
        return None
    found: list[int] = []
    for end in named:
        one: int | str | None
        if reader.is_whole_number(end):
            one = reader.count(end, f"{where}.between", least=0)
        else:
            one = reader.text(end, f"{where}.between")
        if one is not None and one not in ends:
            what = f"there is no device {one}" if isinstance(one, int) else f"there is no switch {shown(one)}"
            switches = [name for name in ends if isinstance(name, str)]
            advice = "" if isinstance(one, int) else did_you_mean(one, switches, len(reader.findings))
            reader.found(end, f"{where}.between: {what}" + (f"; {advice}" if advice else ""))
        elif one is not None:
            found.append(ends[one])
    if len(found) != 2 or values is None:
        return None
    if found[0] == found[1]:
        reader.found(node, f"{where}.between: a link to itself")
        return None
    return DeviceLink((found[0], found[1]), **values)


def _check_connected(reader: Reader, graph: DeviceGraph, node: yaml.Node) -> None:
    """Every device must reach every other one, over other nodes if need be."""
    reached = set(walk([0], lambda here: [sum(link.between) - here for link in graph.links if here in link.between]))
    apart = [number for number in range(graph.device_count + len(graph.switches)) if number not in reached]
    if apart:
        names = ", ".join(graph.node_name(number) for number in apart[:5]) + (", ..." if len(apart) > 5 else "")
        reader.found(node, f"links: no way leads from device 0 to {names}")
