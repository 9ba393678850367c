"""Matrices whose rows each have few elements: a linear map along a dim that keeps to its windows.

A matrix [m, n] of which a row reads at most w elements is m·w places and weights, never m·n numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.graph.core.emitter import Emitter


@dataclass(frozen=True, slots=True)
class Band:
    """A matrix by what its rows read."""

    columns: int
    places: np.ndarray
    """[rows, width] int64: which columns; its first one again where a row reads fewer."""
    weights: np.ndarray
    """[rows, width] float64: what they count; 0 where a row reads fewer."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.places)

    @property
    def width(self) -> int:
        """The most that a row reads."""
        return int(self.places.shape[1])

    @classmethod
    def of(cls, shape: tuple[int, int], row: np.ndarray, column: np.ndarray, weight: np.ndarray) -> Band:
        """The matrix of this shape with these elements; those at the same place are added up."""
        rows, columns = shape
        place, inverse = np.unique(row * columns + column, return_inverse=True)
        total = np.bincount(inverse, weights=weight, minlength=len(place))
        place, total = place[total != 0], total[total != 0]
        row, column = np.divmod(place, columns)
        counts = np.bincount(row, minlength=rows)
        number = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.zeros(rows, np.int64)
        first[row[number == 0]] = column[number == 0]
        places = np.repeat(first[:, None], max(1, counts.max(initial=0)), axis=1)
        weights = np.zeros(places.shape)
        places[row, number], weights[row, number] = column, total
        return cls(columns, places, weights)

    @property
    def transposed(self) -> Band:
        """Columns as rows."""
        row = np.repeat(np.arange(self.rows), self.width)
        return Band.of((self.columns, self.rows), self.places.ravel(), row, self.weights.ravel())

    @property
    def is_identity(self) -> bool:
        """Whether it changes nothing."""
        square = self.rows == self.columns and self.width == 1
        return square and bool((self.places[:, 0] == np.arange(self.rows)).all() and (self.weights == 1).all())

    @property
    def is_in_order(self) -> bool:
        """Whether each row reads what follows after that which the row before it reads, and all is read."""
        is_full = self.places.size == self.columns
        return is_full and bool((self.places.ravel() == np.arange(self.columns)).all())


def along(emit: Emitter, x: str, dim: int, band: Band, hint: str) -> str:
    """A matrix [m, n] times the lines of ``x`` along a dim of size n: what its rows read, weighed and added up."""
    if band.is_identity:
        return x
    *before, size = emit.shape(x)[: dim + 1]
    after = emit.shape(x)[dim + 1 :]
    assert size == band.columns, f"{hint}: {size} elements for {band.columns} columns"
    wide = (*before, band.rows, band.width, *after)
    if band.is_in_order:
        read = emit.reshape(x, wide)
    else:
        places = emit.constant(band.places, f"{hint}.places")
        read = emit.one("Gather", [x, places], wide, emit.dtype(x), hint=hint, attributes={"axis": dim})
    if (band.weights != 1).any():
        column = band.weights.reshape(band.rows, band.width, *(1 for _ in after))
        weights = emit.constant(column.astype(emit.dtype(x).array_dtype), f"{hint}.weights")
        read = emit.mul(read, weights, hint)
    return emit.reduce_sum(read, [dim + 1], hint=hint)
