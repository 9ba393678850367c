"""Inputs and outputs of a step that no update's form has paired, and that may belong together.

Updates have more forms than ``update_forms`` knows: a soft threshold, a projection, a quotient, a shifted queue, a copy
in 16 bits. Each reads what it replaces element by element, or is a copy of a next state. What is left over and has one
shape and dtype is looked at here; ``roles`` decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from planner.graph.model import Graph, Op
from planner.graph.traits import COPYING, ELEMENT_WISE, LOGIC, LOOKUPS, MOVING, SCATTERS, named
from planner.walk import walk

_CHANGING: Final = named(
    "BitShift Cast Clip DequantizeLinear Div Identity Mod QuantizeLinear Relu Round Sign Sqrt Sub Tanh"
)
"""Ops that change elements of their first operand, and keep their sign."""


def kept_inputs(graph: Graph, output: str) -> frozenset[str]:
    """The inputs that an output reads element by element, without a product, a sum over elements or a lost sign."""

    def kept(name: str) -> list[str]:
        op, shape = graph.producer.get(name), graph.tensors[name].shape
        if op is None or op.domain:
            return []
        return [read for read in _handed_on(op) if _is_moving(op) or graph.tensors[read].shape == shape]

    return frozenset(walk([output], kept)).intersection(graph.inputs)


def _handed_on(op: Op) -> tuple[str, ...]:
    named = tuple(name for name in op.inputs if name)
    if op.op_type == "Mul" and len(set(named)) == 1:
        return ()  # a square has no sign
    if op.op_type == "Where":
        return named[1:]
    if op.op_type in LOGIC or op.op_type in ("Add", "Concat", "Max", "Min", "Mul", "Sum"):
        return named
    return named[:1] if _is_moving(op) or op.op_type in _CHANGING or op.op_type in SCATTERS else ()


def _is_moving(op: Op) -> bool:
    return op.op_type in MOVING or op.op_type in LOOKUPS or op.op_type == "Concat"


def roots_of(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    """Some tensors, and those of which they are copies, perhaps in another dtype."""
    roots: set[str] = set()
    for name in names:
        roots.add(name)
        while (op := graph.producer.get(name)) is not None and op.op_type in COPYING and not op.domain:
            name = op.inputs[0]
            roots.add(name)
    return frozenset(roots)


def is_statistic(graph: Graph, output: str) -> bool:
    """Whether an output is made of inputs, reductions and single numbers, element by element."""
    goal = graph.tensors[output]
    pending, seen, is_reduced = [output], {output}, goal.elements == 1
    while pending:
        name = pending.pop()
        op, tensor = graph.producer.get(name), graph.tensors[name]
        if tensor.shape != goal.shape:
            if tensor.elements != 1:
                return False
        elif op is not None and op.op_type.startswith("Reduce"):
            is_reduced = True
        elif op is not None:
            if op.op_type not in ELEMENT_WISE or op.domain:
                return False
            following = [read for read in op.inputs if read and read not in seen]
            seen.update(following)
            pending += following
    return is_reduced
