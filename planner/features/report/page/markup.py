"""Elements of HTML and SVG, written so that no text of a model can become markup.

Text is escaped wherever it is put in, children and attributes alike; only what ``element`` made is taken as it is.
Control characters become visible escapes, as they do in a terminal.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TypeAlias

from planner.printable import printable


class Markup(str):
    """Markup that is whole and escaped already."""

    __slots__ = ()


Child: TypeAlias = "str | Markup | int | float"
_VOID = frozenset({"meta", "input", "br"})
"""Elements of HTML that have no end."""


def element(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """An element.

    >>> element("text", "<b>", "data_t", x=1.50, class_="w")
    '<text x="1.5" class="w">&lt;b&gt;data_t</text>'

    Args:
        name: of the element, ours.
        children: texts are escaped, markup is not.
        attributes: an underscore in a name stands for a hyphen, one at its end for nothing (``class_``); None and False
            leave the attribute out, True has it without a value.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    inner = "".join(escaped(child) for child in children)
    return Markup(f"<{name}{written}>{inner}</{name}>")


def chart(parts: Iterable[Child], width: float, height: float, label: str) -> Markup:
    """A picture of so many pixels; the label says to those who cannot see it what it shows."""
    box = f"0 0 {width:g} {height:g}"
    return element("svg", *parts, viewBox=box, width=width, height=height, role="img", aria_label=label)


def joined(*parts: Child) -> Markup:
    """Several of them, one after the other."""
    return Markup("".join(escaped(part) for part in parts))


def escaped(text: Child) -> Markup:
    """A text as markup that shows it; markup as it is."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(number(text) if isinstance(text, int | float) else printable(text)))


def number(value: int | float) -> str:
    """A number in as few digits as a picture needs: a hundredth of a unit."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _attribute(key: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped(value)}"'
