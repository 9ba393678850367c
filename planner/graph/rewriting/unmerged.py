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
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import Final, TypeAlias

import numpy as np

from planner.graph.attributes import axis_of, integer, integers
from planner.graph.model import DType, Op, Shape, Tensor
from planner.graph.rewriting.products import Labels, product_of, written
from planner.graph.traits import ALONG_AXIS, ELEMENT_WISE, PRODUCTS, REDUCTIONS, RESHAPES
from planner.graph.wellformed import fresh_name

Place: TypeAlias = tuple[str, int]
"""A tensor and a dim of it."""

_NO_INDEX: Final = -1


@dataclass
class Unmerged:
    """A graph's ops with dims told apart."""

    ops: list[Op] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """Those that there were not."""
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    """Those of them that are known."""
    held_by: dict[str, str] = field(default_factory=dict)
    """By tensor that no op makes any more, the tensor that holds its elements."""


def unmerged(
    ops: Sequence[Op], tensors: Mapping[str, Tensor], constants: Mapping[str, np.ndarray | None], fixed: Collection[str]
) -> Unmerged | None:
    """The ops of a graph, of which some work on dims that Reshapes merged for them; None where none can.

    Args:
        ops: in execution order.
        tensors: what they read and make, and others, whose names are taken.
        constants: tensors whose values are known.
        fixed: tensors that keep their shapes.
    """
    classes = _Classes(ops, tensors, constants, fixed)
    refused: set[str] = set()
    while sizes := classes.sizes(refused):
        rewriting = _Rewriting(classes, sizes)
        if not rewriting.refused:
            return rewriting.found
        refused |= rewriting.refused
    return None


@dataclass(frozen=True, slots=True)
class _Indices:
    """Which dims of what an op reads and makes run together: a number for each, or none."""

    reads: tuple[Labels, ...]
    """By operand; () where nothing is said of it."""
    makes: tuple[Labels, ...]
    rigid: frozenset[int] = frozenset()
    """Indices of dims that must stay one."""

    def labelled(self, op: Op) -> Iterator[tuple[str, Labels]]:
        yield from zip(op.inputs, self.reads, strict=False)
        yield from zip(op.outputs, self.makes, strict=True)


def _indices(op: Op, tensors: Mapping[str, Tensor], constants: Mapping[str, np.ndarray | None]) -> _Indices | None:
    """How dims run together; None of an op that may do anything."""
    if op.domain or not all(op.outputs):
        return None
    shape = tensors[op.outputs[0]].shape
    every = tuple(range(len(shape)))
    if op.op_type in PRODUCTS:
        return _indices_of_product(op, tensors)
    if op.op_type in ELEMENT_WISE:
        reads = _broadcast([tensors[name].shape if name else () for name in op.inputs], shape, every)
        rigid = frozenset(dim for name in op.inputs if name for dim in _misaligned(tensors[name].shape, shape))
        return None if reads is None else _Indices(reads, (every,), rigid)
    if op.op_type == "Transpose":
        perm = integers(op, "perm", every[::-1])
        return _Indices((every,), (perm,))
    if op.op_type in ALONG_AXIS:
        operands = op.inputs if op.op_type == "Concat" else op.inputs[:1]
        axis = axis_of(op, len(shape), 0 if op.op_type == "Split" else -1)
        return _Indices((every,) * len(operands), (every,) * len(op.outputs), frozenset((axis,)))
    if op.op_type in REDUCTIONS and (axes := _axes(op, tensors, constants)):
        every = tuple(range(len(tensors[op.inputs[0]].shape)))
        keeps = bool(integer(op, "keepdims", 1))
        kept = tuple(_NO_INDEX if dim in axes else dim for dim in every if keeps or dim not in axes)
        return _Indices((every,), (kept,), frozenset(axes if keeps else ()))
    return None


