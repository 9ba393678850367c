"""Pins: tilings that the user has decided."""

from __future__ import annotations

from collections.abc import Mapping

from planner.algebra.delivery import can_split
from planner.algebra.tiling import Only, Partial, Shard, Tiling
from planner.cost.tables import Candidates
from planner.errors import UsageError, did_you_mean
from planner.graph.model import Graph, Role
from planner.search.problem import Problem, Restriction, SearchVariable


def pinned(problem: Problem, pins: Mapping[str, str], cuts: tuple[int, ...], inner: Restriction) -> Restriction:
    """Keeps pinned tensors to their tilings, and everything else to ``inner``.

    Args:
        problem: the search.
        pins: by tensor, a tiling's text form; one placement without ways means it at every cut.
        cuts: the ways of each cut.
        inner: the restriction of the variables that are not pinned.

    Raises:
        UsageError: a tensor that is not in the model, a text that is no tiling of these cuts, or a tiling that the
            tensor cannot have; all of them at once.
    """
    if not pins:
        return inner
    tilings: dict[int, Tiling] = {}
    faults: list[str] = []
    for name, text in pins.items():
        if name not in problem.variable_of_tensor:
            known = "a constant, which every worker has" if name in problem.graph.constants else "not in the model"
            close = did_you_mean(name, problem.variable_of_tensor)
            faults.append(f"tensor {name!r} is {known}" + (f"; {close}" if close else ""))
            continue
        try:
            tiling = Tiling.parse(text, cuts)
        except UsageError as error:
            faults.append(f"{name}={text}: {error.what}" + (f"; {error.hint}" if error.hint else ""))
            continue
        fault = _fault(problem.graph, name, tiling)
        if problem.partitioned_inputs and problem.graph.roles[name] is Role.DATA and not tiling.is_disjoint:
            fault = "data arrives in disjoint tiles (--inputs partitioned)"
        if fault:
            faults.append(f"{name}={text}: {fault}")
        number = problem.variable_of_tensor[name]
        if tilings.setdefault(number, tiling) != tiling:
            faults.append(
                f"{name}={text}: a state and its next value have one tiling, and the other is pinned differently"
            )
    if faults:
        raise UsageError("a pin cannot be kept", facts=tuple(faults))

    def restrict(variable: SearchVariable, candidates: Candidates) -> Candidates:
        tiling = tilings.get(variable.number)
        if tiling is None:
            return inner(variable, candidates)
        depth = len(candidates[0].ways)
        return (Tiling(tiling.placements[:depth], tiling.ways[:depth]),)

    return restrict


def _fault(graph: Graph, name: str, tiling: Tiling) -> str:
    """Why a tensor cannot have a tiling; "" if it can."""
    shape = graph.tensors[name].shape
    so_far = Tiling((), ())
    for placement, ways in zip(tiling.placements, tiling.ways, strict=True):
        if isinstance(placement, Partial | Only):
            return f"{placement} cannot be pinned"
        if isinstance(placement, Shard):
            if placement.dim >= len(shape):
                return f"the tensor has rank {len(shape)}"
            if not can_split(so_far.boxes(shape), placement.dim, ways, placement.block):
                return f"dim {placement.dim} of {list(shape)} is too small to be cut {ways} ways after {so_far}"
        so_far = so_far.extend(placement, ways)
    return ""
