"""Warnings about the state of a flat step: it is never guessed in silence."""

from __future__ import annotations

from collections.abc import Iterable

from planner.graph.core.model import Graph
from planner.graph.core.notes import LEFT, evidence_of, pairs_of

_OTHERWISE = "if that is not so, write all pairs in a file for --state"


def state_warnings(graph: Graph) -> tuple[str, ...]:
    """A sentence for the pairs that may be others', and one for what may be a pair; () where all is certain.

    Raises:
        ModelError: the graph's notes are not of their form.
    """
    evidence = evidence_of(graph.notes)
    paired = {pair.current for pair in graph.state}
    current = {pair.following: pair.current for pair in graph.state}
    warnings: list[str] = []
    pairs = [(current[name], name) for name, (kinds, _) in evidence.items() if "rival" in kinds and name in current]
    if pairs:
        paired_kinds = {graph.tensors[name].kind for _, name in pairs}
        beside = [name for name in graph.inputs if name not in paired and graph.tensors[name].kind in paired_kinds]
        note = f" (also there: {', '.join(map(repr, beside))})" if beside else ""
        warnings.append(
            "paired by the form of their update, though others of their shape and dtype may be meant, state and next "
            f"state: {lines_of(pairs)}{note}; {_OTHERWISE}"
        )
    unpaired = left_over(graph)
    if unpaired:
        subject = "an input and an output of" if len(unpaired) == 1 else "inputs and outputs of"
        warnings.append(
            f"no state, though {subject} one shape and dtype: if the output is the input's next value, write "
            f"{lines_of(unpaired)} in a file for --state, with all other pairs"
        )
    return tuple(warnings)


def left_over(graph: Graph) -> tuple[tuple[str, str], ...]:
    """Inputs and outputs that may belong together, and that nothing paired.

    Raises:
        ModelError: the graph's note is not of that form.
    """
    paired = {name for pair in graph.state for name in (pair.current, pair.following)}
    return tuple(pair for pair in pairs_of(graph.notes, LEFT) or () if paired.isdisjoint(pair))


def lines_of(pairs: Iterable[tuple[str, str]]) -> str:
    """Pairs as lines of a file for ``--state``."""
    return ", ".join(f"'{current}: {following}'" for current, following in pairs)
