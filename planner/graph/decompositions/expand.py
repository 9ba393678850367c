"""Composite ops of a graph replaced by their bodies, and back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.algebra.lane import Lane
from planner.graph.core.emitter import Emitter, free_prefix
from planner.graph.core.model import Graph, Op, Tensor, qualified
from planner.graph.decompositions.registry import Purpose, decomposition, decompositions


@dataclass(frozen=True, slots=True)
class Body:
    """The ops in the place of a composite op."""

    op: Op
    """The composite."""
    ops: tuple[Op, ...]
    """In execution order. The first ones are copies."""
    copies: tuple[Op, ...]
    """Identity ops of those inputs that several ops of the body read, so that each is delivered once, as to the
    composite. The planned graph has those that bring their input into another tiling."""
    tensors: Mapping[str, Tensor]
    """New ones."""
    constants: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Expanded:
    """A graph with bodies in it."""

    graph: Graph
    bodies: tuple[Body, ...]
    """Of the ops that are not in the graph any more, in their order."""


def body_text(domain: str, op_type: str) -> str:
    """The computation of an operator's body, in words; "" if it has none."""
    rule = decompositions(Purpose.PARTS).get(qualified(domain, op_type))
    return "" if rule is None else rule.text


def has_body(graph: Graph, op: Op) -> bool:
    """True if the op can be replaced by a body, however many workers there are."""
    return _body(graph, op, _names(graph), 1, is_plan=True) is not None


def expand(graph: Graph, names: Collection[str] | None = None, *, workers: int = 1, is_plan: bool = True) -> Expanded:
    """Replaces composite ops by their bodies.

    Names in a body begin with the composite's and depend on nothing but the graph: expanding fewer ops gives the same
    names.

    Args:
        graph: is left as it is.
        names: of the ops to be replaced; None: all that have a body.
        workers: how many the plan is for. Of 1, and so where it is not known, no op becomes one of blocks.
        is_plan: False: ops that are always planned whole are replaced, too.
    """
    reserved = _names(graph)
    bodies: dict[str, Body] = {}
    for op in graph.ops:
        body = _body(graph, op, reserved, workers, is_plan) if names is None or op.name in names else None
        if body is not None:
            bodies[op.name] = body
    return _expanded(graph, bodies)


def planned_graph(graph: Graph, planned: Collection[str], workers: int) -> Graph:
    """The graph that a plan is of.

    Args:
        graph: the model.
        workers: of the plan.
        planned: names of the ops that the plan has strategies for: an op that is not among them was planned through
            its body, and a body's copy that is not among them is left out.
    """
    expanded = expand(graph, frozenset(op.name for op in graph.ops if op.name not in planned), workers=workers)
    return without_copies(expanded, planned)


def without_copies(expanded: Expanded, planned: Collection[str]) -> Graph:
    """The graph without those copies of its bodies that are not planned."""
    bodies = {}
    for body in expanded.bodies:
        dropped = [copy for copy in body.copies if copy.name not in planned]
        sources = {copy.outputs[0]: copy.inputs[0] for copy in dropped}
        bodies[body.op.name] = replace(
            body,
            ops=tuple(op.renamed({}, sources) for op in body.ops if op not in dropped),
            copies=tuple(copy for copy in body.copies if copy not in dropped),
            tensors={name: tensor for name, tensor in body.tensors.items() if name not in sources},
        )
    original = {body.op.name: body.op for body in expanded.bodies}
    graph = _collapsed(expanded, original)
    return _expanded(graph, bodies).graph if bodies else expanded.graph


def fused(expanded: Expanded, names: Collection[str]) -> Expanded:
    """The composites of these names put back."""
    graph = _collapsed(expanded, {body.op.name: body.op for body in expanded.bodies})
    return _expanded(graph, {body.op.name: body for body in expanded.bodies if body.op.name not in names})


