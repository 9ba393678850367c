"""A model at one batch and at others: how it is read, and what its plans take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from planner.errors import TofuError, UnsupportedError, UsageError
from planner.graph.data_folder import without_data_folder
from planner.graph.model import Graph
from planner.graph.rewriting.recomputation import recomputed
from planner.planning.canonical_form import canonical_under
from planner.planning.limit.least_memory import EveryPlan
from planner.planning.recomputing import NOTHING, Recompute, again_of
from planner.planning.request import ModelSource
from planner.search.user_rules.rules import NO_RULES


class Sized:
    """A model at one batch.

    Attributes:
        source: how it is read.
        recompute: what is computed again for the backward pass.
        graph: its canonical form, with copies of what is computed again.
        every_plan: what all of its plans have in common; ``planned`` of that is what is searched for plans.
    """

    def __init__(self, source: ModelSource, form: Graph, recompute: Recompute = NOTHING) -> None:
        """Adds up what every plan takes.

        Args:
            source: how it is read.
            form: its canonical form.
            recompute: what is computed again for the backward pass.
        """
        self.source, self.recompute, self._form = source, recompute, form
        self.graph = recomputed(form, again_of(recompute, form, source.descriptions))
        self.every_plan = EveryPlan(self.graph, source.descriptions)

    @classmethod
    def read(cls, source: ModelSource) -> Sized:
        """Reads the model, of which nothing is computed again.

        Args:
            source: how.

        Raises:
            TofuError: it cannot be read.
        """
        return cls(source, canonical_under(NO_RULES, without_data_folder(source.read()))[0].graph)

    @cached_property
    def computed_again(self) -> Sized | None:
        """The model in which all is computed again that can be in repeated blocks; None where there is nothing."""
        try:
            found = Sized(self.source, self._form, Recompute("all"))
        except UsageError:  # it has no backward pass
            return None
        return found if len(found.graph.ops) > len(self.graph.ops) else None


@dataclass(frozen=True, slots=True)
class Samples:
    """How the batch of a model is changed."""

    given: int
    """The batch that it has as it is asked for."""
    at: Callable[[int], ModelSource]
    """How it is read at another batch."""


class Batches:
    """A model at several batches; each is read once.

    Attributes:
        given: the model as it is asked for.
        samples: how its batch is changed; None: it cannot be.
        why_fixed: why not, in words; "" where it can.
    """

    def __init__(self, source: ModelSource, samples: Samples | None, why_fixed: str) -> None:
        """Reads the model as it is asked for.

        Args:
            source: how.
            samples: how its batch is changed, or None.
            why_fixed: why not.

        Raises:
            TofuError: it cannot be read.
        """
        self.given = Sized.read(source)
        self.samples = samples
        self.why_fixed = why_fixed
        self._known = {} if samples is None else {samples.given: self.given}

    def at(self, batch: int) -> Sized:
        """The model at a batch.

        Raises:
            TofuError: it cannot be changed to that, or is another graph then.
        """
        assert self.samples is not None, "its batch can be changed"
        if batch not in self._known:
            found = Sized.read(self.samples.at(batch))
            if _form(found) != _form(self.given):
                raise UnsupportedError(f"at a batch of {batch} the model has other ops")
            self._known[batch] = found
        return self._known[batch]

    def fix(self, error: TofuError) -> None:
        """Takes note that the batch cannot be changed after all."""
        self.samples, self.why_fixed = None, error.what


def _form(sized: Sized) -> tuple[object, ...]:
    graph = sized.every_plan.planned
    ops = tuple((op.op_type, len(op.inputs), tuple(map(bool, op.outputs))) for op in graph.ops)
    return ops, len(graph.inputs), tuple(len(graph.tensors[name].shape) for name in graph.inputs)
