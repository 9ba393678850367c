"""Layer-wise parallelism (ICML'18): its costs of communication (Figure 8) and its plan of VGG-16 (Table 5), in bytes.

    python bench/layer_wise.py                  on 4 devices, 32 samples each; --workers 4 8 16 for more
    python bench/layer_wise.py --table          VGG-16 on 4 devices, layer by layer, beside Table 5

The paper's claims: mixed parallelism (OWT) moves 1.1 to 23 times less than data and model parallelism, and layer-wise
parallelism 1.2 to 2.5 times less than that. Times are estimates for its testbed, 16 devices,
or the nearest so many of these.
"""

from __future__ import annotations

import argparse
from math import prod

from rich.console import Console
from rich.table import Table
from strategies import Model, costs, line

from planner.algebra.tiling import Only, Shard
from planner.artifacts.plan import OpStrategy
from planner.search.decide import decide
from planner.search.literature.layers import machine_of_the_paper
from planner.search.request import SearchRequest

NETWORKS = ("alexnet", "vgg-16", "inception-v3")
STRATEGIES = ("data", "model", "mixed", "layer-wise", "tofu")
CLAIMS = ("OWT less than data, model", "layer-wise less than OWT")
SAMPLES = 32
LAYERS = {"Conv": "Convolution", "MaxPool": "Pooling", "Gemm": "Fully-connected"}
PAPER = {
    "conv1": "n=4",
    "conv2": "n=4",
    "conv3": "n=4",
    "conv4": "n=4",
    "conv5": "h=2 w=2",
    "fc1": "c=4",
    "fc2": "c=4 or c=2",
    "fc3": "c=2",
}
"""Table 5, by the first letters of a layer's name; its second line for dense layers is on the border of two."""
_DIMS = {"b": "n", "co": "c", "n": "c", "y": "h", "x": "w", "m": "n", "y0": "h", "y1": "w"}


def degrees(strategy: OpStrategy) -> str:
    """A configuration as the paper writes it: ``n=2 h=2``."""
    found: dict[str, int] = {}
    idle = 1
    for placement, ways in zip(strategy.tiling.placements, strategy.tiling.ways, strict=True):
        if isinstance(placement, Shard):
            name = strategy.variables[placement.dim]
            found[_DIMS.get(name, name)] = found.get(_DIMS.get(name, name), 1) * ways
        elif isinstance(placement, Only):
            idle *= ways
    text = " ".join(f"{name}={degree}" for name, degree in found.items()) or "n=1"
    return text + (f" ({prod(strategy.tiling.ways) // idle} of {prod(strategy.tiling.ways)})" if idle > 1 else "")


def communication(console: Console, workers: tuple[int, ...]) -> None:
    """Figure 8 in bytes, and times where the testbed has as many devices; line by line."""
    widths = (14, 9, *(16 for _ in STRATEGIES), 26, 0)
    line(console, ("network", "devices", *(f"{strategy} MB" for strategy in STRATEGIES), *CLAIMS), widths)
    for name in NETWORKS:
        for count in workers:
            model = Model.of(name, SAMPLES * count)
            rows = costs(model, count, STRATEGIES, program=True, machine=machine_of_the_paper(count))
            found = {cost.strategy: cost for cost in rows}
            cells = []
            for strategy in STRATEGIES:
                seconds = found[strategy].iteration_seconds
                estimated = "" if seconds is None else f", {1e3 * seconds:.0f} ms"
                cells.append(f"{found[strategy].moved_megabytes:.0f}{estimated}")
            mixed = found["mixed"].moved_megabytes
            less = " and ".join(f"{found[other].moved_megabytes / mixed:.1f}x" for other in ("data", "model"))
            line(
                console, (name, str(count), *cells, less, f"{mixed / found['layer-wise'].moved_megabytes:.1f}x"), widths
            )


def configurations(console: Console) -> None:
    """Table 5: the configuration of each layer of VGG-16 on 4 devices."""
    model = Model.of("vgg-16", 4 * SAMPLES)
    plan = decide(model.graph, model.ops, SearchRequest(4, strategy="layer-wise"))
    own = decide(model.graph, model.ops, SearchRequest(4))
    table = Table("layer", "kind", "layer-wise", "paper's Table 5", "tofu's strategy")
    for op in model.graph.ops:
        said = next((PAPER[start] for start in PAPER if op.name.startswith(start)), "")
        if op.op_type in LAYERS and (said or op.name.startswith("pool")):
            named = said or PAPER.get(op.name.replace("pool", "conv"), "")
            strategies = (degrees(plan.strategies[op.name]), named, str(own.strategies[op.name]))
            table.add_row(op.name, LAYERS[op.op_type], *strategies)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Layer-wise parallelism beside what its paper reports.")
    parser.add_argument("--table", action="store_true", help="VGG-16 on 4 devices, layer by layer")
    parser.add_argument("--workers", type=int, nargs="*", default=[4])
    chosen = parser.parse_args()
    console = Console(width=180, highlight=False, soft_wrap=True)
    if chosen.table:
        configurations(console)
    else:
        communication(console, tuple(chosen.workers))


if __name__ == "__main__":
    main()
