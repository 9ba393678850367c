"""Dims that Reshapes merge for the ops between them: such ops work on the dims themselves.

Files make [batch, sequence, width] a matrix of batch * sequence rows before a product, and three dims of it again
behind; a gradient sums over such rows. Of merged dims only the outermost can be cut in place. Ops that do the same to
each index of a merged dim, or sum over all of them, can do so to the dims that it was merged of.

Dims of tensors that such ops keep equal are a *class*; Reshapes at its borders say of what sizes it is merged. A class
is told apart if that spares more Reshapes than other ops, which read or make its tensors as they are, need.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from planner.graph.core.attributes import axis_of, integer, integers
from planner.graph.core.emitter import Emitter, free_prefix
from planner.graph.core.model import Graph, Op, Shape
from planner.graph.core.traits import ALONG_AXIS, ELEMENT_WISE, PRODUCTS, REDUCTIONS, RESHAPES
from planner.graph.core.wellformed import fresh_name
from planner.graph.rewriting.products import EINSUM_DTYPES, Labels, product_of, written

Place: TypeAlias = tuple[str, int]
"""A tensor and a dim of it."""
_NO_INDEX = -1


class _Indices(NamedTuple):
    """Dims that run together in the inputs and outputs of an op."""

    labels: tuple[tuple[str, Labels], ...]
    """By tensor a number for each dim, or none; outputs are last."""
    rigid: Collection[int] = ()
    """Numbers of dims that must stay one."""


def unmerged(graph: Graph, ops: Sequence[Op], fixed: Collection[str]) -> tuple[Emitter, dict[str, str]] | None:
    """The ops of a graph, of which some work on dims that Reshapes merged for them; None where none can.

    Args:
        graph: with the tensors.
        ops: in execution order.
        fixed: tensors that keep their shapes.

    Returns:
        The ops, and by tensor that is made no more the one that holds its elements.
    """
    indices = {op.name: op_indices for op in ops if (op_indices := _indices(op, graph)) is not None}
    sizes = _sizes(graph, ops, indices, fixed)
    if not sizes:
        return None
    prefix = free_prefix("apart/", sorted((*graph.tensors, *(op.name for op in ops))))
    emit = Emitter(prefix, graph.tensors, graph.constants, graph.opset)
    factored = {name for name, _ in sizes}
    apart: dict[str, str] = {}
    """By tensor that one with the dims told apart."""
    missing: dict[str, str] = {}
    """The same of those that were not made as they were, so far."""
    for op in ops:
        op_indices = indices.get(op.name)
        if op_indices is None or factored.isdisjoint((*op.inputs, *op.outputs)):
            # An op that needs the merged dims gets them by a Reshape, written at the first such op.
            for name in filter(missing.__contains__, dict.fromkeys(op.inputs)):
                emit.reshape(missing.pop(name), graph.tensors[name].shape)
                emit.ops[-1] = replace(emit.ops[-1], outputs=(name,))
            emit.ops.append(op)
            continue
        for name in dict.fromkeys((*op.inputs, *op.outputs)):
            if name not in factored or name in apart:
                continue
            dims = enumerate(graph.tensors[name].shape)
            shape = tuple(part for dim, size in dims for part in sizes.get((name, dim), (size,)))
            if name in op.inputs:
                apart[name] = emit.reshape(name, shape, name)
            else:
                apart[name] = missing[name] = fresh_name(emit.prefix + name, emit.tensors)
                emit.tensors[apart[name]] = replace(graph.tensors[name], name=apart[name], shape=shape)
        _write(emit, op, op.renamed(apart), op_indices, sizes)
    return emit, missing


def _indices(op: Op, graph: Graph) -> _Indices | None:
    """How dims run together; None of an op that may do anything."""
    if op.domain or not all(op.outputs):
        return None
    shapes = {name: graph.tensors[name].shape for name in (*op.inputs, *op.outputs) if name}
    out_labels = tuple(range(len(shapes[op.outputs[0]])))
    in_labels = tuple(range(len(shapes[op.inputs[0]]))) if op.inputs and op.inputs[0] else ()
    outputs, rigid = tuple((name, out_labels) for name in op.outputs), set[int]()
    if op.op_type in ELEMENT_WISE:
        labels = _broadcast(op.inputs, shapes, op.outputs[0], out_labels, rigid)
        return None if labels is None else _Indices((*labels, *outputs), rigid)
    if op.op_type in PRODUCTS:
        # A product becomes an Einsum, which has no factors and not every dtype.
        product = product_of(op, graph.tensors)
        if (
            product is None
            or product.dtype not in EINSUM_DTYPES
            or any(op.attribute(name, 1.0) != 1.0 for name in ("alpha", "beta"))
        ):
            return None
        bias = _broadcast(op.inputs[len(product.operands) :], shapes, op.outputs[0], product.result, rigid)
        factors = zip(product.operands, product.labels, strict=True)
        return None if bias is None else _Indices((*factors, *bias, (op.outputs[0], product.result)), rigid)
    if op.op_type == "Transpose":
        return _Indices(((op.inputs[0], in_labels), (op.outputs[0], integers(op, "perm", in_labels[::-1]))))
    if op.op_type in ALONG_AXIS:
        operands = op.inputs if op.op_type == "Concat" else op.inputs[:1]
        axis = axis_of(op, len(out_labels), 0 if op.op_type == "Split" else -1)
        return _Indices((*((name, out_labels) for name in operands), *outputs), (axis,))
    if op.op_type in REDUCTIONS:
        axes = graph.constants.get(op.inputs[1]) if op.has_input(1) else np.array(integers(op, "axes", ()))
        if axes is None or not axes.size:
            return None
        reduced, keeps = {int(axis) % len(in_labels) for axis in axes.ravel()}, integer(op, "keepdims", 1)
        result = tuple(_NO_INDEX if dim in reduced else dim for dim in in_labels if keeps or dim not in reduced)
        return _Indices(((op.inputs[0], in_labels), (op.outputs[0], result)), reduced if keeps else ())
    return None


def _broadcast(
    names: Sequence[str], shapes: Mapping[str, Shape], output: str, labels: Labels, rigid: set[int]
) -> list[tuple[str, Labels]] | None:
    """The indices of operands that are repeated to what is made; None where one is not."""
    uses = []
    for name in filter(None, names):
        dims, skip = shapes[name], len(labels) - len(shapes[name])
        if skip < 0 or any(size not in (1, full) for size, full in zip(dims, shapes[output][skip:], strict=True)):
            return None
        uses.append((name, tuple(_NO_INDEX if n == 1 else label for n, label in zip(dims, labels[skip:], strict=True))))
        # With more dims there, what is before a dim that is repeated would not fit.
        rigid.update(labels[skip + dim] for dim, size in enumerate(dims) if size == 1 and prod(dims[:dim]) > 1)
    return uses


def _sizes(
    graph: Graph, ops: Sequence[Op], indices: Mapping[str, _Indices], fixed: Collection[str]
) -> dict[Place, Shape]:
    """By dim that is to be told apart, the sizes of the dims that it is merged of."""
    parent: dict[Place, Place] = {}
    points: dict[Place, set[int]] = defaultdict(set)
    """Of a dim that a Reshape merges or takes apart: how many elements are below each dim that it is merged of."""
    reshapes: dict[Place, set[str]] = defaultdict(set)
    foreign: set[str] = set()
    stiff: set[Place] = set()

    def root(place: Place) -> Place:
        while (above := parent.setdefault(place, place)) != place:
            parent[place] = place = parent[above]
        return place

    def join(places: Iterator[tuple[Any, Place]]) -> dict[Any, Place]:
        first: dict[Any, Place] = {}
        for key, place in places:
            parent[root(place)] = root(first.setdefault(key, place))
        return first

    for op in ops:
        if op.op_type in RESHAPES and not op.domain:
            spans = dict(_spans(graph, op))
            join((span, place) for place, span in spans.items())
            ends = {point for span in spans.values() for point in span}
            for place, (low, high) in spans.items():
                if inner := {point // low for point in ends if low < point < high and not point % low}:
                    points[place] |= inner
                    reshapes[place].add(op.name)
        elif (op_indices := indices.get(op.name)) is not None:
            labelled = ((label, (name, dim)) for name, labels in op_indices.labels for dim, label in enumerate(labels))
            first = join((label, place) for label, place in labelled if label != _NO_INDEX)
            stiff.update(first[label] for label in op_indices.rigid if label in first)
        else:
            foreign.update(op.inputs, op.outputs)
    # Dims that share an index in some op (union-find) are told apart all alike or not at all.
    classes: dict[Place, list[Place]] = defaultdict(list)
    for place in parent:
        classes[root(place)].append(place)
    factors: dict[Place, Shape] = {}
    for places in classes.values():
        names, (name, dim) = {name for name, _ in places}, places[0]
        inner = {point for place in places if place in points for point in points[place]}
        spared = {reshape for place in places if place in reshapes for reshape in reshapes[place]}
        if len(spared) <= len(names & foreign) or not stiff.isdisjoint(places) or not names.isdisjoint(fixed):
            continue
        steps = list(pairwise(sorted((1, *inner, graph.tensors[name].shape[dim]), reverse=True)))
        if not any(above % below for above, below in steps):
            factors |= dict.fromkeys(places, tuple(above // below for above, below in steps))
    return factors


def _spans(graph: Graph, op: Op) -> Iterator[tuple[Place, tuple[int, int]]]:
    """How many elements are below a step of each dim of a Reshape's, and below all of its steps."""
    for name in (op.inputs[0], op.outputs[0]):
        shape = graph.tensors[name].shape
        if prod(shape):
            yield from (
                ((name, dim), (prod(shape[dim + 1 :]), prod(shape[dim:]))) for dim, n in enumerate(shape) if n > 1
            )


