"""A short text of a result whose members may be thousands: what Python and a notebook show of it."""

from __future__ import annotations

import html
from collections.abc import Collection
from dataclasses import fields
from pathlib import PurePath
from typing import Any

_LONGEST = 60
_MOST = 8
"""A collection of more entries is not turned into text to see how long that is."""


class ShortRepr:
    """A dataclass whose ``repr`` names each field: short values as they are, of others how many entries they have.

    A dataclass that takes this one for its base says ``repr=False``.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={value}" for name, value in self._members())
        return f"{type(self).__name__}({members})"

    def _repr_html_(self) -> str:
        """The fields as a table; called by notebooks."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._members()
        )
        return f"<table><caption>{html.escape(type(self).__name__)}</caption>{rows}</table>"

    def _members(self) -> list[tuple[str, str]]:
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]  # a base of dataclasses alone
        return [(name, _short(getattr(self, name))) for name in names]


def _short(value: Any) -> str:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, ShortRepr):
        return f"<{type(value).__name__}>"
    text = repr(value) if isinstance(value, str | bytes) or not _is_long(value) else ""
    if text and len(text) <= _LONGEST:
        return text
    if isinstance(value, Collection) and not isinstance(value, str | bytes):
        return f"<{len(value):,} {'entry' if len(value) == 1 else 'entries'}>"
    return f"{text[:_LONGEST]}…" if isinstance(value, str | bytes) else f"<{type(value).__name__}>"


def _is_long(value: Any) -> bool:
    return isinstance(value, Collection) and len(value) > _MOST
