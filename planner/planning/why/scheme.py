"""The published scheme that a plan's tilings are closest to, and the modules in which they differ.

A scheme is a closed form of ``planner.search.literature.methods``: its restriction allows each tensor some tilings, so
a plan is compared without a search. A plan that gathers a sharded weight once a step and reads the copy in both passes
shards the updates alone, as ZeRO-1 does; one that gathers it for each reader shards it as FSDP does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.algebra.tiling import Replicate, Shard
from planner.cost.tables import CostTables
from planner.errors import TofuError
from planner.graph.compare.modules import modules
from planner.graph.core.model import Role
from planner.graph.core.patterns import numbers, pattern, without_numbers
from planner.graph.step.deliveries import is_delivery
from planner.graph.step.purposes import Purpose, purposes
from planner.search.decision import Decision
from planner.search.literature.methods import SCHEMES, SHARDED_UPDATES
from planner.search.model.problem import Problem, Restriction
from planner.units import format_ratio

_SHOWN = 4
_CLOSE = 0.6
"""A plan that agrees with every scheme in fewer of its tensors has no known scheme."""


@dataclass(frozen=True, slots=True)
class _Distance:
    scheme: str
    differing: tuple[str, ...]
    """Tensors that have a tiling that the scheme does not allow."""


def closest_scheme(decided: Decision, tables: CostTables) -> str:
    """The scheme of the most equal tilings, which says nothing of costs, and the modules that differ; "" of one worker.

    Args:
        decided: the plan.
        tables: of bytes.
    """
    if decided.workers == 1:
        return ""
    problem = Problem(
        decided.graph, decided.ops, decided.workers, with_partial_sums=True, with_nests=True, tables=tables
    )
    distances = [
        _Distance(scheme, tuple(_differing(decided, problem, scheme, form)))
        for scheme, form in _forms(decided, problem)
    ]
    if not distances:
        return ""
    closest = min(distances, key=lambda distance: len(distance.differing))
    count = sum(tensor.elements > 1 for tensor in decided.graph.tensors.values())
    share = 1 - len(closest.differing) / max(1, count)
    if share < _CLOSE:
        return f"no known scheme; {closest.scheme} shares {format_ratio(share)} of the tilings"
    if not closest.differing:
        return closest.scheme
    return f"{closest.scheme}; differs in {format_ratio(1 - share)} of tensors: {_named(decided, closest.differing)}"


def _forms(decided: Decision, problem: Problem) -> Iterator[tuple[str, Restriction]]:
    """The schemes that apply to the graph, for every group size."""
    for scheme, forms in SCHEMES.items():
        with contextlib.suppress(TofuError):  # no batch, no heads or no experts
            yield from ((scheme, form) for form in forms(problem, len(decided.cuts)))


def _differing(decided: Decision, problem: Problem, scheme: str, form: Restriction) -> Iterator[str]:
    graph, gathered = decided.graph, _gathered(decided)
    purpose_of = purposes(graph)
    copies = {op.outputs[0] for op in graph.ops if is_delivery(op)}
    for variable in problem.variables:
        name = next(iter(variable.tensors), "")
        if not name or name in copies or graph.roles[name] is Role.DATA:
            continue
        is_allowed = problem.lets_through(form, variable, decided.tilings[name])
        if graph.roles[name] is Role.STATE and purpose_of[name] is Purpose.PARAMETERS and name in gathered:
            is_allowed = scheme.startswith(SHARDED_UPDATES)
        if not is_allowed:
            yield from (member for member in variable.tensors if graph.tensors[member].elements > 1)


def _gathered(decided: Decision) -> frozenset[str]:
    """Sharded tensors of which one delivery, shared by several readers, makes replicas."""
    return frozenset(
        op.inputs[0]
        for op in decided.graph.ops
        if is_delivery(op)
        and any(
            isinstance(held, Shard) and isinstance(copy, Replicate)
            for held, copy in zip(
                decided.tilings[op.inputs[0]].placements, decided.tilings[op.outputs[0]].placements, strict=True
            )
        )
    )


def _named(decided: Decision, names: Sequence[str]) -> str:
    """Tensors by module, those of no module by the first word of their names; repeated modules as one pattern."""
    module_of = modules(decided.graph)
    groups: dict[str, dict[str, None]] = {}
    for name in names:
        label = module_of[name] or name.partition(".")[0]
        groups.setdefault(without_numbers(label), {})[label] = None
    texts = [pattern(sorted(labels, key=numbers)) for labels in groups.values()]
    hidden = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {hidden} more" if hidden > 0 else "")
