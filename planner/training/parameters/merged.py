"""Running statistics that a file holds in one constant with parameters.

An exporter that optimizes merges constants that are equal, and in a network that was never trained the scales of all
normalisations are ones, as running variances are. Such a constant is several tensors, of which training makes
different ones. Where an op reads one as a running statistic and any reads it as something else, it was merged for
certain, so each of its readers gets one of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from planner.graph.core.check import check_graph
from planner.graph.core.model import Graph, Op
from planner.graph.core.notes import EXTERNAL, external_of
from planner.graph.core.wellformed import fresh_name
from planner.training.parameters.readers import statistic_slots


def unmerged(forward: Graph) -> tuple[Graph, Mapping[str, str]]:
    """A forward graph in which running statistics are constants of their own.

    Returns:
        The graph, and of which constant each new one is a copy. A graph without merged statistics comes back as it is.
    """
    merged = frozenset(name for name in forward.constants if len(statistic_slots(forward, name)) > 1)
    if not merged:
        return forward, {}
    tensors, constants, external = dict(forward.tensors), dict(forward.constants), external_of(forward.notes)
    names = set(tensors)
    copies: dict[str, str] = {}

    def copy_for(name: str, op: Op) -> str:
        """A copy of a merged constant for one of its readers."""
        if name not in merged:
            return name
        # Without the parts of the op's name: what has parts counts as named by its author (see ``parameters``).
        copy = fresh_name(f"{name}@{re.sub(r'[./]', '_', op.name)}", names)
        names.add(copy)
        tensors[copy], constants[copy] = replace(tensors[name], name=copy), constants[name]
        if name in external:
            external[copy] = external[name]
        copies[copy] = name
        return copy

    ops = tuple(
        replace(op, inputs=tuple(copy_for(name, op) for name in op.inputs)) if merged.intersection(op.inputs) else op
        for op in forward.ops
    )
    for name in merged - set(forward.outputs):
        del tensors[name], constants[name]
        external.pop(name, None)
    notes = {**forward.notes, EXTERNAL: json.dumps(external)} if external else forward.notes
    apart = replace(
        forward,
        tensors=tensors,
        constants=constants,
        ops=ops,
        folded=frozenset(name for name in forward.folded if name in constants),
        notes=notes,
    )
    check_graph(apart)
    return apart, copies
