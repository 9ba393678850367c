"""The pages of ``docs/reference``: options, operators, topologies and JSON, each from the code that decides it.

``make schemas`` writes them (``tests/tools/schemas.py``); ``tests/docs/test_reference.py`` fails if one is stale.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from all_commands import all_commands
from planner.features.ops.coverage import OperatorRow
from planner.features.ops.run import Operators
from planner.machine.topology_file import DeviceGraph, Machine, load_topology
from planner.units import Quantity, format_seconds, to_text

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "reference"
CLASSES: Final = {
    "element-wise": "along every dim",
    "reduction": "along dims of the output, and along a sum, maximum, minimum or product",
    "opaque": "along the dims that its function does not need whole",
    "affine": "along dims of the output; it moves, pads or repeats elements",
    "lowered": "as the operators in which it is written before planning",
    "excluded": "refused, or replicated with `--unknown-ops replicate` where its output shapes are static",
}
"""How operators of each class can be split."""


def _cell(text: str) -> str:
    """Text in one cell of a table."""
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    columns = list(head)
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    yield from (f"| {' | '.join(map(_cell, row))} |" for row in rows)
    yield ""


def _leaves(commands: Mapping[str, click.Command]) -> Iterator[tuple[str, click.Command]]:
    """Commands without commands of their own, by their whole name."""
    for name, command in commands.items():
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", one) for inner, one in _leaves(command.commands))
        else:
            yield name, command


def options() -> str:
    """Every option of every command, as click has them."""
    commands = sorted(_leaves(all_commands()))
    lines = ["# Options", ""]
    links = [
        (f"[`tofu {name}`](#tofu-{name.replace(' ', '-')})", one.get_short_help_str(200)) for name, one in commands
    ]
    lines += _table(("command", "purpose"), links)
    for name, command in commands:
        context = click.Context(command, info_name=f"tofu {name}", terminal_width=100)
        usage = " ".join(["tofu", name, *command.collect_usage_pieces(context)])
        first, _, rest = inspect.cleandoc(command.help or "").partition("\n\n")
        lines += [f"## tofu {name}", "", " ".join(first.split()), "", f"    {usage}", ""]
        if "Examples:\n" in rest:
            lines += [
                "Examples:",
                "",
                *(f"    {line.strip()}" for line in rest.partition("Examples:\n")[2].splitlines()),
            ]
            lines.append("")
        records = {}
        for option in command.params:
            if isinstance(option, click.Option) and (record := option.get_help_record(context)):
                records[option.opts[0]] = record
        rows = [(f"`{spelling}`", text) for spelling, text in records.values()]
        lines += _table(("option", "meaning"), rows)
    return "\n".join(lines).rstrip() + "\n"


def operators() -> str:
    """Every operator that has a description, or the reason why it has none."""
    coverage = Operators().coverage()

    def remark(row: OperatorRow) -> str:
        also = ["also split through simpler ops"] * row.has_body + ["deprecated"] * row.is_deprecated
        return "; ".join([*also, *([row.reason] if row.reason else [])])

    lines = ["# Operators", ""]
    lines += [
        f"{coverage.described} operators can be split. `tofu ops NAME` shows one: its index variables and its halos.",
        "[Your own operators](../operators.md) adds others. `gradient` says whether `tofu grad` can differentiate it.",
        "",
        *_table(("class", "split"), CLASSES.items()),
    ]
    for domain in sorted({row.domain for row in coverage.rows}):
        rows = [
            (
                f"`{row.op_type}`",
                *([", ".join(map(str, row.versions))] if not domain else []),
                row.operator_class.value,
                *(["yes" if row.gradient else "no"] if not domain else []),
                remark(row),
            )
            for row in coverage.rows
            if row.domain == domain
        ]
        lines += [f"## {domain or 'ONNX'}", ""]
        lines += _table(
            ("operator", *((("opsets", "class", "gradient")) if not domain else ("class",)), "remark"), rows
        )
    return "\n".join(lines).rstrip() + "\n"


def topologies() -> str:
    """Every topology that ships."""
    machines = {file.stem: load_topology(file) for file in sorted((ROOT / "configs").glob("*.yaml"))}
    rows = [
        (
            f"[`{name}`](../../configs/{name}.yaml)",
            str(machine.device_count),
            *_device(machine),
            "; ".join(_links(machine)),
            machine.source,
        )
        for name, machine in machines.items()
    ]
    head = (
        "topology",
        "devices",
        "memory",
        "peak speed, TFLOP/s",
        "memory bandwidth",
        "links, outermost first",
        "source",
    )
    lines = [
        "# Topologies",
        "",
        "`tofu plan --topology NAME` takes one of these. [Machines and time](../machines.md) has the format.",
        "",
    ]
    return "\n".join([*lines, *_table(head, rows)]).rstrip() + "\n"


def _device(machine: Machine) -> tuple[str, str, str]:
    device = machine.devices[0]
    speeds = ", ".join(f"{dtype.value} {speed / 1e12:g}" for dtype, speed in device.compute_flop_per_s)
    bandwidth = device.memory_bandwidth_bytes_per_s
    return to_text(device.memory_bytes, Quantity.BYTES), speeds, f"{bandwidth / 1e9:,g} GB/s" if bandwidth else ""


def _links(machine: Machine) -> Iterator[str]:
    if isinstance(machine, DeviceGraph):
        kinds = {(link.bandwidth_bytes_per_s, link.latency_seconds) for link in machine.links}
        for bandwidth, latency in sorted(kinds):
            count = sum(
                (link.bandwidth_bytes_per_s, link.latency_seconds) == (bandwidth, latency) for link in machine.links
            )
            yield f"{count} of {bandwidth / 1e9:g} GB/s, {format_seconds(latency)}"
        return
    for level in machine.levels:
        shared = f", shared by {level.shared_by}" if level.shared_by > 1 else ""
        latency = format_seconds(level.latency_seconds)
        yield f"{level.name}: {level.ways} ways, {level.bandwidth_bytes_per_s / 1e9:g} GB/s, {latency}{shared}"


def json_members(schemas: Mapping[Path, str]) -> str:
    """Every member of every schema.

    Args:
        schemas: by file the text.
    """
    lines = [
        "# JSON",
        "",
        "Members of each `--json` output and of the files in a plan's folder. A member in *italics* may be absent.",
        "`tofu schema NAME` prints the schema. [Python and JSON](../python.md) has the rules.",
        "",
    ]
    shared: dict[str, Any] = {}
    for file, text in sorted(schemas.items(), key=lambda pair: pair[0].stem):
        schema = json.loads(text)
        version = schema["$id"].rpartition(":")[2]
        lines += [f"## {file.stem}", "", f"{schema['title']}; schema version {version}.", "", *_members(schema)]
        shared |= schema.get("$defs", {})
    lines += ["## Records", "", "The records that the members above are made of.", ""]
    for name, schema in sorted(shared.items()):
        lines += [f"### record {name}", ""]
        if schema.get("description"):
            lines += [" ".join(schema["description"].split()), ""]
        lines += _members(schema)
    return "\n".join(lines).rstrip() + "\n"


def _members(schema: Mapping[str, Any]) -> Iterator[str]:
    required = set(schema.get("required", ()))
    rows = [
        (f"`{name}`" if name in required else f"*`{name}`*", _kind(member), member.get("description", ""))
        for name, member in schema.get("properties", {}).items()
    ]
    yield from _table(("member", "type", "meaning"), rows)


def _kind(schema: Mapping[str, Any]) -> str:
    """The type of a member in words."""
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return ", ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#record-{name.lower()})"
    kinds = schema.get("type", "any")
    if isinstance(kinds, list):
        return " or ".join(_kind({**schema, "type": kind}) for kind in kinds)
    if kinds == "array":
        return f"array of {_kind(schema.get('items', {}))}"
    if kinds == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object, by name {_kind(schema['additionalProperties'])}"
    return str(kinds)


def pages(schemas: Mapping[Path, str]) -> dict[Path, str]:
    """The text of each page, by file.

    Args:
        schemas: by file the text of each JSON schema.
    """
    return {
        FOLDER / "options.md": options(),
        FOLDER / "operators.md": operators(),
        FOLDER / "topologies.md": topologies(),
        FOLDER / "json.md": json_members(schemas),
    }
