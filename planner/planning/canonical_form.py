"""The canonical form of a model of which rules name tensors."""

from __future__ import annotations

from planner.graph.core.model import Graph
from planner.graph.rewriting.canonical import Canonical, canonical
from planner.search.user_rules.rules import Rules, matching


def canonical_under(rules: Rules, model: Graph) -> tuple[Canonical, tuple[str, ...]]:
    """A model in its canonical form, and the tensors that stay in it because rules name them.

    A pin gives a tiling to a tensor that would be read in place, or by its parts, and a prohibition takes a placement
    from it: the tensor stays. A prohibition by a pattern is for the tensors that there are; those that would be read in
    place stay only where it matches no other.
    """
    form = canonical(model)
    gone = {**form.in_place, **form.in_parts}
    if not gone:
        return form, ()
    present = set(model.tensors) - gone.keys() - model.constants.keys()
    named = {name for pattern in rules.pins for name in matching(pattern, gone, None)}
    for pattern, _ in rules.forbidden:
        wholes = matching(pattern, form.in_parts, None)
        named.update(name for name in wholes if not matching(pattern, form.in_parts[name], None))
        if pattern in form.in_place or not matching(pattern, present, None):
            named.update(matching(pattern, form.in_place, None))
    if not named:
        return form, ()
    return canonical(model, named), tuple(sorted(named))
