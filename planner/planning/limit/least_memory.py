"""What every plan of a model takes at least: who asks for less is refused before anything is searched for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.cost.residence import Residence
from planner.graph.bodies import expand
from planner.graph.model import Graph
from planner.graph.purposes import purposes
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
    raise cannot_fit(taken, purposes(planned), planned.ops[moment].name, limits)
