"""Records: what is written of them is read again, and everything else is refused with its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import pytest

from planner.algebra.region import Region
from planner.records import Kind, Positive, Signed, plain, reader
from planner.strict_json import JsonError, Value, parse_json


@dataclass(frozen=True)
class Part:
    told: ClassVar = "name weight change? region"

    name: str
    weight: float
    change: Signed | None
    region: Region | None


@dataclass(frozen=True)
class Row:
    told: ClassVar = "=row"

    name: str
    is_last: bool

    @property
    def row(self) -> Annotated[tuple[str, bool], Kind(noun="row: name, whether it is the last")]:
        return self.name, self.is_last


@dataclass(frozen=True)
class Whole:
    told: ClassVar = "counts parts rows texts=written size"

    counts: tuple[Positive, ...]
    parts: Mapping[str, Part]
    rows: tuple[Row, ...]
    numbers: Annotated[tuple[int, ...], Kind(member="texts")]
    size: Literal["small", "large"] = "small"
    beside: tuple[str, ...] = field(default_factory=tuple)

    @property
    def written(self) -> tuple[int, ...]:
        return self.numbers


WHOLE = Whole(
    (1, 2),
    {"a": Part("x", 0.5, -3, None), "b": Part("", 7, None, Region((0, 1), (2, 3)))},
    (Row("r", True), Row("s", False)),
    (5, 0),
    "large",
)


def test_what_is_written_is_read_again() -> None:
    assert reader(Whole)(parse_json(json.dumps(plain(WHOLE)))) == WHOLE


def test_members_with_a_default_may_be_absent_or_null() -> None:
    data = {**plain(WHOLE), "size": None, "beside": ["t"], "unknown": 1}
    read = reader(Whole)(parse_json(json.dumps(data)))
    assert (read.size, read.beside) == ("small", ("t",))


@pytest.mark.parametrize(
    ("member", "value", "said"),
    [
        ("counts", [1, 0], "counts[1] is a number (0), not a whole number of at least 1"),
        ("counts", None, "counts is null, not a list"),
        ("parts", {"a": 1}, "parts.a is a number (1), not an object"),
        ("parts", {"a": {"name": 1}}, "parts.a.name is a number (1), not a text"),
        ("parts", {"a": {"name": "x", "weight": 1}}, "parts.a lacks 'region'"),
        ("parts", {"a": {"name": "x", "weight": -1}}, "parts.a.weight is a number (-1), not a finite number that is"),
        ("parts", {"a": {"name": "x", "weight": 1, "change": "x"}}, 'parts.a.change is a text ("x"), not a whole'),
        ("parts", {"a": {"name": "x", "weight": 1, "region": [[0]]}}, "parts.a.region is no list of 2 values"),
        ("rows", [["r", True, 1]], "rows[0] is no row: name, whether it is the last"),
        ("rows", [["r", 1]], "rows[0][1] is a number (1), not true or false"),
        ("texts", ["x"], 'texts[0] is a text ("x"), not a whole number'),
        ("size", "huge", "size is neither small nor large: huge"),
    ],
)
def test_what_is_something_else_is_refused_with_its_place(member: str, value: object, said: str) -> None:
    with pytest.raises(JsonError) as caught:
        reader(Whole)(parse_json(json.dumps({**plain(WHOLE), member: value})))
    assert str(caught.value).startswith(said)


def test_a_type_that_cannot_say_how_it_is_read_has_a_reader_of_its_own() -> None:
    def backwards(value: Value) -> Part:
        return Part(value.text()[::-1], 0, None, None)

    read = reader(dict[str, Part], {Part: backwards})(parse_json('{"a": "xyz"}'))
    assert read["a"].name == "zyx"
    with pytest.raises(TypeError, match="nothing reads <class 'complex'>"):
        reader(complex)
