"""Whether a value that was read from JSON has the form that its reader expects.

A form is said in the types of Python: ``str``, ``int`` (never a truth value), ``float`` (any number), ``None`` for
nothing, ``[form]`` for a list, ``{str: form}`` for a table with any names, ``(form, form)`` for one or the other, and
``Row((form, form))`` for a list of just so many values. A table with given names is ``{"name": form, ...}``; other
names may be there, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_WORDS: Final[Mapping[Any, str]] = {str: "text", int: "a whole number", float: "a number", None: "nothing"}
_SHOWN: Final = 40
"""Letters of a value that a message repeats."""


@dataclass(frozen=True)
class Row:
    """A list of values of these forms, in this order."""

    forms: Sequence[Any]


def fault_in(value: object, form: Any, place: str = "") -> str:
    """The first place where a value is of another form, and what stands there; "" if it fits.

    Args:
        value: what ``json.loads`` gave.
        form: see above.
        place: what the value is called, in messages.
    """
    if isinstance(form, tuple):
        faults = [fault_in(value, one, place) for one in form]
        return "" if "" in faults else next((fault for fault in faults if _inner(fault, place)), faults[0])
    if isinstance(form, list):
        if not isinstance(value, list):
            return _wrong(value, "a list", place)
        return _first(fault_in(item, form[0], f"{place}[{number}]") for number, item in enumerate(value))
    if isinstance(form, Row):
        if not isinstance(value, list) or len(value) != len(form.forms):
            return _wrong(value, f"a list of {len(form.forms)}", place)
        pairs = zip(value, form.forms, strict=True)
        return _first(fault_in(item, one, f"{place}[{number}]") for number, (item, one) in enumerate(pairs))
    if isinstance(form, dict):
        if not isinstance(value, dict):
            return _wrong(value, "a table", place)
        if str in form:
            return _first(fault_in(item, form[str], _inside(place, name)) for name, item in value.items())
        absent = next((name for name in form if name not in value), None)
        if absent is not None:
            return f"{_inside(place, absent)} is missing"
        return _first(fault_in(value[name], one, _inside(place, name)) for name, one in form.items())
    kinds = (int, float) if form is float else (type(None) if form is None else form)
    fits = isinstance(value, kinds) and not isinstance(value, bool)
    return "" if fits else _wrong(value, _WORDS[form], place)


def _first(faults: Any) -> str:
    return next((fault for fault in faults if fault), "")


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _inner(fault: str, place: str) -> bool:
    """Whether a fault lies inside of the value itself."""
    return bool(fault) and not fault.startswith(f"{place} is ")


def _wrong(value: object, wanted: str, place: str) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    return f"{place or 'it'} is {shown}, not {wanted}"
