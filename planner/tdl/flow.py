"""The flow of dims through an op: which index of an input dim is which index of an output dim."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from planner.tdl.analyse import Analysis
from planner.tdl.interval import Floor, Interval, Symbol


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of variables along the dims of inputs and outputs, for all ops with one analysis."""

    output_dims: tuple[tuple[int, int, int], ...]
    """Output, dim and variable, of dims that go by one."""
    stepped: tuple[tuple[int, int, int, int], ...]
    """Output, dim, variable and step, of dims that go in steps."""
    read: tuple[tuple[int, int, int], ...]
    """Input, dim and the variable that is its index and nothing else."""
    aligned: tuple[tuple[int, int, int], ...]
    """Input, dim and the variable with the largest step in its index, where there is more in it."""

    @classmethod
    def of(cls, analysis: Analysis) -> Layout:
        """The layout of an analysis."""
        numbers = {variable.name: number for number, variable in enumerate(analysis.variables)}
        output_dims = [
            (position, dim, number, (analysis.steps_of(position) or (1,) * len(dims))[dim])
            for position, dims in enumerate(analysis.outputs)
            if dims is not None
            for dim, number in enumerate(dims)
        ]
        indices = [
            (read.slot, dim, numbers[major], interval.alone is not None)
            for read in analysis.reads
            for dim, interval in enumerate(read.dims)
            if interval is not None and (major := _major_variable(interval)) is not None
        ]
        return cls(
            tuple((position, dim, number) for position, dim, number, step in output_dims if step == 1),
            tuple(output for output in output_dims if output[3] > 1),
            tuple((slot, dim, number) for slot, dim, number, is_alone in indices if is_alone),
            tuple((slot, dim, number) for slot, dim, number, is_alone in indices if not is_alone),
        )


def _major_variable(interval: Interval) -> str | None:
    """The variable with the largest positive coefficient, alone or under a floor-division."""
    best: tuple[Fraction, str] | None = None
    for term, factor in interval.first.terms:
        name = None
        if isinstance(term, Symbol):
            name = term.variable
        elif isinstance(term, Floor) and len(term.of.terms) == 1 and isinstance(term.of.terms[0][0], Symbol):
            name = term.of.terms[0][0].variable
        if name is not None and factor > 0 and (best is None or factor > best[0]):
            best = (factor, name)
    return None if best is None else best[1]
