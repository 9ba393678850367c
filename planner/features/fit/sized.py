"""A model at one batch and at others: how it is read, and what its plans take."""

from __future__ import annotations

from functools import cached_property

from planner.errors import TofuError, UnsupportedError
from planner.graph.files.data_folder import without_data_folder
from planner.graph.rewriting.recomputation import Activations
from planner.planning.canonical_form import canonical_under
from planner.planning.limit.least_memory import EveryPlan
from planner.planning.recomputation.chain import chain_of_sets
from planner.planning.recomputation.offers import has_backward_pass
from planner.planning.request import ModelSource
from planner.planning.samples import Samples
from planner.search.user_rules.rules import NO_RULES


class Sized:
    """A model at one batch.

    Attributes:
        source: how it is read.
        graph: its canonical form.
        every_plan: what all plans have in common that compute nothing again; ``planned`` of that is what is searched
            for plans.
    """

    def __init__(self, source: ModelSource) -> None:
        """Reads the model, and adds up what every plan takes.

        Args:
            source: how.

        Raises:
            TofuError: it cannot be read.
        """
        self.source = source
        self.graph = canonical_under(NO_RULES, without_data_folder(source.read()))[0].graph
        self.every_plan = EveryPlan(self.graph, source.descriptions)

    @cached_property
    def whatever_is_again(self) -> EveryPlan:
        """The facts that all plans share, for any set of recomputed activations."""
        if not has_backward_pass(self.graph):
            return self.every_plan
        return self.every_plan.whatever_is_again(Activations(self.graph).all)

    @cached_property
    def leanest_again(self) -> frozenset[str]:
        """The last set of the chain of those that may be computed again; empty where there is nothing."""
        if not has_backward_pass(self.graph):
            return frozenset()
        # What it costs to make them again tells only how plans get there.
        return chain_of_sets(self.graph, dict.fromkeys((op.name for op in self.graph.ops), 1))[-1]


class Batches:
    """A model at several batches; each is read once.

    Attributes:
        stated: the model as it is asked for.
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
        self.stated = Sized(source)
        self.samples = samples
        self.why_fixed = why_fixed
        self._sized_by_batch = {} if samples is None else {samples.given: self.stated}

    def at(self, batch: int) -> Sized:
        """The model at a batch.

        Raises:
            TofuError: it cannot be changed to that, or is another graph then.
        """
        assert self.samples is not None, "its batch can be changed"
        if batch not in self._sized_by_batch:
            sized = Sized(self.samples.at(batch))
            if _form(sized) != _form(self.stated):
                raise UnsupportedError(f"at a batch of {batch} the model has other ops")
            self._sized_by_batch[batch] = sized
        return self._sized_by_batch[batch]

    def fix(self, error: TofuError) -> None:
        """Takes note that the batch cannot be changed after all."""
        self.samples, self.why_fixed = None, error.what


def _form(sized: Sized) -> tuple[object, ...]:
    graph = sized.every_plan.planned
    ops = tuple((op.name, op.op_type, len(op.inputs), tuple(map(bool, op.outputs))) for op in graph.ops)
    return ops, len(graph.inputs), tuple(len(graph.tensors[name].shape) for name in graph.inputs)
