"""Click's options of what a dataclass of options says (``planner.options``), and its keywords of what click gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import click

from planner.commands.options import COUNTS, LOSS_SCALE, NUMBERS, POSITIVE, SHARE, Assignment, by_name
from planner.options import Option, flags_of
from planner.records import Kind

_DEAR = {"StepReport": Any, "AnyInputs": Path, "Rates": str}
"""What the command line takes for types of Python that it does not import."""


def derived(record: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a command the options of a dataclass; it is called with them by the names of the fields."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for field, says, kind in reversed(list(_described(record))):
            function = _click_option(field, says, kind)(function)
        return function

    return decorate


def given(record: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a function for what click gives: of options that were given, or whose default help shows.

    Args:
        record: the dataclass.
        values: by field; a number may be 0.

    Raises:
        UsageError: a name is given twice, with two values.
    """
    keywords: dict[str, Any] = {}
    for field, _, kind in _described(record):
        value = values[field.name]
        if value is None or value is False or value == ():
            continue
        origin, inner = get_origin(kind), get_args(kind)
        if origin is Mapping:
            named = by_name(value, flags_of(field)[-1])
            keywords[field.name] = {name: int(size) for name, size in named.items()} if inner[1] is int else named
        elif origin is Sequence and get_origin(inner[0]) is tuple:
            keywords[field.name] = tuple(dict.fromkeys(value))
        else:
            keywords[field.name] = not value if kind is bool and field.default else value
    return keywords


def _described(record: type) -> Iterator[tuple[dataclasses.Field[Any], Option, Any]]:
    """The fields that are options, and their types without None: those that the command shares with others are last."""
    kinds = get_type_hints(record, localns=_DEAR, include_extras=True)
    for field in sorted(dataclasses.fields(record), key=lambda field: field.name not in record.__annotations__):
        if "option" in field.metadata:
            yield field, field.metadata["option"], _not_none(kinds[field.name])


def _not_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return Union[tuple(member for member in get_args(kind) if member is not NoneType)]  # noqa: UP007 - of a tuple


def _click_option(
    field: dataclasses.Field[Any], says: Option, kind: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    common: dict[str, Any] = {"help": says.help}
    if says.metavar is not None and not says.metavar.count("="):
        common["metavar"] = says.metavar
    if field.default is dataclasses.MISSING:
        common["required"] = True
    elif says.shows_default:
        common |= {"default": field.default, "show_default": True}
    if kind is bool:
        common["is_flag"] = True
    elif says.is_repeated or get_origin(kind) is Mapping:
        common["multiple"] = True
    return click.option(*flags_of(field), field.name, **common, **_typed(says, kind))


def _typed(says: Option, kind: Any) -> dict[str, Any]:
    """What click is told of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if says.choices:
        return {"type": click.Choice(says.choices)}
    if origin is Literal:
        return {"type": click.Choice(inner)}
    if origin is Mapping:
        return {"type": Assignment(says.metavar or "", size=inner[1] is int)}
    if origin is tuple:
        return {"nargs": len(inner), **_typed(says, inner[0])}
    if origin is Sequence:
        if inner[0] in (int, float):
            return {"type": NUMBERS} if inner[0] is float else {}  # whole numbers are for the command to read
        item = {"type": Assignment(says.metavar or "")} if get_origin(inner[0]) is tuple else _typed(says, inner[0])
        return {"multiple": True, **item}
    if origin is Annotated and inner[0] is int:
        return {"type": int if inner[1].minimum is None else click.IntRange(min=inner[1].minimum)}
    if origin is Annotated:
        return {"type": SHARE if inner[1].below is not None else POSITIVE}
    if kind is Path:
        return {"type": click.Path(path_type=Path)}
    if kind == Union[int, Sequence[int]]:  # noqa: UP007 - as it is without None
        return {"type": COUNTS}
    if origin in (Union, UnionType) and any(get_origin(member) is Literal for member in inner):
        return {"type": LOSS_SCALE}
    return {"type": click.IntRange(min=Kind().minimum)} if kind is int else {}
