"""Restrictions that only the literature's strategies put on the search; others are starts of its own, too.

See ``planner.search.moves.restrictions``.
"""

from __future__ import annotations

from math import prod

from planner.algebra.tiling import Placement, Shard
from planner.cost.tables import Candidates
from planner.graph.step.purposes import Purpose, purposes
from planner.search.model.problem import Problem, Restriction, SearchVariable
from planner.search.moves.restrictions import (
    batch,
    data_parallel,
    is_state,
    keeping,
    model_parallel,
    place_of,
)
from planner.tdl.expr import index_variables


def one_weird_trick(problem: Problem) -> Restriction:
    """Mixed parallelism (SoyBean, section 3; Krizhevsky): convolutions by data, dense layers by model.

    A tensor or op belongs to the convolutional part if it has an image (rank 4 or more).
    """
    by_data, by_model = data_parallel(problem), model_parallel(problem)
    images = {
        variable.number
        for variable in problem.variables
        if any(len(shape) >= 4 for shape in _shapes(problem, variable))
    }
    of_images = {
        problem.variable_of_tensor[name]
        for bound in problem.ops
        if problem.variable_of_op[bound.op.name] in images
        for name in (*bound.op.inputs, *bound.op.outputs)
        if name in problem.variable_of_tensor
    }

    def restrict(variable: SearchVariable, candidates: Candidates) -> Candidates:
        part = by_data if variable.number in images or variable.number in of_images else by_model
        return part(variable, candidates)

    return restrict


def _shapes(problem: Problem, variable: SearchVariable) -> list[tuple[int, ...]]:
    if variable.op is None:
        return [problem.graph.tensors[name].shape for name in variable.tensors]
    node = variable.op.node
    return [shape for shape in (*node.input_shapes, *node.output_shapes) if shape is not None]


def no_output_reduction(problem: Problem) -> Restriction:
    """ICML18 as Tofu describes it (section 7.3): no op is cut along a reduction variable, no tensor replicated."""

    def keep(variable: SearchVariable, placement: Placement) -> bool:
        if not isinstance(placement, Shard):
            return variable.op is not None
        return variable.op is None or variable.op.variables[placement.dim].reducer is None

    return keeping(keep)


def fully_sharded(problem: Problem) -> Restriction:
    """ZeRO-3 or FSDP: data parallelism with sharded state; weights are gathered, gradients reduced and scattered.

    Tensors and ops without a batch dim (gradients of weights, the optimizer's ops) are split as the state is.
    """
    places = batch(problem.graph, problem.directions)

    def restrict(variable: SearchVariable, candidates: Candidates) -> Candidates:
        split, along = [], []
        for candidate in candidates:
            placement = candidate.placements[-1]
            if isinstance(placement, Shard):
                split.append(candidate)
                if place_of(variable, placement) in places:
                    along.append(candidate)
        if along:
            return tuple(along)
        return tuple(split) if split and is_state(problem, variable) else candidates

    return restrict


def sharded_updates(problem: Problem) -> Restriction:
    """ZeRO-1: data parallelism with replicated weights, of which each worker updates a shard (Rajbhandari et al. 2020).

    Optimizer state is sharded, and gradients are reduced and scattered; updated weights are gathered.
    """
    by_data, sharded = data_parallel(problem), fully_sharded(problem)
    optimizer_state = {name for name, purpose in purposes(problem.graph).items() if purpose is Purpose.OPTIMIZER_STATE}

    def restrict(variable: SearchVariable, candidates: Candidates) -> Candidates:
        is_weight = is_state(problem, variable) and optimizer_state.isdisjoint(variable.tensors)
        return (by_data if is_weight else sharded)(variable, candidates)

    return restrict


def general_graphs(problem: Problem) -> Restriction:
    """SoyBean on graphs that are no products alone (section 4.5): ops are divided, never repeated, each kind its way.

    Element-wise ops along any dim, products along any variable, convolutions and their gradients along samples and
    channels, not along images and windows, all others along the batch. Tensors have all tilings. What can be divided
    in none of these ways is repeated. A convolution is told by dims that two variables index together.
    """
    places = batch(problem.graph, problem.directions)

    def keep(variable: SearchVariable, placement: Placement) -> bool:
        if variable.op is None:
            return True
        if not isinstance(placement, Shard):
            return False
        analysis = variable.op.analysis
        if analysis.is_elementwise or place_of(variable, placement) in places:
            return True
        if analysis.product is None:
            return False
        together = [set(index_variables(index)) for operand in analysis.product for index in operand.indices]
        name = variable.op.variables[placement.dim].name
        return not any(len(index_vars) > 1 and name in {var.name for var in index_vars} for index_vars in together)

    return keeping(keep)


def elements_of(problem: Problem, variable: SearchVariable) -> int:
    """Elements of a tensor variable; 0 for an op."""
    return max((prod(problem.graph.tensors[name].shape) for name in variable.tensors), default=0)
