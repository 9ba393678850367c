"""The derived reader of files of figures: the fields of a record say which keys a mapping has, and what each holds.

A number with a unit stands under its field's name without the unit: ``bandwidth: 21GB/s`` is ``bandwidth_bytes_per_s``.
Unlike ``planner.records.reader``, which raises the first fault of JSON that tofu wrote, this one collects all findings
of a file that a person wrote, each with its line (``planner.strict_yaml``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from planner.records import Kind
from planner.strict_yaml import Reader, shown
from planner.units import (
    Quantity,
    parse_bytes,
    parse_bytes_per_s,
    parse_flop_per_s,
    parse_ratio,
    parse_seconds,
    to_text,
)

Record = TypeVar("Record")
Parse = Callable[[str, str], int | Fraction]
_PARSES: Final[dict[str, Parse]] = {
    "_bytes_per_s": parse_bytes_per_s,
    "_flop_per_s": parse_flop_per_s,
    "_seconds": parse_seconds,
    "_bytes": parse_bytes,
}
"""By the unit in which a field's name ends; a float without one is a share."""


class _Field(NamedTuple):
    """How a field of a record stands in a file."""

    name: str
    key: str
    kind: Any
    about: Kind
    parse: Parse | None
    """Of a number with a unit."""
    has_default: bool


@cache
def _fields_of(record: type) -> tuple[_Field, ...]:
    kinds, fields = get_type_hints(record, include_extras=True), []
    for field in dataclasses.fields(record):
        kind, about = kinds[field.name], Kind()
        while get_origin(kind) in (Annotated, Union, UnionType):
            about = get_args(kind)[1] if get_origin(kind) is Annotated else about
            kind = get_args(kind)[0]
        unit = "" if about.member else next((unit for unit in _PARSES if f"_{field.name}".endswith(unit)), "")
        parse = _PARSES.get(unit, parse_ratio if kind is float else None)
        key = about.member or field.name.removesuffix(unit)
        fields.append(_Field(field.name, key, kind, about, parse, field.default is not dataclasses.MISSING))
    return tuple(fields)


def read_record(reader: Reader, node: yaml.Node | None, where: str, record: type[Record]) -> Record | None:
    """A record, or None where the mapping lacks a part of it, which is a finding.

    Args:
        reader: collects the findings.
        node: of the mapping; None: its key is absent.
        where: what findings call it; "the file" for the whole.
        record: a dataclass.
    """
    values = read_fields(reader, node, where, record)[1]
    return None if values is None else record(**values)


def read_fields(
    reader: Reader,
    node: yaml.Node | None,
    where: str,
    record: type,
    *,
    apart: tuple[str, ...] = (),
    required: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
    has_base: bool = False,
) -> tuple[dict[str, yaml.Node], dict[str, Any] | None]:
    """The nodes of a mapping by key, and the values by field; None where one is not there that has no default.

    Args:
        reader: collects the findings.
        node: see ``read_record``; so are the next two.
        where: the mapping's name.
        record: the dataclass.
        apart: fields that the file does not have, or the caller reads.
        required: keys that the caller reads.
        optional: the same, which may be absent.
        has_base: another record has a value for every field that the mapping leaves out.
    """
    fields = [field for field in _fields_of(record) if field.name not in apart]
    needed = [] if has_base else [field for field in fields if not field.has_default]
    usual = [field.key for field in fields if field not in needed]
    keys = (*required, *(field.key for field in needed))
    nodes = reader.mapping(node, where, required=keys, optional=(*usual, *optional)) or {}
    prefix = "" if where == "the file" else f"{where}."
    read = {field.name: _value(reader, nodes.get(field.key), prefix + field.key, field) for field in fields}
    values = {name: value for name, value in read.items() if value is not None}
    return nodes, values if all(field.name in values for field in needed) else None


def written(record: Any, apart: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a file says of a record without inner ones, by key; times have four digits."""
    values = {field: getattr(record, field.name) for field in _fields_of(record.__class__) if field.name not in apart}
    return {field.key: _seconds_text(value) if field.kind is float else value for field, value in values.items()}


def _seconds_text(seconds: float) -> str:
    assert 0 <= seconds < math.inf, f"{seconds} is no time"
    return to_text(Fraction(f"{seconds:.3e}"), Quantity.SECONDS)


def _value(reader: Reader, node: yaml.Node | None, where: str, field: _Field) -> Any:
    origin, inner = get_origin(field.kind), get_args(field.kind)
    if node is None:
        return None
    kind: Any = inner[0] if origin is tuple else field.kind
    if dataclasses.is_dataclass(kind) and origin is not tuple:
        return read_record(reader, node, where, kind)  # type: ignore[arg-type]  # a class, and no record
    if dataclasses.is_dataclass(kind):
        nodes = enumerate(reader.sequence(node, where))
        records = [read_record(reader, item, f"{where}[{number}]", kind) for number, item in nodes]  # type: ignore[arg-type]
        return None if None in records else tuple(records)
    if origin is tuple:  # of pairs: a figure for each member of an enumeration
        members, kind = get_args(kind)
        by_key = {member.value: member for member in members}
        stated = reader.mapping(node, where, optional=tuple(by_key)) or {}
        each = field._replace(kind=kind)
        figures = {key: _value(reader, item, f"{where}.{key}", each) for key, item in stated.items()}
        return tuple((by_key[key], figure) for key, figure in figures.items() if figure is not None)
    if origin is Literal:
        text = reader.text(node, where)
        if text is None or text in inner:
            return text
        reader.found(node, f"{where}: {shown(text)} is neither {' nor '.join(inner)}")
        return None
    if field.kind is str:
        return reader.text(node, where)
    if field.parse is None:
        return reader.count(node, where, least=field.about.minimum or 0)
    figure = reader.quantity(node, where, field.parse, positive=field.about.above == 0)
    if figure is not None and field.about.maximum is not None and figure > field.about.maximum:
        reader.found(node, f"{where}: must be at most {field.about.maximum:.0%}")
    return None if figure is None else field.kind(figure)
