"""The least memory of every plan of a model: who asks for less is refused before anything is searched for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from planner.cost.residence import Ints, Residence
from planner.graph.core.model import Graph
from planner.graph.decompositions import expand
from planner.graph.step.purposes import Purpose, purposes
from planner.partition.workspace import ELEMENTWISE
from planner.planning.bodies import only_through_bodies
from planner.planning.limit.refusal import cannot_fit
from planner.tdl.descriptions import Descriptions


@dataclass(frozen=True, slots=True)
class LeastMemory:
    """The least memory of every plan, at the fullest moment."""

    total_bytes: int
    """On all workers together."""
    op: str
    """That runs then; "" where nothing is said of any moment."""
    bytes_by_tensor: Mapping[str, int]
    """Of it, by tensor."""
    purpose_of: Mapping[str, Purpose]
    """By tensor, what it is for."""

    def by_purpose(self) -> dict[str, int]:
        """Bytes by what tensors are for, the largest first."""
        sums: dict[str, int] = {}
        for name, size in self.bytes_by_tensor.items():
            purpose = self.purpose_of[name].value
            sums[purpose] = sums.get(purpose, 0) + size
        return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


class EveryPlan:
    """The facts that all plans of a model share, on any number of workers.

    However tensors are divided, and whichever ops run in steps, each element that is still needed lies on some worker.
    Element-wise ops may write over what they read. Composite ops may be planned through their bodies, so nothing is
    said of the moments at which they run. Where activations may be computed again, nothing is said of them either: what
    is said then is true of plans with any of them computed again, or none.

    Attributes:
        planned: the model, with the ops that are only planned through their bodies so.
        ops: its ops with their descriptions.
        residence: what lies there at its moments.
        by_moment: what every plan takes at least on all workers together, by moment.
    """

    def __init__(self, graph: Graph, descriptions: Descriptions, again: Collection[str] = ()) -> None:
        """Adds up what lies there.

        Args:
            graph: the model in its canonical form.
            descriptions: of its operators.
            again: activations that may be computed again.
        """
        self._graph = graph
        self.planned = expand(graph, only_through_bodies(graph, descriptions)).graph
        self.ops = descriptions.bind_all(self.planned)
        self.residence = Residence(self.planned, self.ops)
        self._leave_apart(again)

    def _leave_apart(self, again: Collection[str]) -> None:
        # What is inside of a body is computed again with the op that the body stands for.
        inside = self.planned.tensors.keys() - self._graph.tensors.keys() if again else frozenset[str]()
        self._apart = frozenset(again) | inside
        self.by_moment = self.residence.least(ELEMENTWISE, self._apart)

    def whatever_is_again(self, again: Collection[str]) -> EveryPlan:
        """The bound for plans with any of some activations computed again, or none.

        Args:
            again: activations that may be computed again.
        """
        variant = copy(self)
        variant._leave_apart(again)
        return variant

    def at_moments(self, workers: int) -> Ints:
        """The least memory of every plan on all workers together, by moment; 0 where nothing is said.

        Args:
            workers: how many.
        """
        composite = {body.op.name for body in expand(self._graph, workers=workers).bodies}
        by_moment: Ints = np.where([op.name in composite for op in self.planned.ops], 0, self.by_moment)
        return by_moment

    def least(self, workers: int) -> LeastMemory:
        """The least memory of every plan.

        Args:
            workers: how many.
        """
        least = self.at_moments(workers)
        if not least.any():
            return LeastMemory(0, "", {}, {})
        moment = int(np.argmax(least))
        bytes_by_tensor = self.residence.least_at(moment, ELEMENTWISE, self._apart)
        return LeastMemory(int(least[moment]), self.planned.ops[moment].name, bytes_by_tensor, purposes(self.planned))


def refuse_what_cannot_fit(
    graph: Graph,
    descriptions: Descriptions,
    limits: Sequence[int],
    again: Collection[str] = (),
) -> None:
    """Refuses limits on memory that no plan can keep to.

    Args:
        graph: the model in its canonical form.
        descriptions: of its operators.
        again: activations that may be computed again.
        limits: the memory there is, one entry for each worker, in any order.

    Raises:
        InfeasibleError: with what every plan takes at least, and what it is of.
    """
    least = EveryPlan(graph, descriptions, again).least(len(limits))
    if least.total_bytes > sum(limits):
        raise cannot_fit(least.bytes_by_tensor, least.purpose_of, least.op, limits)
