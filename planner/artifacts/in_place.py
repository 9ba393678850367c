"""Results of a segment that may overwrite one of its inputs: one rule for planner, run and proof.

A segment is one session of ONNX Runtime, which makes one kernel of several nodes: MatMul and Add become Gemm, Mul and
Sigmoid QuickGelu, and a product reads the operand of the Mul or Identity before it. Such a kernel may write while it
reads, or run after the write. So a segment counts as one node, but for the operators of ``UPDATING``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from onnx import FunctionProto

from planner.graph.core.subgraph import graphs_of, read_names
from planner.graph.core.traits import ELEMENT_WISE, named

UPDATING: Final = named("Abs Add Cast Div Identity Mul Neg Reciprocal Sqrt Sub")
"""Element-wise operators of which the runtime makes no kernel that reads an element after it has written it: neither
of several of them, nor of one and what comes before it or, where its result is kept, after it. A test runs the stock
runtime over all of them."""


class FlowNode(NamedTuple):
    """A node by what it reads and makes."""

    op_type: str
    """"" where it is none of ONNX's own domain."""
    reads: Sequence[str]
    makes: Sequence[str]


class Flow:
    """Readers and makers among nodes.

    Args:
        nodes: in any order.
    """

    def __init__(self, nodes: Sequence[FlowNode]) -> None:
        self._nodes = nodes
        self._maker: dict[str, int] = {}
        self._readers: dict[str, list[int]] = {}
        for number, node in enumerate(nodes):
            self._maker.update(dict.fromkeys(node.makes, number))
            for name in node.reads:
                self._readers.setdefault(name, []).append(number)

    def apart(self, source: str, result: str) -> set[int]:
        """Numbers of the nodes that must be in another session than a result which is written over a source.

        Left are nodes of ``UPDATING`` on the way from the source to the result, and element-wise readers of the result:
        all others read the source, or something made of it, and may be joined with those on the way.

        Args:
            source: what the result is written over.
            result: of the same shape.
        """
        way: set[int] = set()
        waiting = [result]
        while waiting:
            number = self._maker.get(waiting.pop())
            if number is not None and number not in way and self._nodes[number].op_type in UPDATING:
                way.add(number)
                waiting.extend(self._nodes[number].reads)
        separate: set[int] = set()
        seen = {source, result, ""}
        for first in (source, result):
            waiting = [first]
            while waiting:
                for number in self._readers.get(waiting.pop(), ()):
                    node = self._nodes[number]
                    if number in way or (first == result and node.op_type in ELEMENT_WISE):
                        waiting.extend([name for name in node.makes if name not in seen])
                        seen.update(node.makes)
                    else:
                        separate.add(number)
        return separate


def overwriting(functions: Mapping[str, FunctionProto]) -> Callable[[str, int, int], bool]:
    """Tells of a function, the position of an input and that of an output of the same shape whether the output may lie
    where the input lies; many segments ask it of one function.

    Args:
        functions: of segments, by name.
    """

    @cache
    def flow(function: str) -> Flow:
        return Flow(
            [
                FlowNode("" if node.domain or graphs_of(node) else node.op_type, read_names(node), node.output)
                for node in functions[function].node
            ]
        )

    @cache
    def is_over(function: str, source: int, target: int) -> bool:
        proto = functions[function]
        name = proto.input[source]
        return name not in proto.output and not flow(function).apart(name, proto.output[target])

    return is_over
