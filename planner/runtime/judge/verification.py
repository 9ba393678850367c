"""A split run held against the whole model, step by step.

Each step is judged alone: the split run, the whole model and its float64 twin start it from the same state, which is
the whole model's, so that errors do not add up from step to step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from planner.artifacts.source_file import SourceFile
from planner.progress import Progress
from planner.runtime.judge.compare import StepComparison
from planner.runtime.judge.door import DoorVerdict, ReadGraph, check_source
from planner.runtime.judge.references import Judge


class Verification:
    """The verdicts on a run so far, and what its next step starts from.

    Args:
        judge: of the plan's whole model.
        source: the file that was planned, as the plan records it.
        value: gives the whole value of an input in the first step, or of a constant that the file does not hold.
        libraries: of custom operators.
    """

    def __init__(
        self, judge: Judge, source: SourceFile | None, value: Callable[[str], np.ndarray], libraries: Sequence[Path]
    ) -> None:
        self._judge, self._source, self._value, self._libraries = judge, source, value, libraries
        self.inputs = {name: value(name) for name in judge.graph.inputs}
        """Every input, as it is before the next step."""
        self.comparisons: list[StepComparison] = []
        """By step."""
        self.door: DoorVerdict | None = None
        """Whether the model that is run is the file that was planned; known with the first step."""

    def judge(self, number: int, last: int, outputs: Mapping[str, np.ndarray], doing: Progress) -> StepComparison:
        """The verdict on a step; the whole model's state goes on.

        Args:
            number: of the step.
            last: the number of the last one.
            outputs: all of them, whole, as the workers made them.
            doing: told what is being done.
        """
        if self.door is None:
            doing("holding the graph against its file")
            read = ReadGraph(self._judge.graph, self.inputs, self._value, self._libraries)
            self.door = check_source(self._source, read)
        doing(f"judging step {number} of {last}")
        comparison, right = self._judge.compare(number, outputs, self.inputs)
        self.comparisons.append(comparison)
        self.inputs |= {pair.current: right[pair.following] for pair in self._judge.graph.state}
        return comparison

    @property
    def is_right(self) -> bool:
        """Whether every step so far is."""
        return self.door is not None and self.door.is_same and all(step.is_same for step in self.comparisons)

    @property
    def no_reference(self) -> str:
        """See ``Judge.no_reference``."""
        return self._judge.no_reference

    @property
    def own_precision(self) -> tuple[str, ...]:
        """See ``Judge.own_precision``."""
        return self._judge.own_precision