def _indices_of_product(op: Op, tensors: Mapping[str, Tensor]) -> _Indices | None:
    product = product_of(op, tensors)
    if product is None or any(op.attribute(name, 1.0) != 1.0 for name in ("alpha", "beta")):
        return None
    bias = op.inputs[2:] if op.op_type == "Gemm" else ()
    added = _broadcast([tensors[name].shape for name in bias if name], tensors[op.outputs[0]].shape, product.result)
    return None if added is None else _Indices((*product.labels, *added), (product.result,))


def _broadcast(operands: Sequence[Shape], shape: Shape, labels: Labels) -> tuple[Labels, ...] | None:
    """The indices of operands that are repeated to a shape; None where one is not."""
    found = []
    for own in operands:
        rest = len(shape) - len(own)
        if rest < 0 or any(size not in (1, whole) for size, whole in zip(own, shape[rest:], strict=True)):
            return None
        found.append(tuple(_NO_INDEX if size == 1 else label for size, label in zip(own, labels[rest:], strict=True)))
    return tuple(found)


def _misaligned(own: Shape, shape: Shape) -> Iterator[int]:
    """Dims along which an operand is repeated, and has others before: with more dims there, those would not fit."""
    rest = len(shape) - len(own)
    return (rest + dim for dim, size in enumerate(own) if size == 1 and rest >= 0 and prod(own[:dim]) > 1)


def _axes(op: Op, tensors: Mapping[str, Tensor], constants: Mapping[str, np.ndarray | None]) -> tuple[int, ...] | None:
    """The dims that a reduction reduces, where it names them."""
    value = constants.get(op.inputs[1]) if op.has_input(1) else op.attribute("axes")
    rank = len(tensors[op.inputs[0]].shape)
    return None if value is None else tuple(int(axis) % rank for axis in np.asarray(value).ravel())


