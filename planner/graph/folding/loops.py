"""A Loop that goes round as often as is known beforehand, and a Scan, are their bodies one after the other.

Exporters write ``for`` loops so (torch.jit.script, lax.fori_loop and lax.scan, tf2onnx). A round is folded as soon as
it is written, so that a condition or a counter that a body computes from what is known is known for the next round.
What one round hands on is by its name what the next one reads; outputs by round are stacked; tensors of the graph
around are read as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from onnx import GraphProto, NodeProto, helper

from planner.graph.core.model import Op, of_types
from planner.graph.core.subgraph import graphs_of
from planner.graph.core.wellformed import fresh_name
from planner.graph.folding.branches import Inlined, inlined
from planner.graph.folding.known import KnownGraph
from planner.graph.folding.restated import Nodes, know_initializers

MAX_UNROLLED_OPS: Final = 10_000
"""Ops that all loops of a graph may be, once they are unrolled: a plan is made of each."""

_NEVER: Final = "it never goes round, and what it would give for each round is empty"


class NotUnrolledError(Exception):
    """A loop that stays as it is; the text says why, where there is more to say than that only a run tells."""


@dataclass(slots=True)
class Unroller:
    """Unrolls the loops of one graph.

    Args:
        graph: what is known of it; gets the constants of bodies.
        take_all: folds nodes.
    """

    graph: KnownGraph
    take_all: Callable[[Nodes], None]
    written: int = 0
    """Ops of rounds so far."""
    shared: dict[str, dict[str, str]] = field(default_factory=dict)
    """By loop, what the names of its body's constants have become: one tensor for all rounds."""

    def unroll(self, op: Op, node: NodeProto) -> None:
        """Write a loop's rounds in its place.

        Args:
            op: a Loop or a Scan of the default domain, whose operands are known to the graph.
            node: the same, as ONNX writes it.

        Raises:
            NotUnrolledError: how often it goes round is known only at run time, it never does, or is too many ops.
        """
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        before = self.written
        try:
            if op.op_type == "Scan":
                self._scan(op, node, attributes)
            else:
                self._loop(op, node, attributes["body"])
        except NotUnrolledError:
            self.written = before  # nothing reads what was written
            raise

    def _loop(self, op: Op, node: NodeProto, body: GraphProto) -> None:
        states_trips, states_condition = op.has_input(0), op.has_input(1)
        trips = self._number(node.input[0]) if states_trips else None
        condition = self._number(node.input[1]) if states_condition else 1
        if condition is None or (states_trips and trips is None):
            raise NotUnrolledError
        size = _size(body.node)
        # A loop may state more rounds than it takes: then its condition ends it, or the bound does.
        if _hands_on(body, 0, 1) and trips is None:
            raise NotUnrolledError("no trip count, and a condition that is handed on: nothing ends it")
        if _hands_on(body, 0, 1) and trips is not None and trips * size > MAX_UNROLLED_OPS:
            raise NotUnrolledError(_too_many(trips, size))
        carried = list(node.input[2:])
        by_round = [list[str]() for _ in body.output[1 + len(carried) :]]
        rounds = 0
        while condition and (trips is None or rounds < trips):
            self._spend(size, rounds, trips)
            number, holds = (fresh_name(f"{op.name}/{rounds}/{part}", self.graph.tensors) for part in ("i", "holds"))
            self.graph.know(number, np.array(rounds, np.int64))
            self.graph.know(holds, np.array(True))
            outputs = self._round(op, body, rounds, [number, holds, *carried])
            condition = self._number(outputs[0])
            if condition is None:
                raise NotUnrolledError
            carried = outputs[1 : 1 + len(carried)]
            for parts, name in zip(by_round, outputs[1 + len(carried) :], strict=True):
                parts.append(name)
            rounds += 1
        if not rounds and by_round:
            raise NotUnrolledError(_NEVER)
        finals, stacks = node.output[: len(carried)], node.output[len(carried) :]
        self._hand_on(op, carried, finals)
        for parts, to in zip(by_round, stacks, strict=False):
            self._stack(op, parts, to, 0)

    def _scan(self, op: Op, node: NodeProto, attributes: dict[str, Any]) -> None:
        body, scanned = attributes["body"], int(attributes["num_scan_inputs"])
        first = len(node.input) - scanned
        carried, read = list(node.input[:first]), list(node.input[first:])
        made_by_round = len(body.output) - first
        axes = [
            int(axis) % len(self.graph.tensors[name].shape)
            for name, axis in zip(read, attributes.get("scan_input_axes") or [0] * scanned, strict=True)
        ]
        counts = {self.graph.tensors[name].shape[axis] for name, axis in zip(read, axes, strict=True)}
        if len(counts) != 1:
            raise NotUnrolledError("what it reads round by round is not of as many rounds")
        (rounds,) = counts
        # A stack of no rounds is an empty tensor, which no plan holds.
        if not rounds and made_by_round:
            raise NotUnrolledError(_NEVER)
        size = _size(body.node)
        if rounds * size > MAX_UNROLLED_OPS:
            raise NotUnrolledError(_too_many(rounds, size))
        backwards = attributes.get("scan_input_directions") or [0] * scanned
        slices = [
            self._slices(op, name, axis, rounds)[:: -1 if back else 1]
            for name, axis, back in zip(read, axes, backwards, strict=True)
        ]
        by_round = [list[str]() for _ in range(made_by_round)]
        for number in range(rounds):
            self._spend(size, number, rounds)
            outputs = self._round(op, body, number, [*carried, *(parts[number] for parts in slices)])
            carried = outputs[:first]
            for parts, name in zip(by_round, outputs[first:], strict=True):
                parts.append(name)
        nodes = [
            helper.make_node("Identity", [name], [to]) for name, to in zip(carried, node.output, strict=False) if to
        ]
        self._close(op, nodes)
        directions = attributes.get("scan_output_directions") or [0] * made_by_round
        stacked = attributes.get("scan_output_axes") or [0] * made_by_round
        for parts, to, back, axis in zip(by_round, node.output[first:], directions, stacked, strict=False):
            self._stack(op, parts[:: -1 if back else 1], to, int(axis))

    def _round(self, op: Op, body: GraphProto, number: int, inputs: Sequence[str]) -> list[str]:
        """Writes one round; gives the names of the body's outputs."""
        shared = self.shared.setdefault(op.name, {})
        names = {value.name: name for value, name in zip(body.input, inputs, strict=True)} | shared
        part: Inlined = inlined(body, names, f"{op.name}/{number}", self.graph.tensors, of_all_rounds=op.name)
        know_initializers(part.initializers, op, self.graph)
        shared.update(part.constants)
        self.take_all([(f"{op.name}/{number}/{at}", inner) for at, inner in enumerate(part.nodes)])
        return list(part.outputs)

    def _hand_on(self, op: Op, last: Sequence[str], outputs: Sequence[str]) -> None:
        """Gives the results of the last round the names of the loop's outputs."""
        pairs = zip(last, outputs, strict=False)
        self._close(op, [helper.make_node("Identity", [name], [to]) for name, to in pairs if to])

    def _slices(self, op: Op, name: str, axis: int, count: int) -> list[str]:
        """A tensor's slices along a dim, without it."""
        axes = self._constant(f"{op.name}/{name}/axis", [axis])
        wide = [fresh_name(f"{op.name}/{number}/{name}/wide", self.graph.tensors) for number in range(count)]
        flat = [fresh_name(f"{op.name}/{number}/{name}", self.graph.tensors) for number in range(count)]
        nodes = []
        if count > 1:
            sizes = self._constant(f"{op.name}/{name}/sizes", [1] * count)
            nodes.append(helper.make_node("Split", [name, sizes], wide, axis=axis))
        nodes += [
            helper.make_node("Squeeze", [source if count > 1 else name, axes], [to])
            for source, to in zip(wide, flat, strict=True)
        ]
        self._close(op, nodes, f"/{name}")
        return flat

    def _stack(self, op: Op, parts: Sequence[str], to: str, axis: int) -> None:
        """Tensors side by side along a new dim."""
        if not to:
            return
        axis %= len(self.graph.tensors[parts[0]].shape) + 1 if parts[0] in self.graph.tensors else 1
        axes = self._constant(f"{op.name}/{to}/axis", [axis])
        wide = [fresh_name(f"{op.name}/{number}/{to}/wide", self.graph.tensors) for number in range(len(parts))]
        nodes = [
            helper.make_node("Unsqueeze", [part, axes], [name if len(parts) > 1 else to])
            for part, name in zip(parts, wide, strict=True)
        ]
        if len(parts) > 1:
            nodes.append(helper.make_node("Concat", wide, [to], axis=axis))
        self._close(op, nodes, f"/{to}")

    def _close(self, op: Op, nodes: Sequence[NodeProto], part: str = "") -> None:
        self.take_all([(f"{op.name}{part}/{at}", node) for at, node in enumerate(nodes)])

    def _constant(self, wanted: str, values: Sequence[int]) -> str:
        name = fresh_name(wanted, self.graph.tensors)
        self.graph.know(name, np.array(values, np.int64))
        return name

    def _number(self, name: str) -> int | None:
        """A trip count or a condition that is known; None for one that only a run tells, or that is absent."""
        if not name or not self.graph.demand([name]):
            return None
        value = self.graph.values[name]
        return None if value is None or value.size != 1 else int(value.reshape(()).item())

    def _spend(self, size: int, rounds: int, trips: int | None) -> None:
        self.written += size
        if self.written > MAX_UNROLLED_OPS:
            so_far = f"{rounds} of {trips} rounds" if trips is not None and trips < 2**31 else f"{rounds} rounds"
            raise NotUnrolledError(
                f"{so_far} of {size} ops, and whatever other loops there are, make {self.written - size} ops; at most "
                f"{MAX_UNROLLED_OPS} are unrolled"
            )


def _too_many(rounds: int, size: int) -> str:
    return f"{rounds} rounds of {size} ops are {rounds * size} ops; at most {MAX_UNROLLED_OPS} are unrolled"


def _size(nodes: Iterable[NodeProto]) -> int:
    """Ops of a round, at least one."""
    return max(1, sum(1 + sum(_size(graph.node) for graph in graphs_of(node)) for node in nodes))


def _hands_on(body: GraphProto, output: int, input_slot: int) -> bool:
    """Whether an output of a body is one of its inputs, as it is or by Identities."""
    made_by = {name: node for node in body.node for name in node.output}
    name = body.output[output].name
    while copy := of_types(made_by.get(name), ("Identity",)):
        name = copy.input[0]
    return bool(name == body.input[input_slot].name)
