"""Preparation that searches of one graph by several strategies share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

Made = TypeVar("Made")


class Prepared:
    """The preparation of graphs and ops, told apart by identity: whoever wants it again brings the same objects."""

    def __init__(self) -> None:
        self._objects: dict[tuple[object, ...], tuple[object, object]] = {}

    def once(self, name: str, of: tuple[object, ...], flags: tuple[bool, ...], make: Callable[[], Made]) -> Made:
        """The preparation of these objects under this name, made at the first question.

        Args:
            name: of what is made.
            of: objects that it is made of; they are kept with it, since an identity means something only while its
                object lives.
            flags: how it is made.
            make: makes it.
        """
        key = (name, *map(id, of), *flags)
        if key not in self._objects:
            self._objects[key] = make(), of
        return cast("Made", self._objects[key][0])
