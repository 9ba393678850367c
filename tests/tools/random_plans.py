"""Plans drawn at random, good or bad, of any model of the zoo: what the tables say they move, and what they do.

    python tests/tools/random_plans.py [MODEL ...] [--workers 2 3] [--seed 1]

Every variable's composite is drawn from its candidates, cut by cut. The tables' bytes must be those of the program that
the partitioner makes of the plan; the last line says where they are not. Models: all of the zoo, the small ones first.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from partial_plans import plan_of
from planner import opdefs
from planner.algebra.tiling import UNCUT, Shard, Tiling
from planner.collection import without_collection
from planner.features.zoo import models as zoo
from planner.partition.build import partition
from planner.search.decision import Decision
from planner.search.model.cuts import prime_factors
from planner.search.model.problem import Problem


def random_plan(problem: Problem, workers: int, seed: int) -> Decision:
    """Draws every variable's composite at random from its candidates, cut by cut."""
    rng = np.random.default_rng(seed)
    composites = [UNCUT for _ in problem.variables]
    for ways in prime_factors(workers):
        for variable in problem.variables:
            options = problem.extensions(variable, composites[variable.number], ways)
            composites[variable.number] = options[rng.integers(len(options))]
    return plan_of(problem, [nested_at_random(one, rng) for one in composites])


def nested_at_random(tiling: Tiling, rng: np.random.Generator) -> Tiling:
    """The same placements; half of the tilings have cuts that nest in an order that is drawn."""
    if rng.integers(2):
        return tiling
    placements = [
        Shard(one.dim, one.block, int(rng.integers(2))) if isinstance(one, Shard) else one for one in tiling.placements
    ]
    return Tiling(tuple(placements), tiling.ways).settled


@without_collection()
def _moved(name: str, workers: int, seed: int) -> tuple[int, int]:
    """Bytes by the tables and by the program."""
    graph = zoo.build(name)
    ops = opdefs.standard().bind_all(graph)
    plan = random_plan(Problem(graph, ops, workers), workers, seed)
    return plan.moved_bytes, partition(graph, ops, plan).program.predicted_bytes


def main() -> int:
    parser = argparse.ArgumentParser(description="Random plans of the zoo: tables beside programs.")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    names = chosen.models or sorted(zoo.names(zoo.PAPERS), key=lambda name: len(zoo.build(name).ops))
    untrue = []
    print(f"{'model':16} {'workers':8} {'tables, bytes':>22} {'program, bytes':>22}  equal  seconds")
    for name in names:
        for workers in chosen.workers:
            started = time.process_time()
            tables, program = _moved(name, workers, chosen.seed)
            is_equal = tables == program > 0
            untrue += [] if is_equal else [f"{name} on {workers} workers"]
            seconds = time.process_time() - started
            verdict = "yes" if is_equal else "NO"
            print(f"{name:16} {workers:<8} {tables:22,} {program:22,}  {verdict:5}  {seconds:7.1f}", flush=True)
    print(f"seed {chosen.seed}; not equal: {', '.join(untrue) or 'none'}")
    return 1 if untrue else 0


if __name__ == "__main__":
    sys.exit(main())