def _write(emit: Emitter, op: Op, renamed: Op, indices: _Indices, sizes: Mapping[Place, Shape]) -> None:
    """The op on the dims told apart."""
    counts = {
        label: len(sizes[name, dim])
        for name, labels in indices.labels
        for dim, label in enumerate(labels)
        if (name, dim) in sizes
    }
    # Part p of index i is number stride · i + p, so that parts of different indices differ.
    stride = max(counts.values())

    def apart(labels: Sequence[int]) -> Labels:
        return tuple(stride * label + part for label in labels for part in range(counts.get(label, 1)))

    attributes, (_, in_labels), (_, out_labels) = dict(op.attributes), indices.labels[0], indices.labels[-1]
    if op.op_type in PRODUCTS:
        _write_product(emit, op, renamed, apart)
        return
    if op.op_type == "Transpose":
        attributes["perm"] = tuple(map(apart(in_labels).index, apart(out_labels)))
    elif op.op_type in ALONG_AXIS:
        attributes["axis"] = apart(out_labels).index(*apart(tuple(indices.rigid)))
    elif op.op_type in REDUCTIONS:
        axes = tuple(map(apart(in_labels).index, apart([label for label in in_labels if label not in out_labels])))
        if op.has_input(1):
            renamed = replace(renamed, inputs=(renamed.inputs[0], emit.ints(axes, f"{op.name}.axes")))
        else:
            attributes["axes"] = axes
    emit.ops.append(replace(renamed, attributes=tuple(sorted(attributes.items()))))


def _write_product(emit: Emitter, op: Op, renamed: Op, apart: Callable[[Sequence[int]], Labels]) -> None:
    product = product_of(op, {name: emit.tensor(name) for name in (*op.inputs, *op.outputs) if name})
    assert product is not None, "an op without labels is not written"
    operands, bias = renamed.inputs[: len(product.operands)], renamed.inputs[len(product.operands) :]
    output, *_ = renamed.outputs
    if any(bias):
        output = fresh_name(f"{emit.prefix}{op.name}.product", emit.tensors)
        emit.tensors[output] = replace(emit.tensor(renamed.outputs[0]), name=output)
    form = written(
        replace(
            product,
            op=replace(renamed, op_type="Einsum", inputs=operands, outputs=(output,), attributes=()),
            operands=operands,
            labels=tuple(map(apart, product.labels)),
            result=apart(product.result),
        )
    )
    assert form is not None, "a dtype that Einsum has"
    emit.ops.append(form)
    if any(bias):
        emit.ops.append(Op(f"{emit.prefix}{op.name}", "Add", (output, *bias), renamed.outputs))
