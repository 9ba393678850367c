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
from typing import Any, Final, TypeAlias

from planner.graph.core.emitter import Emitter, free_prefix
from planner.graph.core.model import Graph, Op, Shape, of_types
from planner.graph.core.traits import ALONG_AXIS, ELEMENT_WISE, PRODUCTS, REDUCTIONS, RESHAPES
from planner.graph.core.wellformed import fresh_name
from planner.graph.rewriting.dims import NO_LABEL, Dims, dims_of
from planner.graph.rewriting.products import EINSUM_DTYPES, Labels, product_of, written

Place: TypeAlias = tuple[str, int]
"""A tensor and a dim of it."""


def unmerged(graph: Graph, ops: Sequence[Op], fixed: Collection[str]) -> tuple[Emitter, dict[str, str]] | None:
    """The ops of a graph, of which some work on dims that Reshapes merged for them; None where none can.

    Args:
        graph: with the tensors.
        ops: in execution order.
        fixed: tensors that keep their shapes.

    Returns:
        The ops, and by tensor that is made no more the one that holds its elements.
    """
    dims_by_op = {op.name: dims for op in ops if (dims := _dims(graph, op)) is not None}
    sizes = _sizes(graph, ops, dims_by_op, fixed)
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
        dims = dims_by_op.get(op.name)
        if dims is None or factored.isdisjoint((*op.inputs, *op.outputs)):
            # An op that needs the merged dims gets them by a Reshape, written at the first such op.
            for name in filter(missing.__contains__, dict.fromkeys(op.inputs)):
                emit.reshape(missing.pop(name), graph.tensors[name].shape)
                emit.ops[-1] = replace(emit.ops[-1], outputs=(name,))
            emit.ops.append(op)
            continue
        for name in dict.fromkeys((*op.inputs, *op.outputs)):
            if name not in factored or name in apart:
                continue
            extents = enumerate(graph.tensors[name].shape)
            shape = tuple(part for dim, size in extents for part in sizes.get((name, dim), (size,)))
            if name in op.inputs:
                apart[name] = emit.reshape(name, shape, name)
            else:
                apart[name] = missing[name] = fresh_name(emit.prefix + name, emit.tensors)
                emit.tensors[apart[name]] = replace(graph.tensors[name], name=apart[name], shape=shape)
        _write(emit, op, op.renamed(apart), dims, sizes)
    return emit, missing


def _dims(graph: Graph, op: Op) -> Dims | None:
    """The dims that run together; None of an op that may do anything, or cannot be written with other dims."""
    dims = dims_of(graph, op) if op.op_type in _WRITERS else None
    product = product_of(op, graph.tensors)
    # A product becomes an Einsum, which has no factors and not every dtype.
    is_einsum = product is None or (product.scales == (1.0, 1.0) and product.dtype in EINSUM_DTYPES)
    return dims if is_einsum else None


def _sizes(
    graph: Graph, ops: Sequence[Op], dims_by_op: Mapping[str, Dims], fixed: Collection[str]
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
        if of_types(op, RESHAPES):
            spans = dict(_spans(graph, op))
            join((span, place) for place, span in spans.items())
            ends = {point for span in spans.values() for point in span}
            for place, (low, high) in spans.items():
                if inner := {point // low for point in ends if low < point < high and not point % low}:
                    points[place] |= inner
                    reshapes[place].add(op.name)
        elif (dims := dims_by_op.get(op.name)) is not None:
            labelled = ((label, (name, dim)) for name, labels in dims.labels for dim, label in enumerate(labels))
            first = join((label, place) for label, place in labelled if label != NO_LABEL)
            stiff.update(first[label] for label in dims.rigid if label in first)
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


def _write(emit: Emitter, op: Op, renamed: Op, dims: Dims, sizes: Mapping[Place, Shape]) -> None:
    """The op on the dims told apart."""
    counts = {
        label: len(sizes[name, dim])
        for name, labels in dims.labels
        for dim, label in enumerate(labels)
        if (name, dim) in sizes
    }
    # Part p of index i is number stride · i + p, so that parts of different indices differ.
    stride = max(counts.values())

    def apart(labels: Sequence[int]) -> Labels:
        return tuple(stride * label + part for label in labels for part in range(counts.get(label, 1)))

    _WRITERS[op.op_type](emit, op, renamed, dims, apart)


_Apart: TypeAlias = Callable[[Sequence[int]], Labels]
"""The labels of dims told apart."""


def _write_turned(emit: Emitter, op: Op, renamed: Op, dims: Dims, apart: _Apart) -> None:
    (_, before), (_, after) = dims.labels
    emit.ops.append(replace(renamed, attributes=(("perm", tuple(map(apart(before).index, apart(after)))),)))


def _write_along(emit: Emitter, op: Op, renamed: Op, dims: Dims, apart: _Apart) -> None:
    axis = apart(dims.labels[-1][1]).index(*apart(tuple(dims.along)))
    emit.ops.append(renamed.with_attributes(axis=axis))


def _write_reduced(emit: Emitter, op: Op, renamed: Op, dims: Dims, apart: _Apart) -> None:
    axes = tuple(map(apart(dims.labels[0][1]).index, apart(tuple(dims.along))))
    if op.has_input(1):
        emit.ops.append(replace(renamed, inputs=(renamed.inputs[0], emit.ints(axes, f"{op.name}.axes"))))
    else:
        emit.ops.append(renamed.with_attributes(axes=axes))


def _write_product(emit: Emitter, op: Op, renamed: Op, dims: Dims, apart: _Apart) -> None:
    product = product_of(op, {name: emit.tensor(name) for name in (*op.inputs, *op.outputs) if name})
    assert product is not None, "an op without labels is not written"
    operands, (output,) = renamed.inputs[: len(product.operands)], renamed.outputs
    if product.added:
        output = fresh_name(f"{emit.prefix}{op.name}.product", emit.tensors)
        emit.tensors[output] = replace(emit.tensor(renamed.outputs[0]), name=output)
    form = written(
        replace(
            product,
            op=replace(renamed, op_type="Einsum", inputs=operands, outputs=(output,), attributes=()),
            operands=operands,
            labels=tuple(map(apart, product.labels)),
            result=apart(product.result),
            added=(),
        )
    )
    assert form is not None, "a dtype that Einsum has"
    emit.ops.append(form)
    if product.added:
        emit.ops.append(Op(f"{emit.prefix}{op.name}", "Add", (output, *renamed.inputs[2:]), renamed.outputs))


_WRITERS: Final[Mapping[str, Callable[[Emitter, Op, Op, Dims, _Apart], None]]] = {
    **dict.fromkeys(ELEMENT_WISE, lambda emit, _, renamed, *__: emit.ops.append(renamed)),
    **dict.fromkeys(PRODUCTS, _write_product),
    **dict.fromkeys(ALONG_AXIS, _write_along),
    **dict.fromkeys(REDUCTIONS, _write_reduced),
    "Transpose": _write_turned,
}
