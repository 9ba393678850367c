"""What an engine gives from drawn values, of which a run on CPUs knows what is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.errors import DifferenceError
from planner.runtime.engine.core.interface import Engine
from planner.runtime.values.state import starting_values
from planner.runtime.values.tiles import gather_tiles, load_tiles


def results_of(plan: Any, engine: Engine, steps: int) -> dict[str, np.ndarray]:
    """What some steps give; the engine is closed then."""
    with engine:
        load_tiles(engine, starting_values(plan.graph, seed=4))
        for step in range(steps):
            iteration = engine.iterate(advances=step > 0)
            assert sum(map(sum, iteration.moved_bytes)) == plan.program.predicted_bytes
        shapes = {name: plan.graph.tensors[name].shape for name in plan.graph.outputs}
        return gather_tiles(engine, plan.graph.outputs, shapes)


def are_right(plan: Any, engine: Engine, wanted: Mapping[str, np.ndarray]) -> bool:
    """False if three steps give other numbers, or other ones on workers that own the same elements."""
    try:
        found = results_of(plan, engine, 3)
    except DifferenceError:
        return False
    return all(np.allclose(found[name], array, rtol=1e-3, atol=1e-6) for name, array in wanted.items())
