"""Random values for a graph's inputs, as a run without ``--inputs`` has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.algebra.region import Region
from planner.graph.core.model import Graph
from planner.runtime.values.samples import Sampler


def sample(graph: Graph, names: Sequence[str], seed: int) -> dict[str, np.ndarray]:
    """Whole values for inputs.

    Raises:
        UsageError: there are integers of which nothing says how large they may be; all of them are named.
        ModelError: the metadata cannot be read.
    """
    sampler = Sampler(graph, seed)
    sampler.check(names)
    shapes = {name: graph.tensors[name].shape for name in names}
    return {name: sampler.tile(name, Region.whole(shape)).reshape(shape) for name, shape in shapes.items()}
