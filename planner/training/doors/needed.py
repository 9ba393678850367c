"""The part of a model that the loss needs, if the whole is unsupported: other outputs that stand in the way are left
out.

A classifier gives labels beside probabilities, a detector boxes beside scores: an operator that only those need would
block a training step that does not look at them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from onnx import ModelProto, NodeProto, ValueInfoProto

from planner.errors import ModelError
from planner.graph.core.check import check_graph
from planner.graph.core.dependence import live_ops
from planner.graph.core.model import Graph
from planner.graph.core.wellformed import live_nodes

_MOST_TRIED: Final = 8
"""Outputs beside the loss's that are tried one by one."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An output of a model that its training step does not have."""

    name: str
    why: str
    """What stood in the way, in one line."""


def read_needed(model: ModelProto, read: Callable[[], Graph], output: str | None) -> tuple[Graph, tuple[LeftOut, ...]]:
    """The graph of a model; if that cannot be read, of those outputs that can, the loss's among them.

    Args:
        model: left with the nodes and outputs of what was read.
        read: reads it as it stands.
        output: what the loss looks at, which may be an inner tensor; None where nobody says it.

    Raises:
        ModelError: the output that the loss looks at cannot be read; or none can.
    """
    _make_output(model, output)
    try:
        return read(), ()
    except ModelError as error:
        outputs, nodes = list(model.graph.output), list(model.graph.node)
        candidates = [value for value in outputs if value.name != output]
        if len(outputs) < 2 or len(candidates) > _MOST_TRIED:
            raise
        reason = error
    selection = [value for value in outputs if value.name == output]
    if selection:
        # What stands in its own way is said, and nothing of other outputs.
        _read_only(model, nodes, selection, read)
    left_out: list[LeftOut] = []
    for value in candidates:
        try:
            _read_only(model, nodes, [*selection, value], read)
        except ModelError as error:
            left_out.append(LeftOut(value.name, one_line(error)))
        else:
            selection.append(value)
    if not selection:
        raise reason
    # In the file's order.
    names = {value.name for value in selection}
    return _read_only(model, nodes, [value for value in outputs if value.name in names], read), tuple(left_out)


def _make_output(model: ModelProto, output: str | None) -> None:
    """Give back an inner tensor as well: logits of a file that gives back probabilities."""
    is_made = any(output in node.output for node in model.graph.node)
    if output and is_made and all(value.name != output for value in model.graph.output):
        model.graph.output.append(ValueInfoProto(name=output))


def _read_only(
    model: ModelProto, nodes: Sequence[NodeProto], outputs: Sequence[ValueInfoProto], read: Callable[[], Graph]
) -> Graph:
    """Read a model of some outputs alone."""
    graph = model.graph
    del graph.output[:]
    graph.output.extend(outputs)
    del graph.node[:]
    graph.node.extend(nodes)
    live = live_nodes(graph)
    del graph.node[:]
    graph.node.extend(live)
    return read()


def only(graph: Graph, output: str) -> Graph:
    """A graph without state with one of its outputs, and with all of its inputs."""
    ops = live_ops(graph.ops, [output])
    names = {name for op in ops for name in (*op.inputs, *op.outputs)} | {*graph.inputs, output}
    alone = replace(
        graph,
        tensors={name: tensor for name, tensor in graph.tensors.items() if name in names},
        ops=ops,
        outputs=(output,),
        constants={name: value for name, value in graph.constants.items() if name in names},
        folded=frozenset(name for name in graph.folded if name in names),
    )
    check_graph(alone)
    return alone


def one_line(error: ModelError) -> str:
    """What an error says, with its first fact."""
    return f"{error.what}: {error.facts[0]}" if error.facts else error.what