def _collapsed(expanded: Expanded, composites: Mapping[str, Op]) -> Graph:
    """The graph with all composites put back."""
    first = {body.ops[0].name: body for body in expanded.bodies}
    inside = {op.name for body in expanded.bodies for op in body.ops}
    ops = []
    for op in expanded.graph.ops:
        if op.name in first:
            ops.append(composites[first[op.name].op.name])
        elif op.name not in inside:
            ops.append(op)
    names = {name for body in expanded.bodies for name in body.tensors}
    graph = expanded.graph
    return replace(
        graph,
        ops=tuple(ops),
        tensors={name: tensor for name, tensor in graph.tensors.items() if name not in names},
        constants={name: value for name, value in graph.constants.items() if name not in names},
        folded=frozenset(graph.folded - names),
    )


def _expanded(graph: Graph, bodies: Mapping[str, Body]) -> Expanded:
    ops: list[Op] = []
    tensors, constants = dict(graph.tensors), dict(graph.constants)
    for op in graph.ops:
        body = bodies.get(op.name)
        ops.extend((op,) if body is None else body.ops)
        if body is not None:
            tensors.update(body.tensors)
            constants.update(body.constants)
    constant_names = {name for body in bodies.values() for name in body.constants}
    copies = {op.name: graph.copies[name] for name, body in bodies.items() if name in graph.copies for op in body.ops}
    lanes: dict[str, Lane] = {}
    for name, body in bodies.items():
        lane = graph.lanes.get(name)
        if lane is not None and lane.like in bodies:
            # Equal ops have bodies that are equal op by op: each is in the lane of its twin in the first lane's body.
            twins = bodies[lane.like].ops
            lanes.update((op.name, replace(lane, like=first.name)) for op, first in zip(body.ops, twins, strict=True))
    expansion = replace(
        graph,
        ops=tuple(ops),
        tensors=tensors,
        constants=constants,
        folded=graph.folded | constant_names,
        copies={**graph.copies, **copies},
        lanes={**graph.lanes, **lanes},
    )
    return Expanded(expansion, tuple(bodies.values()))


def _names(graph: Graph) -> tuple[str, ...]:
    return tuple(sorted({*graph.tensors, *(op.name for op in graph.ops)}))


def _body(graph: Graph, op: Op, names: Sequence[str], workers: int, is_plan: bool) -> Body | None:
    rule = decomposition(Purpose.PARTS, op) or (None if is_plan else decomposition(Purpose.WHOLE, op))
    if rule is None:
        return None
    emitter = Emitter(free_prefix(f"{op.name}/", names), graph.tensors, graph.constants, graph.opset, workers=workers)
    results = rule(emitter, op)
    if results is None or len(results) < len(op.outputs):
        return None
    outputs = [name for name, output in zip(results, op.outputs, strict=False) if output]
    if len(set(outputs)) < len(outputs) or not all(name in emitter.tensors for name in outputs):
        return None
    live = emitter.standing_for(op, results)
    copies = _copies(graph, op, emitter, live)
    sources = {copy.inputs[0]: copy.outputs[0] for copy in copies}
    ops = (*copies, *(inner.renamed({}, sources) for inner in live))
    named = {name for inner in ops for name in (*inner.inputs, *inner.outputs)}
    return Body(
        op,
        ops,
        copies,
        {name: tensor for name, tensor in emitter.tensors.items() if name in named},
        {name: value for name, value in emitter.constants.items() if name in named},
    )


def _copies(graph: Graph, composite: Op, emitter: Emitter, ops: Sequence[Op]) -> tuple[Op, ...]:
    readers: dict[str, set[str]] = {}
    for op in ops:
        for name in op.inputs:
            if name in graph.tensors and name not in graph.constants and name not in composite.outputs:
                readers.setdefault(name, set()).add(op.name)
    shared = [name for name, names in readers.items() if len(names) > 1]
    copies = []
    for number, name in enumerate(shared):
        copy = f"{emitter.prefix}input{number}"
        emitter.tensors[copy] = replace(graph.tensors[name], name=copy)
        copies.append(Op(copy, "Identity", (name,), (copy,)))
    return tuple(copies)
