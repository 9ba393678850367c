"""Records: dataclasses that say themselves what JSON says of them. ``plain`` makes the values, and
``tests/tools/schemas.py`` the JSON schemas, of the same description.

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
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import PurePath
from typing import Annotated, Any, NamedTuple, SupportsFloat, SupportsIndex, TypeAlias


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """What a schema says of a number or a text beside its type."""

    minimum: int | None = 0
    maximum: int | None = None
    above: int | None = None
    below: int | None = None
    pattern: str | None = None
    is_finite: bool = True
    """Else null stands for what JSON has no number for."""


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
