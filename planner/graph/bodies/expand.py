"""Composite ops of a graph replaced by their bodies, and back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from planner.algebra.lane import Lane
from planner.graph.bodies import (
    attention,
    borders,
    cumulative,
    extremes,
    losses,
    microsoft,
    microsoft_attention,
    normalization,
    quantised,
    ranking,
    reduction,
    softmax,
    strided,
)
from planner.graph.emitter import Emitter, free_prefix
from planner.graph.model import Graph, Op, Tensor
from planner.graph.reading.undescribed import qualified

BodyFunction: TypeAlias = Callable[[Emitter, Op], "tuple[str, ...] | None"]
"""Emits a body and names what becomes of each output, in order; None: this op has no body."""
BlocksFunction: TypeAlias = Callable[[Emitter, Op, int], "tuple[str, ...] | None"]
"""Likewise, of a number of workers, at least 2."""

BODIES: Final[Mapping[str, BodyFunction]] = MappingProxyType(
    {
        "ArgMax": extremes.arg_max,
        "ArgMin": extremes.arg_min,
        "Attention": attention.attention,
        "BatchNormalization": normalization.batch_normalization,
        "Conv": strided.conv,
        "DynamicQuantizeLinear": quantised.dynamic_quantize_linear,
        "GroupNormalization": normalization.group_normalization,
        "Hardmax": extremes.hardmax,
        "InstanceNormalization": normalization.instance_normalization,
        "LayerNormalization": normalization.layer_normalization,
        "LogSoftmax": softmax.log_softmax,
        "LpNormalization": normalization.lp_normalization,
        "MeanVarianceNormalization": normalization.mean_variance_normalization,
        "NegativeLogLikelihoodLoss": losses.negative_log_likelihood_loss,
        "Pad": borders.pad,
        "RMSNormalization": normalization.rms_normalization,
        "ReduceL2": reduction.reduce_l2,
        "ReduceLogSum": reduction.reduce_log_sum,
        "ReduceLogSumExp": reduction.reduce_log_sum_exp,
        "SimplifiedLayerNormalization": microsoft.simplified_layer_normalization,
        "Softmax": softmax.softmax,
        "SoftmaxCrossEntropyLoss": losses.softmax_cross_entropy_loss,
        "com.microsoft.GroupQueryAttention": microsoft_attention.group_query_attention,
        "com.microsoft.MultiHeadAttention": microsoft_attention.multi_head_attention,
        "com.microsoft.SkipLayerNormalization": microsoft.skip_layer_normalization,
        "com.microsoft.SkipSimplifiedLayerNormalization": microsoft.skip_simplified_layer_normalization,
    }
)
"""By op type, with its domain if that is not ONNX's own."""

NO_BETTER_THAN_PARTS: Final = frozenset(
    {"com.microsoft.SkipLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization"}
)
"""Kernels that do several things one after another, of which each is cut by itself."""

BODIES_IN_BLOCKS: Final[Mapping[str, BlocksFunction]] = MappingProxyType(
    {
        "CumProd": cumulative.cum_prod,
        "CumSum": cumulative.cum_sum,
        "TopK": ranking.top_k,
    }
)
"""Likewise, of ops along a dim that become ops of as many blocks as there are workers."""


@dataclass(frozen=True, slots=True)
class Body:
    """What stands in the place of a composite op."""

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
    """What the body of an operator computes, in words; "" if it has none."""
    function = BODIES.get(qualified(domain, op_type)) or BODIES_IN_BLOCKS.get(qualified(domain, op_type))
    return "" if function is None else " ".join((function.__doc__ or "").partition("\n\n")[0].split())


def has_body(graph: Graph, op: Op) -> bool:
    """True if the op can be replaced by a body, however many workers there are."""
    return _body(graph, op, _names(graph), 1) is not None


def expand(graph: Graph, names: Collection[str] | None = None, *, workers: int = 1) -> Expanded:
    """Replaces composite ops by their bodies.

    Names in a body begin with the composite's and depend on nothing but the graph: expanding fewer ops gives the same
    names.

    Args:
        graph: is left as it is.
        names: of the ops to be replaced; None: all that have a body.
        workers: how many the plan is for. Of 1, and so where it is not known, no op becomes one of blocks.
    """
    taken = _names(graph)
    found: dict[str, Body] = {}
    for op in graph.ops:
        body = _body(graph, op, taken, workers) if names is None or op.name in names else None
        if body is not None:
            found[op.name] = body
    return _expanded(graph, found)


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
    found = {}
    for body in expanded.bodies:
        dropped = [copy for copy in body.copies if copy.name not in planned]
        sources = {copy.outputs[0]: copy.inputs[0] for copy in dropped}
        found[body.op.name] = replace(
            body,
            ops=tuple(_renamed(op, sources, {}) for op in body.ops if op not in dropped),
            copies=tuple(copy for copy in body.copies if copy not in dropped),
            tensors={name: tensor for name, tensor in body.tensors.items() if name not in sources},
        )
    original = {body.op.name: body.op for body in expanded.bodies}
    whole = _collapsed(expanded, original)
    return _expanded(whole, found).graph if found else expanded.graph