class _Classes:
    """Dims that run together through the ops of a graph."""

    def __init__(
        self,
        ops: Sequence[Op],
        tensors: Mapping[str, Tensor],
        constants: Mapping[str, np.ndarray | None],
        fixed: Collection[str],
    ) -> None:
        self.ops, self.tensors = ops, tensors
        self.indices: dict[str, _Indices] = {}
        """Of the ops that can work on other dims, by name."""
        self._parent: dict[Place, Place] = {}
        self._rigid: set[Place] = set()
        self._fixed = fixed
        self._foreign: set[str] = set()
        """Tensors that other ops read or make."""
        self._points: dict[Place, set[int]] = defaultdict(set)
        """Of a dim that a Reshape merges or takes apart: how many elements are below each dim that it is merged of."""
        self._reshapes: dict[Place, set[str]] = defaultdict(set)
        for op in ops:
            if is_reshape(op):
                self._add_reshape(op)
            elif (found := _indices(op, tensors, constants)) is not None:
                self.indices[op.name] = found
                self._add(op, found)
            else:
                self._foreign.update(op.inputs, op.outputs)

    def _root(self, place: Place) -> Place:
        while (above := self._parent.setdefault(place, place)) != place:
            self._parent[place] = place = self._parent[above]
        return place

    def _join(self, one: Place, two: Place) -> None:
        self._parent[self._root(one)] = self._root(two)

    def _add(self, op: Op, indices: _Indices) -> None:
        first: dict[int, Place] = {}
        for name, labels in indices.labelled(op):
            for dim, label in enumerate(labels):
                if label != _NO_INDEX:
                    self._join((name, dim), first.setdefault(label, (name, dim)))
        self._rigid.update(place for label, place in first.items() if label in indices.rigid)

    def _add_reshape(self, op: Op) -> None:
        sides = [(name, self.tensors[name].shape) for name in (op.inputs[0], op.outputs[0])]
        if not prod(sides[0][1]):
            return
        spans = {
            (name, dim): (prod(shape[dim + 1 :]), prod(shape[dim:]))
            for name, shape in sides
            for dim, size in enumerate(shape)
            if size > 1
        }
        ends = {point for span in spans.values() for point in span}
        same: dict[tuple[int, int], Place] = {}
        for place, span in spans.items():
            self._join(place, same.setdefault(span, place))
            low, high = span
            inner = {point // low for point in ends if low < point < high and not point % low}
            if inner:
                self._points[place] |= inner
                self._reshapes[place].add(op.name)

    def sizes(self, refused: Collection[str]) -> dict[Place, Shape]:
        """By dim that is to be told apart, the sizes of the dims that it is merged of.

        Args:
            refused: tensors that keep their shapes, beside those that were stated.
        """
        classes: dict[Place, list[Place]] = defaultdict(list)
        for place in self._parent:
            classes[self._root(place)].append(place)
        found: dict[Place, Shape] = {}
        for places in classes.values():
            points = set[int]().union(*(self._points[place] for place in places if place in self._points))
            names = dict.fromkeys(name for name, _ in places)
            if not points or not self._rigid.isdisjoint(places):
                continue
            if any(name in self._fixed or name in refused for name in names):
                continue
            name, dim = places[0]
            ends = sorted((1, *points, self.tensors[name].shape[dim]), reverse=True)
            spared = set[str]().union(*(self._reshapes[place] for place in places if place in self._reshapes))
            if any(above % below for above, below in pairwise(ends)) or len(spared) <= len(
                names.keys() & self._foreign
            ):
                continue
            found |= dict.fromkeys(places, tuple(above // below for above, below in pairwise(ends)))
        return found


class _Rewriting:
    """Writes the ops of a graph with dims told apart.

    Args:
        classes: of the graph.
        sizes: by dim the sizes of the dims that stand for it.
    """

    def __init__(self, classes: _Classes, sizes: Mapping[Place, Shape]) -> None:
        self.found = Unmerged()
        self.refused: set[str] = set()
        """Tensors of products that have no form."""
        self._classes, self._sizes = classes, sizes
        self._taken = {*classes.tensors, *(op.name for op in classes.ops)}
        maker = {name: op for op in classes.ops for name in op.outputs}
        self._readers: dict[str, list[Op]] = defaultdict(list)
        for op in classes.ops:
            for name in op.inputs:
                self._readers[name].append(op)
        self._spared: set[str] = set()
        self._apart = {name: self._named(name, maker[name]) for name in dict.fromkeys(name for name, _ in sizes)}
        """By tensor the one that has its elements, and the dims told apart."""
        for op in classes.ops:
            if op.name not in self._spared:
                self._rewrite(op)

    def _shape(self, name: str) -> Shape:
        shape = self._classes.tensors[name].shape
        return tuple(size for dim, own in enumerate(shape) for size in self._sizes.get((name, dim), (own,)))

    def _named(self, name: str, made: Op) -> str:
        """What a Reshape made it of, or makes of it; else a new tensor."""
        shape, tensors = self._shape(name), self._classes.tensors
        new = {name for name, _ in self._sizes}
        if is_reshape(made):
            if tensors[made.inputs[0]].shape == shape and made.inputs[0] not in new:
                return made.inputs[0]
        elif made.name in self._classes.indices:
            for reader in filter(is_reshape, self._readers[name]):
                if tensors[reader.outputs[0]].shape == shape and reader.outputs[0] not in new:
                    self._spared.add(reader.name)
                    return reader.outputs[0]
        return self._tensor(f"{name}.apart", shape, tensors[name].dtype)

    def _tensor(self, wanted: str, shape: Shape, dtype: DType) -> str:
        name = fresh_name(wanted, self._taken)
        self._taken.add(name)
        self.found.tensors[name] = Tensor(name, shape, dtype)
        return name

    def _constant(self, values: Sequence[int], wanted: str) -> str:
        name = self._tensor(wanted, (len(values),), DType.INT64)
        self.found.constants[name] = np.array(values, np.int64)
        return name

    def _add(self, op: Op) -> None:
        self.found.ops.append(op)

    def _is_rewritten(self, op: Op) -> bool:
        return op.name in self._classes.indices and any(name in self._apart for name in (*op.inputs, *op.outputs))

    def _rewrite(self, op: Op) -> None:
        is_rewritten = self._is_rewritten(op)
        if is_rewritten:
            self._write(op, self._classes.indices[op.name])
        else:
            self._add(op)
        for name in op.outputs:
            apart = self._apart.get(name)
            others = {self._is_rewritten(reader) for reader in self._readers[name] if reader.name not in self._spared}
            if apart is None:
                continue
            if is_rewritten and False not in others:
                self.found.held_by[name] = apart
            elif is_rewritten:
                self._reshape(apart, name)
            elif apart in self.found.tensors and True in others:
                self._reshape(name, apart)

    def _reshape(self, source: str, made: str) -> None:
        shape = (self._classes.tensors if made in self._classes.tensors else self.found.tensors)[made].shape
        name = fresh_name(f"{made}.reshape", self._taken)
        self._taken.add(name)
        self._add(Op(name, "Reshape", (source, self._constant(shape, f"{made}.shape")), (made,)))

    def _write(self, op: Op, indices: _Indices) -> None:
        """The op on the dims told apart."""
        counts: dict[int, int] = {}
        for name, labels in indices.labelled(op):
            counts |= {
                label: len(self._sizes[name, dim]) for dim, label in enumerate(labels) if (name, dim) in self._sizes
            }
        first = np.cumsum(
            [
                0,
                *(
                    counts.get(label, 1)
                    for label in range(1 + max(max(one, default=0) for _, one in indices.labelled(op)))
                ),
            ]
        )

        def apart(labels: Labels) -> Labels:
            return tuple(
                _NO_INDEX if label == _NO_INDEX else int(first[label]) + place
                for label in labels
                for place in range(counts.get(label, 1))
            )

        renamed = replace(
            op,
            inputs=tuple(self._apart.get(name, name) for name in op.inputs),
            outputs=tuple(self._apart.get(name, name) for name in op.outputs),
        )
        attributes = dict(op.attributes)
        if op.op_type in PRODUCTS:
            self._write_product(op, renamed, apart)
            return
        if op.op_type == "Transpose":
            attributes["perm"] = apart(indices.makes[0])
        elif op.op_type in ALONG_AXIS:
            attributes["axis"] = apart(indices.makes[0]).index(*apart(tuple(indices.rigid)))
        elif op.op_type in REDUCTIONS:
            axes = apart(tuple(label for label in indices.reads[0] if label not in indices.makes[0]))
            if op.has_input(1):
                renamed = replace(renamed, inputs=(renamed.inputs[0], self._constant(axes, f"{op.inputs[1]}.apart")))
            else:
                attributes["axes"] = axes
        self._add(replace(renamed, attributes=tuple(sorted(attributes.items()))))

    def _write_product(self, op: Op, renamed: Op, apart: Callable[[Labels], Labels]) -> None:
        product = product_of(op, self._classes.tensors)
        assert product is not None, "an op without labels is not written"
        (made,), bias = renamed.outputs, renamed.inputs[len(product.operands) :]
        if any(bias):
            made = self._tensor(f"{made}.product", self._shape(op.outputs[0]), product.dtype)
        plain = replace(
            product,
            op=replace(renamed, op_type="Einsum", inputs=renamed.inputs[: len(product.operands)], outputs=(made,)),
            operands=renamed.inputs[: len(product.operands)],
            labels=tuple(map(apart, product.labels)),
            result=apart(product.result),
        )
        form = written(plain)
        if form is None:
            self.refused.update(name for name in (*op.inputs, *op.outputs) if name in self._apart)
            return
        self._add(form)
        if any(bias):
            name = fresh_name(f"{op.name}.bias", self._taken)
            self._taken.add(name)
            self._add(Op(name, "Add", (made, *bias), renamed.outputs))


def is_reshape(op: Op) -> bool:
    """Whether an op gives elements in their order another shape."""
    return op.op_type in RESHAPES and not op.domain
