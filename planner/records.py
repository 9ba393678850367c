"""Records: dataclasses that say themselves what JSON says of them. ``plain`` makes the values, ``reader`` reads them,
and ``tests/tools/schemas.py`` makes the JSON schemas, of the same description.

JSON says the fields of a record, under their names. A record of which it is to say something else has a text ``told``:
names of its fields and properties, in order.

=============== =====================================================================
``name``        under its name
``member=name`` under another one
``name?``       left out where it is None, or a field that is as it is by default
``*name``       not the record that is there, but its members; none where it is None
``-name``       not that member of it after all
``=name``       alone: the record is told as this is, without a name; ``=`` as its text
=============== =====================================================================

A name may be a way, ``plan.cuts``, on which None leads to None; ``#name`` is how many there are.

What a type does not say of numbers and texts, ``Kind`` says of a field: without one, numbers are not negative.

``reader`` takes a field from the member that says it, or else from the member of the field's own name. A member may be
absent, or null, where its field has a default or its word ends in ``?``.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from operator import methodcaller
from pathlib import PurePath
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    SupportsFloat,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:  # who only writes records need not load what reads JSON
    from planner.strict_json import Value

_T = TypeVar("_T")
Readers: TypeAlias = Mapping[Any, Callable[[Any], Any]]
"""By type, what reads a value of it where the type alone does not say how."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a field beside its type."""

    minimum: int | None = 0
    maximum: int | None = None
    above: int | None = None
    below: int | None = None
    pattern: str | None = None
    is_finite: bool = True
    """Else null stands for what JSON has no number for."""
    noun: str = ""
    """What a list of fixed length is, as in "is no pair of a state and its next value"."""
    member: str = ""
    """The member that the field is read from, where another one is written of it."""


Signed: TypeAlias = Annotated[int, Kind(minimum=None)]
Positive: TypeAlias = Annotated[int, Kind(minimum=1)]
Several: TypeAlias = Annotated[int, Kind(minimum=2)]
Sha256: TypeAlias = Annotated[str, Kind(pattern="^[0-9a-f]{64}$")]
Share: TypeAlias = Annotated[float, Kind(maximum=1, is_finite=False)]
Above0: TypeAlias = Annotated[float, Kind(minimum=None, above=0)]
AnyFloat: TypeAlias = Annotated[float, Kind(is_finite=False)]
SignedFloat: TypeAlias = Annotated[float, Kind(minimum=None)]
AnySignedFloat: TypeAlias = Annotated[float, Kind(minimum=None, is_finite=False)]


class Member(NamedTuple):
    """One word of ``told``."""

    name: str
    """In JSON; of ``=`` and ``*`` the mark."""
    attribute: str
    is_optional: bool


def members_of(record: type) -> tuple[Member, ...]:
    """What JSON says of a record, in order."""
    names = " ".join(field.name for field in dataclasses.fields(record))
    return _members_in(getattr(record, "told", names))


@cache
def _members_in(told: str) -> tuple[Member, ...]:
    return tuple(map(_member, told.split()))


def _member(word: str) -> Member:
    name = word.rstrip("?")
    if name[0] in "*-=":
        return Member(name[0], name[1:], False)
    member, _, attribute = name.partition("=")
    return Member(member if attribute else member.rpartition(".")[2], attribute or member, word != name)


def plain(value: Any) -> Any:
    """A value as JSON has it: texts, numbers, lists and mappings; a number that is not finite is None.

    Raises:
        TypeError: JSON has nothing for such a value.
    """
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {plain(key): plain(entry) for key, entry in value.items()}
    if dataclasses.is_dataclass(value):
        members = members_of(type(value))
        if members and members[0].name == "=":
            return plain(_at(value, members[0].attribute)) if members[0].attribute else str(value)
        return dict(_members(value))
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Collection):
        return [plain(entry) for entry in value]
    if isinstance(value, SupportsIndex):  # NumPy's
        return int(value)
    if isinstance(value, SupportsFloat):
        return float(value) if math.isfinite(value) else None
    raise TypeError(f"JSON has nothing for {type(value).__name__}")


def plain_record(record: Any) -> dict[str, Any]:
    """A record that is an output by itself: its members, behind the version of their schema."""
    return {"schema_version": record.schema_version, **dict(_members(record))}


def _members(record: Any) -> Iterator[tuple[str, Any]]:
    left_out = {member.attribute for member in members_of(type(record)) if member.name == "-"}
    for name, attribute, is_optional in members_of(type(record)):
        value = None if name == "-" else _at(record, attribute)
        if name == "*":
            yield from () if value is None else (member for member in _members(value) if member[0] not in left_out)
        elif name != "-" and not (is_optional and (value is None or _is_usual(record, attribute, value))):
            yield name, plain(value)


def _at(record: Any, path: str) -> Any:
    for name in path.removeprefix("#").split("."):
        record = None if record is None else getattr(record, name)
    return len(record) if path.startswith("#") else record


