"""Activations that the user has recomputed for the backward pass: an option's words, and their activations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from planner.artifacts.recomputed import Recomputed
from planner.cost.excess import computing
from planner.cost.residence import Residence
from planner.errors import UsageError, did_you_mean
from planner.graph.core.model import Graph, Role
from planner.graph.decompositions import expand, planned_graph
from planner.graph.rewriting.recomputation import Activations, originals
from planner.graph.step.deliveries import SharedDelivery, with_deliveries
from planner.planning.bodies import only_through_bodies
from planner.planning.forward_blocks import inside_blocks
from planner.search.decision import Decision
from planner.search.user_rules.rules import is_pattern, matching
from planner.tdl.descriptions import Descriptions

Mode: TypeAlias = Literal["auto", "none", "all", "patterns"]
_WORDS: Final[tuple[Mode, ...]] = ("auto", "none", "all")
_SHOWN: Final = 5
_LISTED: Final = "`tofu explain DIR --view held` lists all of a plan that is made without --recompute"


@dataclass(frozen=True, slots=True)
class Recompute:
    """The tensors to recompute."""

    mode: Mode = "none"
    """``auto``: what is best where memory asks for it; ``none``; ``all``: of each of the repeated blocks all that is no
    border; ``patterns``: what is named."""
    patterns: tuple[str, ...] = ()
    """Activations, or patterns of them."""

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Recompute:
        """Reads an option that may be given several times.

        Raises:
            UsageError: one of the words beside something else.
        """
        words = [word for word in _WORDS if word in texts]
        if words and len(set(texts)) > 1:
            patterns = ", ".join(repr(text) for text in dict.fromkeys(texts) if text != words[0])
            raise UsageError(f"--recompute {words[0]} says it all, and {patterns} is given beside it")
        if words:
            return cls(words[0])
        return cls("patterns", tuple(dict.fromkeys(texts))) if texts else cls()


NOTHING: Final = Recompute()


def again_of(recompute: Recompute, graph: Graph, descriptions: Descriptions) -> tuple[str, ...]:
    """The activations that are to be computed again.

    Of patterns, those that match, and those from which they alone are computed (``Activations.closed``). ``all`` keeps
    what lies at the borders of repeated blocks, and what is in none; nothing is computed again where no blocks repeat.

    Args:
        recompute: as the user says.
        graph: the model in its canonical form.
        descriptions: of its operators.

    Returns:
        Those of which there are copies in the graph that ``recomputed`` gives for them, in the graph's order.

    Raises:
        UsageError: the model has no backward pass, or a pattern is for no activation that the backward pass reads.
    """
    if recompute.mode in ("auto", "none"):
        return ()
    activations = Activations(graph)
    if recompute.mode == "all":
        least = expand(graph, only_through_bodies(graph, descriptions)).graph
        chosen = inside_blocks(activations, least, descriptions.bind_all(least))
    else:
        chosen = activations.closed(_named(recompute.patterns, activations))
    return activations.copied(chosen)


def _named(patterns: Sequence[str], activations: Activations) -> frozenset[str]:
    """The activations that patterns are for, all faults being told at once."""
    held, tensors = frozenset(activations.held), activations.graph.tensors
    names: set[str] = set()
    facts = []
    for pattern in patterns:
        matched = matching(pattern, tensors, None)
        if held.isdisjoint(matched):
            facts.append(_fault(pattern, matched, activations))
        names.update(name for name in matched if name in activations.all)
    if facts:
        shown = ", ".join(map(repr, activations.held[:_SHOWN]))
        hidden = len(activations.held) - _SHOWN
        raise UsageError(
            "--recompute names what cannot be computed again for the backward pass",
            facts=(*facts, f"what may be named: {shown}" + (f", and {hidden:,} more" if hidden > 0 else "")),
            hint=_LISTED,
        )
    return frozenset(names)


_ALWAYS: Final[Mapping[Role, str]] = {
    Role.DATA: "an input, which is there all the time",
    Role.STATE: "state, which is there all the time",
    Role.NEXT_STATE: "a next state, which stays to the end",
    Role.RESULT: "a result, which stays to the end",
    Role.CONSTANT: "a constant, which every worker has",
}


def _fault(pattern: str, matched: Sequence[str], activations: Activations) -> str:
    """What is wrong with a pattern that is for no activation that the backward pass reads."""
    if not matched:
        close = did_you_mean(pattern, activations.held)
        fault = f"no tensor matches {pattern!r}" if is_pattern(pattern) else f"there is no tensor {pattern!r}"
        return fault + (f"; {close}" if close else "")
    reasons = [_reason(name, activations) for name in matched]
    if len(matched) == 1:
        return f"{matched[0]!r} is {reasons[0]}"
    kinds = "; ".join(dict.fromkeys(reasons))
    return f"{pattern!r} matches {len(matched):,} tensors, each of them {kinds}"


def _reason(name: str, activations: Activations) -> str:
    role = activations.graph.roles[name]
    if role is not Role.ACTIVATION:
        return _ALWAYS[role]
    return "read by no op of the backward pass" if name in activations.all else "made by the backward pass"


def recomputed_of(
    recompute: Recompute, decided: Decision, form: Graph, again: Collection[str], descriptions: Descriptions
) -> Recomputed | None:
    """The tensors that a plan computes again, with the saving and the price; None where nothing was to be.

    Args:
        recompute: as the user says.
        decided: the plan, of the graph with copies.
        form: that graph without copies.
        again: the activations of which it has copies.
        descriptions: of the operators.
    """
    if recompute.mode == "none" or (recompute.mode == "auto" and not again):
        return None
    activations = Activations(form)
    if not again:
        return Recomputed((), activations.held, 0, 0.0)
    without = _without_copies(decided, form)
    peak_bytes = [
        int(Residence(graph, ops).of(decided).max(initial=0))
        for graph, ops in ((without, descriptions.bind_all(without)), (decided.graph, decided.ops))
    ]
    names = {op.name for op in without.ops}
    work = [(bound.op.name in names, computing(bound, decided.rates)) for bound in decided.ops]
    once = sum(amount for is_once, amount in work if is_once)
    return Recomputed(
        tuple(name for name in activations.all if name in again),
        activations.kept(again),
        (peak_bytes[0] - peak_bytes[1]) // decided.workers,
        sum(amount for is_once, amount in work if not is_once) / once if once else 0.0,
    )


def _without_copies(decided: Decision, form: Graph) -> Graph:
    """The graph of a plan without copies: what is divided as it is in the plan."""
    graph = planned_graph(form, decided.strategies, decided.workers)
    present = {op.name for op in graph.ops}
    of = originals(form, decided.graph)
    deliveries: list[SharedDelivery] = []
    for delivery in reversed(decided.deliveries):
        readers = tuple(name for name in delivery.readers if name in present)
        if readers:
            deliveries.insert(0, replace(delivery, tensor=of.get(delivery.tensor, delivery.tensor), readers=readers))
            present.add(delivery.name)
    return with_deliveries(graph, deliveries)
