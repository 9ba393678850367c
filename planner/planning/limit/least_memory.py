"""What every plan of a model takes at least: who asks for less is refused before anything is searched for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.cost.residence import Residence
from planner.graph.bodies import expand
from planner.graph.dependence import leading_to
from planner.graph.model import Graph, Role
from planner.partition.workspace import ELEMENTWISE
from planner.planning.bodies import only_through_bodies
from planner.planning.limit.refusal import cannot_fit
from planner.tdl.descriptions import Descriptions


def refuse_what_cannot_fit(
    graph: Graph, descriptions: Descriptions, limits: Sequence[int], *, through_bodies: bool = True
) -> None:
    """Refuses limits on memory that no plan can keep to.

    However tensors are divided, and whichever ops run in steps, each element that is still needed lies on some worker.
    Element-wise ops may write over what they read. Composite ops may be planned through their bodies, so nothing is
    said of the moments at which they run.

    Args:
        graph: the model in its canonical form.
        descriptions: of its operators.
        limits: the memory there is, one entry for each worker, in any order.
        through_bodies: composite ops may be cut through their bodies.

    Raises:
        InfeasibleError: with what every plan takes at least, and what it is of.
    """
    planned = expand(graph, only_through_bodies(graph, descriptions)).graph
    residence = Residence(planned, descriptions.bind_all(planned))
    least = residence.least(ELEMENTWISE)
    if through_bodies:
        composite = {body.op.name for body in expand(graph, workers=len(limits)).bodies}
        least[[op.name in composite for op in planned.ops]] = 0
    moment = int(np.argmax(least)) if least.size else 0
    if not least.size or int(least[moment]) <= sum(limits):
        return
    taken = residence.least_at(moment, ELEMENTWISE)
    raise cannot_fit(taken, _parts_of_a_step(planned), planned.ops[moment].name, limits)


def _parts_of_a_step(graph: Graph) -> dict[str, str]:
    """By tensor, what it is to a training step: what its results are computed from, or what only its updates need."""
    results = [name for name in graph.outputs if graph.roles[name] is Role.RESULT]
    forward = leading_to(graph, results) if results else frozenset(graph.tensors)
    said = {
        (Role.STATE, True): "parameters",
        (Role.STATE, False): "optimizer state",
        (Role.ACTIVATION, True): "activations",
        (Role.ACTIVATION, False): "gradients and updates",
        (Role.NEXT_STATE, True): "next state",
        (Role.NEXT_STATE, False): "next state",
    }
    return {
        name: said.get((graph.roles[name], name in forward), graph.roles[name].value)
        for name in graph.tensors
        if name in graph.roles
    }
