"""How many analyses a graph of 5,000 ops takes: one for each signature, shared by all shapes that it admits.

    python bench/analyses.py [layers]

The graph is made of repeated layers, each wider than the one before. A signature is an op type, attributes, ranks, and
those sizes that the mathematics uses as a multiplier or divisor: a Reshape that splits heads has one for each width.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from planner import opdefs
from planner.graph.core.model import Attribute, DType, Graph, Op, Shape, Tensor

BATCH, LENGTH, HEAD = 8, 32, 16


@dataclass
class Sketch:
    """A graph under construction; shapes are given with each op."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    constants: dict[str, np.ndarray | None] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)

    def given(self, name: str, shape: Shape) -> str:
        self.tensors[name] = Tensor(name, shape, DType.FLOAT32)
        self.inputs.append(name)
        return name

    def ints(self, name: str, *values: int) -> str:
        self.constants[name] = np.array(values, dtype=np.int64)
        self.tensors[name] = Tensor(name, (len(values),), DType.INT64)
        return name

    def op(self, op_type: str, shape: Shape, *inputs: str, **attributes: Attribute) -> str:
        name = f"{op_type}{len(self.ops)}"
        self.tensors[name] = Tensor(name, shape, DType.FLOAT32)
        self.ops.append(Op(name, op_type, inputs, (name,), tuple(sorted(attributes.items()))))
        return name


def layer(sketch: Sketch, number: int) -> None:
    """Ten ops: a projection, heads, scores, a normalisation, a feed-forward layer."""
    width = HEAD * (4 + number)
    rows: Shape = (BATCH, LENGTH, width)
    x, w = sketch.given(f"x{number}", rows), sketch.given(f"w{number}", (width, width))
    bias, scale = sketch.given(f"b{number}", (width,)), sketch.given(f"s{number}", (width,))
    projected = sketch.op("Add", rows, sketch.op("MatMul", rows, x, w), bias)
    heads = (BATCH, LENGTH, width // HEAD, HEAD)
    split = sketch.op("Reshape", heads, projected, sketch.ints(f"heads{number}", *heads))
    across = (BATCH, width // HEAD, LENGTH, HEAD)
    turned = sketch.op("Transpose", across, split, perm=(0, 2, 1, 3))
    scores = sketch.op("Softmax", across, turned, axis=-1)
    back = sketch.op("Transpose", heads, scores, perm=(0, 2, 1, 3))
    merged = sketch.op("Reshape", rows, back, sketch.ints(f"rows{number}", *rows))
    normal = sketch.op("LayerNormalization", rows, merged, scale, axis=-1)
    active = sketch.op("Gelu", rows, normal)
    sketch.op("ReduceSum", (BATCH, LENGTH, 1), active, sketch.ints(f"axes{number}", -1), keepdims=1)


def main(layers: int) -> None:
    sketch = Sketch()
    for number in range(layers):
        layer(sketch, number)
    graph = Graph(
        "layers",
        sketch.tensors,
        tuple(sketch.ops),
        tuple(sketch.inputs),
        (sketch.ops[-1].outputs[0],),
        sketch.constants,
    )
    descriptions = opdefs.standard()
    made: Counter[str] = Counter()
    begin = time.perf_counter()
    for op in graph.ops:
        before = descriptions.analyses_made
        descriptions.bind(op, graph)
        made[op.op_type] += descriptions.analyses_made - before
    seconds = time.perf_counter() - begin
    used = Counter(op.op_type for op in graph.ops)
    print(f"{'operator':<22}{'ops':>8}{'analyses':>10}")
    for op_type in sorted(used):
        print(f"{op_type:<22}{used[op_type]:>8}{made[op_type]:>10}")
    print(f"{'all':<22}{len(graph.ops):>8}{sum(made.values()):>10}   {seconds:.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
