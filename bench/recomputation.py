"""What ``--recompute auto`` chooses, beside every set of activations, on small steps.

Perceptrons are planned on two workers at a limit between the least memory and what is enough: by ``auto``, and with
every set of activations by itself. The best of the latter is held against ``auto`` and its bound. Tilings with a set
are found by the search within the limit.

    python bench/recomputation.py --graphs 500
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from itertools import chain, combinations
from pathlib import Path

from planner import api
from planner.artifacts.plan import Plan
from planner.errors import InfeasibleError
from planner.graph.model import Graph
from planner.graph.rewriting.canonical import canonical
from planner.graph.rewriting.recomputation import recomputable
from planner.graph.to_onnx import write_model
from planner.zoo import mlp

WORKERS = 2
MOST_ACTIVATIONS = 6
"""Each doubles the sets."""
SHARES = (0.7, 0.8, 0.9)
"""Of what is enough for the plan without a limit."""


def drawn(number: int) -> Graph:
    """A perceptron of other sizes for each number."""
    random_numbers = random.Random(number)
    layers, width, batch = (random_numbers.choice(of) for of in ((2, 3, 4), (4, 8, 16), (32, 64, 128)))
    return mlp(layers, width, batch)


def plan_of(path: Path, memory: int | None, recompute: str | Sequence[str]) -> Plan | None:
    """The plan; None if there is none that fits."""
    try:
        return api.plan(
            path,
            gpus=WORKERS,
            memory=memory,
            recompute=recompute,
            share="none",
            out=path.parent / "plan",
            force=True,
            models=False,
        ).plan
    except InfeasibleError:
        return None


def main() -> None:
    """Prints a line for each step of which ``auto`` is above the best set, and how many are not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=10)
    arguments = parser.parse_args()
    met, near, below, missed = 0, 0, 0, 0
    for number in range(arguments.graphs):
        graph = drawn(number)
        held = recomputable(canonical(graph).graph)
        if len(held) > MOST_ACTIVATIONS:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "step.onnx"
            write_model(graph, path)
            free = plan_of(path, None, "none")
            assert free is not None, "without a limit there is a plan"
            limit = int(random.Random(number).choice(SHARES) * max(free.peak_bytes))
            auto = plan_of(path, limit, "auto")
            sets = chain.from_iterable(combinations(held, count) for count in range(1, len(held) + 1))
            plans = [plan_of(path, limit, one) for one in ("none", *sets)]
        costs = [one.cost for one in plans if one is not None]
        if not costs:
            missed += auto is not None
            continue
        met += 1
        if auto is None:
            print(f"{number}: {graph.name}, limit {limit:,} B: none found, best {min(costs):,}")
            continue
        near += auto.cost <= 1.05 * min(costs)
        lower = None if auto.certified_gap is None else auto.cost / (1 + auto.certified_gap)
        below += lower is not None and min(costs) < lower - 1
        if auto.cost > 1.05 * min(costs):
            print(f"{number}: {graph.name}, limit {limit:,} B: {auto.cost:,}, best {min(costs):,}, bound {lower}")
    print(f"{met} limits met; within 5% of the best set: {near}; below the bound: {below}; auto alone: {missed}")


if __name__ == "__main__":
    main()
