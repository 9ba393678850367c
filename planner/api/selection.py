"""The selection of tensors and ops of a plan, and their order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import prod

from planner.errors import UsageError, did_you_mean
from planner.options.plans import HELD, ROLES, SortedBy
from planner.results import InPlaceRow, OpRow, StateRow, TensorRow

_SHOWN_TYPES = 12


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows of a plan."""

    tensors: tuple[TensorRow, ...]
    ops: tuple[OpRow, ...]
    in_place: tuple[InPlaceRow, ...]
    state: tuple[StateRow, ...]

    def has(self, name: str) -> bool:
        """Whether a tensor or op is called so, pattern or not."""
        return name in self._names or any(row.made_by == name for row in self.in_place)

    @property
    def _names(self) -> list[str]:
        return [row.name for rows in (self.tensors, self.ops, self.in_place) for row in rows]

    def about(self, subject: str) -> tuple[str, Selection]:
        """One tensor or op with those at its side; under the name that its rows have.

        Raises:
            UsageError: there is none of that name.
        """
        names = self._names
        if subject not in names:  # an op that is there no more is told by what it made
            subject = next((row.name for row in self.in_place if row.made_by == subject), subject)
        if subject not in names:
            hint = did_you_mean(subject, names) or f"write a pattern, '*{subject}*', or the plan's folder first"
            raise UsageError(f"no tensor or op of the plan is called {subject!r}", hint=hint)
        in_place = tuple(row for row in self.in_place if subject in (row.name, row.held_by))
        held_by = {row.held_by for row in in_place if subject == row.name}
        reading = {subject, *(name for row in in_place if subject == row.name for name in row.read_by)}
        ops = tuple(row for row in self.ops if row.name in reading or subject in row.inputs or subject in row.outputs)
        touched = {
            subject,
            *held_by,
            *(name for row in ops if row.name == subject for name in (*row.inputs, *row.outputs)),
        }
        tensors = tuple(row for row in self.tensors if row.name in touched)
        state = tuple(row for row in self.state if not touched.isdisjoint((row.current, row.following)))
        return subject, Selection(tensors, ops, in_place, state)

    def matching(self, pattern: str) -> Selection:
        """The tensors and ops whose names match.

        Raises:
            UsageError: none does.
        """

        def matches(name: str) -> bool:
            return fnmatchcase(name, pattern)

        selection = Selection(
            tuple(row for row in self.tensors if matches(row.name)),
            tuple(row for row in self.ops if matches(row.name)),
            tuple(row for row in self.in_place if matches(row.name)),
            tuple(row for row in self.state if matches(row.current) or matches(row.following)),
        )
        if not selection._names and any(matches(row.op_type) for row in self.ops):
            return self.of_type(pattern)
        if not selection._names:
            raise UsageError(
                f"no tensor or op of the plan matches {pattern!r}",
                hint=did_you_mean(pattern, self._names) or "* stands for any text, ? for a character",
            )
        return selection

    def of_role(self, role: str | None, held: Collection[str] = ()) -> Selection:
        """The tensors of a role, and no ops; everything where none is given.

        Args:
            role: by its name.
            held: the activations that are held for the backward pass, where these are asked for.

        Raises:
            UsageError: there is no such role, or no tensor of it.
        """
        if role is None:
            return self
        if role not in ROLES:
            raise UsageError(f"role {role!r} is not known", hint=did_you_mean(role, ROLES) or ", ".join(ROLES))
        value = role.replace("-", " ")
        tensors = tuple(row for row in self.tensors if (row.name in held if role == HELD else row.role.value == value))
        if not tensors:
            raise UsageError(f"no tensor that is asked for is {role}")
        names = {row.name for row in tensors}
        state = tuple(row for row in self.state if not names.isdisjoint((row.current, row.following)))
        return replace(self, tensors=tensors, ops=(), in_place=(), state=state)

    def of_type(self, op: str | None) -> Selection:
        """The ops of a type, or of a pattern of types, and no tensors; everything where none is given.

        Raises:
            UsageError: there is none.
        """
        if op is None:
            return self
        ops = tuple(row for row in self.ops if fnmatchcase(row.op_type, op))
        if not ops:
            types = sorted({row.op_type for row in self.ops})
            raise UsageError(
                f"no op that is asked for is of type {op!r}",
                hint=did_you_mean(op, types) or f"there are {', '.join(types[:_SHOWN_TYPES])}",
            )
        return replace(self, tensors=(), ops=ops, in_place=(), state=())

    def sorted_by(self, order: SortedBy | None) -> Selection:
        """The same, tensors by what moves because of them, by their sizes, or by names; ops by names alone."""
        if order is None:
            return self
        if order == "name":
            return replace(
                self,
                tensors=tuple(sorted(self.tensors, key=lambda row: row.name)),
                ops=tuple(sorted(self.ops, key=lambda row: row.name)),
            )
        if order == "moved":
            return replace(self, tensors=tuple(sorted(self.tensors, key=lambda row: -row.moved_bytes)))
        return replace(self, tensors=tuple(sorted(self.tensors, key=lambda row: -prod(row.shape))))
