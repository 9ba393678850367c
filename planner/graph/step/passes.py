"""The forward and the backward pass of a training step, as ops.

Nothing in a file says so, whoever wrote it. What results are computed from tells, where gradients come from
(``gradient_products``), and of what either pass could compute, whether it comes before the backward pass begins.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from planner.errors import UsageError
from planner.graph.core.dependence import computed_from, leading_to
from planner.graph.core.model import Graph, Op
from planner.graph.step.gradient_products import gradient_products


@dataclass(frozen=True, slots=True)
class Passes:
    """The two passes of a training step; ops are in neither that only count, or keep a running mean."""

    forward: frozenset[str]
    """Names of the ops that compute the results which are no gradients (the loss, the logits), and of those that
    compute something for the backward pass before that begins."""
    backward: frozenset[str]
    """Names of the other ops that lead to gradients, and to the next states that are computed from those."""


def passes_of(graph: Graph) -> Passes:
    """The forward and the backward pass of a training step.

    *Results* are the outputs that are no next state and not computed from a gradient; of a step whose every result is
    (one that penalises gradients), those of one element, of which one is the loss. What they are computed from is the
    forward pass. What else leads to an output that is computed from a gradient, or to the next state of a state that
    the forward pass reads, is the backward pass, but for what a file computes for it ahead: before the last result, and
    before the first op that reads what came back through a product, or what is computed from that.

    Example: ``y = x W``, ``p = Relu(y)`` and ``loss = f(p)`` are forward; ``dy = df(p) * (p > 0)``, ``dW = x^T dy`` and
    ``W.next = W - lr dW`` are backward. ``p > 0`` alone is forward where it stands before the loss, and
    ``mean.next = 0.9 mean + 0.1 m`` is neither.

    Raises:
        UsageError: the graph has no backward pass, or there is no telling where it begins.
    """
    following = {pair.following for pair in graph.state}
    products = gradient_products(graph)
    from_gradients = computed_from(graph, products.gradients | products.back)
    results = [name for name in graph.outputs if name not in following]
    losses = [name for name in results if name not in from_gradients]
    if not losses:  # where a result is its own gradient, as x is that of x^2 / 2, gradients of parameters alone tell
        from_products = computed_from(graph, products.gradients)
        losses = [name for name in results if name not in from_products]
    losses = losses or [name for name in results if graph.tensors[name].elements == 1]
    if results and not losses:
        raise UsageError(
            "where the backward pass of the model begins cannot be told",
            facts=(f"every result is computed from gradients: {', '.join(map(repr, results[:5]))}",),
            hint="have the loss among the outputs of the model",
        )
    before = leading_to(graph, losses)
    ends = [name for name in graph.outputs if name in from_gradients and name not in before]
    ends += [pair.following for pair in graph.state if pair.current in before and pair.following not in before]
    behind = leading_to(graph, ends)
    is_before = [_makes(op, before) for op in graph.ops]
    last = max((at for at, is_forward in enumerate(is_before) if is_forward), default=-1)
    tail = [at for at, op in enumerate(graph.ops) if not is_before[at] and _makes(op, behind)]
    if not losses or not tail:
        raise UsageError(
            "the model has no backward pass",
            facts=("no output is computed from a gradient" if losses else "it has no result that is no next state",),
            hint="give a training graph that has its loss among its outputs, such as `tofu grad` writes",
        )
    turn = next((at for at in tail if at > last or not from_gradients.isdisjoint(graph.ops[at].inputs)), tail[0])
    return Passes(
        frozenset(op.name for at, op in enumerate(graph.ops) if is_before[at] or (at < turn and _makes(op, behind))),
        frozenset(graph.ops[at].name for at in tail if at >= turn),
    )


def _makes(op: Op, tensors: Collection[str]) -> bool:
    return any(name in tensors for name in op.outputs if name)
