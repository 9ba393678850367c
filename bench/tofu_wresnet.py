"""The plan of WResNet-152-10 on 8 workers, convolution by convolution (Tofu's Figure 11).

    python bench/tofu_wresnet.py [--model wresnet-152-10] [--strategy tofu-recursion]

Equal blocks in a row are one line ("xN" in the figure). A tiling lists the dims that are cut, outermost cut first: of
an activation b (batch), c (channel), y, x; of a weight o (output channel), i (input channel), y, x; R: replicated.
Below it the paper's observations (its section 7.4), and whether they hold.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from strategies import Model

from planner.algebra.tiling import Shard, Tiling
from planner.search.decide import STRATEGIES, decide
from planner.search.decision import Decision
from planner.search.request import SearchRequest

WORKERS = 8
_LAYER = re.compile(r"(?P<group>group\d)\.(?P<block>block\d+)\.(?P<layer>\w+)\.conv")


@dataclass(frozen=True)
class Block:
    """The convolutions of a residual block, or the stem."""

    group: str
    name: str
    layers: tuple[tuple[str, str, str, str], ...]
    """Layer, and the letters of what it reads, its weight and what it makes."""
    weight_bytes: int
    """Moved because of its weights, their gradients and updates."""
    activation_bytes: int
    """Moved because of what it reads and makes, forward."""


def _letters(tiling: Tiling, names: str) -> str:
    return "".join(names[part.dim] if isinstance(part, Shard) else "R" for part in tiling.placements)


def blocks(model: Model, plan: Decision) -> Iterator[Block]:
    """The blocks of the forward pass, first to last."""
    convolutions = [op for op in model.graph.ops if op.op_type == "Conv" and op.inputs[1].endswith(".conv.weight")]
    forward = [op for op in convolutions if op.name.endswith(".conv")]

    def block_of(name: str) -> tuple[str, str]:
        found = _LAYER.fullmatch(name)
        return ("stem", "stem") if found is None else (found["group"], found["block"])

    for (group, name), ops in itertools.groupby(forward, key=lambda op: block_of(op.name)):
        layers = []
        weights = activations = 0
        for op in ops:
            x, weight, y = op.inputs[0], op.inputs[1], op.outputs[0]
            tilings = [plan.tilings[tensor] for tensor in (x, weight, y)]
            found = _LAYER.fullmatch(op.name)
            layer = "stem" if found is None else found["layer"]
            layers.append((layer, *map(_letters, tilings, ("bcyx", "oiyx", "bcyx"))))
            related = [tensor for tensor in plan.tensor_bytes if tensor == weight or tensor.startswith(f"{weight}.")]
            weights += sum(plan.tensor_bytes[tensor] for tensor in related)
            activations += plan.tensor_bytes[x] + plan.tensor_bytes[y]
        yield Block(group, name, tuple((a, b, c, d) for a, b, c, d in layers), weights, activations)


def main() -> None:
    parser = argparse.ArgumentParser(description="The plan of WResNet-152-10, as Tofu's Figure 11 draws it.")
    parser.add_argument("--model", default="wresnet-152-10")
    parser.add_argument("--strategy", default="tofu-recursion", choices=STRATEGIES)
    chosen = parser.parse_args()
    model = Model.of(chosen.model)
    decision = decide(model.graph, model.ops, SearchRequest(WORKERS, strategy=chosen.strategy))
    plan = decision
    found = list(blocks(model, plan))
    table = Table("blocks", "layer", "reads", "weight", "makes", "MB for weights", "MB for activations")
    table.title = f"{chosen.model}, {WORKERS} workers, {chosen.strategy}: {plan.moved_bytes / 1e6:.1f} MB"
    for (group, layers), run in itertools.groupby(found, key=lambda block: (block.group, block.layers)):
        same = list(run)
        names = f"{group} {same[0].name}" + (f" x{len(same)}" if len(same) > 1 else "")
        moved = [f"{sum(block.weight_bytes for block in same) / 1e6:.1f}"]
        moved.append(f"{sum(block.activation_bytes for block in same) / 1e6:.1f}")
        for number, (layer, *tilings) in enumerate(layers):
            table.add_row(names if not number else "", layer, *tilings, *(moved if not number else ("", "")))
    console = Console(width=140, highlight=False)
    console.print(table)
    for observation, holds in observations(found):
        console.print(f"{observation}: {'holds' if holds else 'does NOT hold'}", markup=False)


def observations(found: list[Block]) -> Iterator[tuple[str, bool]]:
    """What the paper says of its plan."""
    letters = {letter for block in found for _, *tilings in block.layers for letter in "".join(tilings)}
    yield "both batch and channels are cut", letters >= {"b", "c"}
    differs = any(len({layer[1:] for layer in block.layers}) > 1 for block in found)
    yield "convolutions of one block are cut in different ways", differs
    groups = [list(run) for _, run in itertools.groupby(found, key=lambda block: block.group)]
    alike = all(len({block.layers for block in group[1:]}) <= 1 for group in groups)
    yield "in a group all blocks but the first are cut in the same way", alike
    share = [
        sum(block.weight_bytes for block in group)
        / max(1, sum(block.weight_bytes + block.activation_bytes for block in group))
        for group in (groups[1], groups[-1])
    ]
    what = f"lower blocks move weights ({share[0]:.0%} of bytes), higher ones activations ({1 - share[1]:.0%})"
    yield what, share[0] > 0.5 > share[1]


if __name__ == "__main__":
    main()
