"""Choices of each variable of a search: lists of candidates, shared by the variables of repeated layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from planner.algebra.tiling import Tiling
from planner.cost.tables import Candidates
from planner.search.exact.rows import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The candidates of every variable."""

    lists: tuple[Candidates, ...]
    """The different lists; each is there once."""
    list_of: Ints
    """The number of each variable's list, shape [variables]."""

    @classmethod
    def of(cls, candidates: Sequence[Candidates]) -> Choices:
        """Makes choices of the candidates of each variable, equal lists being one object."""
        return cls.of_groups(candidates, np.arange(len(candidates)))

    @classmethod
    def of_groups(cls, candidates: Sequence[Candidates], group: Ints) -> Choices:
        """Makes choices of the candidates of groups of variables.

        Args:
            candidates: of each group, equal lists being one object.
            group: of each variable, shape [variables].
        """
        numbers: dict[int, int] = {}
        list_of = np.array([numbers.setdefault(id(values), len(numbers)) for values in candidates], dtype=np.int64)
        different = {id(values): values for values in candidates}
        return cls(tuple(different[identity] for identity in numbers), list_of[group])

    def __len__(self) -> int:
        return len(self.list_of)

    def __getitem__(self, variable: int) -> Candidates:
        return self.lists[self.list_of[variable]]

    @property
    def sizes(self) -> Ints:
        """The number of candidates of each variable."""
        return np.array([len(values) for values in self.lists], dtype=np.int64)[self.list_of]

    def chosen(self, values: Ints) -> tuple[Tiling, ...]:
        """The candidates that the variables' values stand for."""
        candidates = np.empty(sum(map(len, self.lists)), dtype=object)
        candidates[:] = list(chain.from_iterable(self.lists))
        return tuple(candidates[self._places(values)].tolist())

    def numbers(self, values: Ints) -> Ints:
        """A number for each of these candidates, equal for equal ones."""
        numbers: dict[Tiling, int] = {}
        offered = [numbers.setdefault(candidate, len(numbers)) for candidate in chain.from_iterable(self.lists)]
        return np.array(offered, dtype=np.int64)[self._places(values)]

    def _places(self, values: Ints) -> Ints:
        """The place of each variable's value in all lists, one after the other."""
        places: Ints = np.cumsum([0, *map(len, self.lists[:-1])])[self.list_of] + values
        return places