def _is_usual(record: Any, attribute: str, value: Any) -> bool:
    """Whether an optional member says nothing."""
    field = type(record).__dataclass_fields__.get(attribute)
    if field is None:
        return False
    return bool(value == (field.default if field.default_factory is dataclasses.MISSING else field.default_factory()))


def reader(kind: type[_T], readers: Readers | None = None) -> Callable[[Value], _T]:
    """What reads a value of a type: of what ``plain`` makes of a value, an equal value.

    Args:
        kind: the type: a record, a collection, a number or a text. ``Kind.pattern`` is not looked at.
        readers: of types within it that it cannot say itself.

    Returns:
        A function of a JSON value; it raises JsonError, with the place, where that is something else.

    Raises:
        TypeError: values of this type cannot be read.
    """
    return _reader(kind, readers or {}, Kind())


_SIMPLE: Final[Readers] = {
    str: methodcaller("text"),
    bool: methodcaller("flag"),
    float: methodcaller("number"),
}


def _reader(kind: Any, readers: Readers, about: Kind) -> Callable[[Value], Any]:
    origin, inner = get_origin(kind), get_args(kind)
    if kind in readers:
        return readers[kind]
    if origin is Annotated:
        return _reader(inner[0], readers, inner[1])
    if origin is Literal:
        return partial(_read_literal, choices=inner)
    if origin in (Union, UnionType) and len(inner) == 2 and inner[1] is NoneType:
        read = _reader(inner[0], readers, about)
        return lambda value: None if value.value is None else read(value)
    if origin is tuple:
        items = [_reader(item, readers, Kind()) for item in inner if item is not Ellipsis]
        if inner[-1] is Ellipsis:
            return partial(_read_list, read=items[0])
        return partial(_read_row, items=items, noun=about.noun or f"list of {len(items)} values")
    if origin in (dict, Mapping) and inner[0] is str:
        return partial(_read_mapping, read=_reader(inner[1], readers, Kind()))
    if kind is int:
        return methodcaller("integer") if about.minimum is None else methodcaller("count", least=about.minimum)
    if dataclasses.is_dataclass(kind):
        return _record_reader(kind, readers)
    if kind not in _SIMPLE or (kind is float and about.minimum != 0):
        raise TypeError(f"nothing reads {kind}")
    return _SIMPLE[kind]


def _read_literal(value: Value, choices: tuple[str, ...]) -> str:
    text = value.text()
    if text not in choices:
        nouns = f"neither {' nor '.join(choices)}" if len(choices) == 2 else f"none of {', '.join(choices)}"
        raise value.fault(f"is {nouns}: {text}")
    return text


def _read_list(value: Value, read: Callable[[Value], Any]) -> tuple[Any, ...]:
    return tuple([read(item) for item in value.values()])


def _read_row(value: Value, items: Collection[Callable[[Value], Any]], noun: str) -> tuple[Any, ...]:
    values = value.values()
    if len(values) != len(items):
        raise value.fault(f"is no {noun}")
    return tuple([read(item) for read, item in zip(items, values, strict=True)])


def _read_mapping(value: Value, read: Callable[[Value], Any]) -> dict[str, Any]:
    return {sys.intern(name): read(member) for name, member in value.members().items()}


class _Field(NamedTuple):
    """The reader of a record's field."""

    name: str
    member: str
    """Of JSON."""
    can_be_absent: bool
    has_default: bool
    read: Callable[[Value], Any]


def _record_reader(record: Any, readers: Readers) -> Callable[[Value], Any]:
    words = members_of(record)
    if words[0].name == "=" and words[0].attribute:
        getter = getattr(record, words[0].attribute).fget
        read_parts = _reader(get_type_hints(getter, include_extras=True)["return"], readers, Kind())
        return lambda value: record(*read_parts(value))
    types, by_attribute = _types_of(record), {word.attribute: word for word in words}
    fields = []
    for field in dataclasses.fields(record):
        kind, word = types[field.name], by_attribute.get(field.name, Member(field.name, field.name, False))
        about = get_args(kind)[1] if get_origin(kind) is Annotated else Kind()
        has_default = field.default is not field.default_factory  # both are MISSING where there is none
        can_be_absent = has_default or word.is_optional
        read = _reader(kind, readers, Kind())
        fields.append(_Field(field.name, about.member or word.name, can_be_absent, has_default, read))
    return partial(_read_record, record=record, fields=fields)


@cache
def _types_of(record: type) -> Mapping[str, Any]:
    return get_type_hints(record, include_extras=True)


def _read_record(value: Value, record: Any, fields: Collection[_Field]) -> Any:
    members: dict[str, Any] = {}
    for name, member, can_be_absent, has_default, read in fields:
        stated = value.get(member) if can_be_absent else value[member]
        if stated is not None:
            members[name] = read(stated)
        elif not has_default:
            members[name] = None
    return record(**members)