def fused(expanded: Expanded, names: Collection[str]) -> Expanded:
    """The composites of these names put back."""
    whole = _collapsed(expanded, {body.op.name: body.op for body in expanded.bodies})
    return _expanded(whole, {body.op.name: body for body in expanded.bodies if body.op.name not in names})


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
    new = {name for body in expanded.bodies for name in body.tensors}
    graph = expanded.graph
    return replace(
        graph,
        ops=tuple(ops),
        tensors={name: tensor for name, tensor in graph.tensors.items() if name not in new},
        constants={name: value for name, value in graph.constants.items() if name not in new},
        folded=frozenset(graph.folded - new),
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
    new = {name for body in bodies.values() for name in body.constants}
    copies = {op.name: graph.copies[name] for name, body in bodies.items() if name in graph.copies for op in body.ops}
    lanes: dict[str, Lane] = {}
    for name, body in bodies.items():
        lane = graph.lanes.get(name)
        if lane is not None and lane.like in bodies:
            like = bodies[lane.like].ops
            lanes.update((op.name, replace(lane, like=first.name)) for op, first in zip(body.ops, like, strict=True))
    made = replace(
        graph,
        ops=tuple(ops),
        tensors=tensors,
        constants=constants,
        folded=graph.folded | new,
        copies={**graph.copies, **copies},
        lanes={**graph.lanes, **lanes},
    )
    return Expanded(made, tuple(bodies.values()))


def _names(graph: Graph) -> tuple[str, ...]:
    return tuple(sorted({*graph.tensors, *(op.name for op in graph.ops)}))


def _body(graph: Graph, op: Op, taken: Sequence[str], workers: int) -> Body | None:
    kind = qualified(op.domain, op.op_type)
    if kind not in BODIES and (kind not in BODIES_IN_BLOCKS or workers < 2):
        return None
    emitter = Emitter(free_prefix(f"{op.name}/", taken), graph.tensors, graph.constants, graph.opset)
    made = BODIES[kind](emitter, op) if kind in BODIES else BODIES_IN_BLOCKS[kind](emitter, op, workers)
    if made is None or len(made) < len(op.outputs):
        return None
    outputs = {name: output for name, output in zip(made, op.outputs, strict=False) if output}
    if len(outputs) < sum(map(bool, op.outputs)) or not all(name in emitter.tensors for name in outputs):
        return None
    wanted = set(outputs)
    live: list[Op] = []
    for inner in reversed(emitter.ops):
        if not wanted.isdisjoint(inner.outputs):
            wanted.update(inner.inputs, inner.outputs)
            live.append(inner)
    live.reverse()
    copies = _copies(graph, emitter, live)
    sources = {copy.inputs[0]: copy.outputs[0] for copy in copies}
    return Body(
        op,
        (*copies, *(_renamed(inner, sources, outputs) for inner in live)),
        copies,
        {
            name: tensor
            for name, tensor in emitter.tensors.items()
            if (name in wanted or name in sources.values()) and name not in outputs
        },
        {name: value for name, value in emitter.constants.items() if name in wanted},
    )


def _copies(graph: Graph, emitter: Emitter, ops: Sequence[Op]) -> tuple[Op, ...]:
    readers: dict[str, set[str]] = {}
    for op in ops:
        for name in op.inputs:
            if name in graph.tensors and name not in graph.constants:
                readers.setdefault(name, set()).add(op.name)
    several = [name for name, names in readers.items() if len(names) > 1]
    found = []
    for number, name in enumerate(several):
        copy = f"{emitter.prefix}input{number}"
        emitter.tensors[copy] = replace(graph.tensors[name], name=copy)
        found.append(Op(copy, "Identity", (name,), (copy,)))
    return tuple(found)


def _renamed(op: Op, inputs: Mapping[str, str], tensors: Mapping[str, str]) -> Op:
    """The op with other names: ``tensors`` wherever they stand, ``inputs`` where they are read."""
    both = {**inputs, **tensors}
    return replace(
        op,
        inputs=tuple(both.get(name, name) for name in op.inputs),
        outputs=tuple(tensors.get(name, name) for name in op.outputs),
    )
