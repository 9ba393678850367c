"""Copies of activations that a step computes again (``rewriting/recomputation.py``), found by their names' ends."""

from __future__ import annotations

import re
from typing import Final

from planner.graph.core.model import Graph

AGAIN: Final = ".again"
_COPY: Final = re.compile(rf"(.+)({re.escape(AGAIN)}\d*)", re.DOTALL)


def copies_in(graph: Graph) -> frozenset[str]:
    """The tensors of a graph that are copies of others (``recomputed``), as their names and the ops' types tell."""
    maker = graph.producer
    return frozenset(
        name
        for name, op in maker.items()
        if (match := _COPY.fullmatch(name)) is not None
        and match[1] in maker
        and maker[match[1]].op_type == op.op_type
        and op.name.endswith(match[2])
    )
