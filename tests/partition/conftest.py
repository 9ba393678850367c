"""Random plans of a graph, good or bad: what a table says must hold for all of them."""

from collections.abc import Callable

import numpy as np
import pytest

from planner.algebra.tiling import Tiling
from planner.plan import OpStrategy, Plan
from planner.search.factors import prime_factors
from planner.search.problem import Problem


@pytest.fixture
def random_plan() -> Callable[[Problem, int, int], Plan]:
    """Draws every variable's composite at random from its candidates, cut by cut."""

    def draw(problem: Problem, workers: int, seed: int) -> Plan:
        rng = np.random.default_rng(seed)
        cuts = prime_factors(workers)
        composites = [Tiling((), ()) for _ in problem.variables]
        for ways in cuts:
            for variable in problem.variables:
                options = problem.extensions(variable, composites[variable.number], ways)
                composites[variable.number] = options[rng.integers(len(options))]
        by_tensor = dict.fromkeys(problem.variable_of_tensor, 0)
        for name, amount in problem.bytes_by_tensor(composites):
            by_tensor[name] += amount
        return Plan(
            model=problem.graph.name,
            model_digest="",
            cuts=cuts,
            tilings={name: composites[number] for name, number in problem.variable_of_tensor.items()},
            strategies={
                bound.op.name: OpStrategy(
                    composites[problem.variable_of_op[bound.op.name]], tuple(v.name for v in bound.variables)
                )
                for bound in problem.ops
            },
            tensor_bytes=by_tensor,
            moved_bytes=sum(by_tensor.values()),
            soybean_bytes=0,
            peak_bytes=(),
            replicated_flop_share=0.0,
            certified_gap=None,
            strategy="random",
            unsplit=(),
        )

    return draw
