"""The canonical form of a graph: one network is one graph, in whichever ops its file spells it.

What is planned is the canonical form. The user's model stays what it is: it is in the plan's folder, it gives names to
tensors and ops, and ``tofu run --verify`` holds the plan's run against it. Names of the canonical form are names of the
model, and tensors of equal names hold equal elements; it has fewer tensors, and its ops may be of another type.

The rules, each of which takes tensors out of the graph whose elements others hold, or leaves the tensors alone:

- *parts*: a state that is taken apart wherever it is read is several states;
- *copies*: an Identity; Transposes, and Reshapes, that come back to what there was; what changes no shape; what lays
  out a tensor as another op did. A Transpose of a Transpose is one Transpose, a Reshape of a Reshape one Reshape;
- *pieces*: who reads a piece of what was put together reads the piece (``planner.graph.rewriting.pieces``);
- *identities*: a product with one is what it multiplies, perhaps turned;
- *merged dims*: ops between Reshapes that merge dims and tell them apart again work on the dims as they are, and so do
  products that sum over them (``planner.graph.rewriting.unmerged``);
- *turned operands*: a Transpose is taken into products that read it, if nothing else does;
- *turned results*: a Transpose is taken into the product that makes what it turns, if only products read that as well;
- *repeated operands*: an op that broadcasts reads what an Expand repeats;
- *one form*: equal products are equal ops (``planner.graph.rewriting.products``).

All reads stay what they were: a permutation of dims, or an index that is left out. What is no such thing (a Slice with
a step, a Gather of rows, a Reshape of another shape) stays an op: where it is planned, only what is read moves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np

from planner.algebra.region import Region
from planner.graph.core.model import Graph, Op, Shape, of_types
from planner.graph.core.traits import BROADCASTING, RESHAPES, SLICING, VIEWS
from planner.graph.rewriting.dims import turn_of, whole_of
from planner.graph.rewriting.lanes import Lanes
from planner.graph.rewriting.packing import InParts, Placed, boxes
from planner.graph.rewriting.parts import by_parts
from planner.graph.rewriting.pieces import in_pieces
from planner.graph.rewriting.products import product_of, without_identity, written
from planner.graph.rewriting.unmerged import unmerged


@dataclass(frozen=True)
class Canonical:
    """The canonical form of a graph."""

    graph: Graph
    in_place: Mapping[str, str]
    """By tensor that the canonical form has no more: the tensor that holds its elements, turned, repeated, among others
    or in another shape. Who read the one reads, or makes, the other in its place."""
    in_parts: InParts = field(default_factory=dict)
    """Which tensors it has by their parts instead; parts may have parts."""
    lanes: tuple[Lanes, ...] | None = None
    """Equal ops beside each other in ``graph`` (``lanes_of``); None: nobody has looked for them."""

    def boxes(self, model: Graph) -> dict[str, Placed]:
        """The box of each part in its input, output or constant of the model: of which, and which box of it."""
        ends = dict.fromkeys((*model.inputs, *model.outputs, *model.constants))
        return {part: (name, box) for name in ends for part, box in self.in_parts.get(name, {}).items()}


def canonical(graph: Graph, anchors: Collection[str] = ()) -> Canonical:
    """The canonical form of a graph.

    Inputs, outputs and states stay, but for packed ones, of which their parts are there
    (``planner.graph.rewriting.parts``); an output that holds what another tensor holds is made by an Identity of that.

    Args:
        graph: is left as it is; that itself is in the result if it is its own canonical form.
        anchors: tensors that stay, and are read by who reads them: those to which the user's rules give a tiling.
    """
    form = _Form(graph, frozenset(anchors), {op.name: op for op in graph.ops}, graph.tensors.keys())
    form.ops = {op.name: without_identity(op, graph.tensors, form.value) or op for op in graph.ops}
    _in_pieces(form)
    form.drop_unread()
    names = [*form.held_by]
    form.graph, in_parts = by_parts(replace(graph, ops=tuple(form.ops.values())), anchors)
    form.ops, form.source_tensors = {op.name: op for op in form.graph.ops}, form.graph.tensors.keys()
    names += [name for op in form.graph.ops for name in op.outputs if name]
    before: tuple[Op, ...] = ()
    # What one rule writes, another may take up: they run until none changes anything. Only then dims merge, which may
    # give the rules more to do.
    while (ops := tuple(form.ops.values())) != before:
        before = ops
        for rule in RULES:
            rule(form)
            form.drop_unread()
        if tuple(form.ops.values()) == before:
            _merged_dims(form)
    if before == graph.ops:
        return Canonical(graph, {}, in_parts)
    graph = form.graph
    read = {name for op in before for name in op.inputs}
    results = {name for op in before for name in op.outputs}
    live = {*graph.inputs, *results, *(name for name in graph.constants if name in read)}
    canonical_graph = replace(
        graph,
        ops=before,
        tensors={name: tensor for name, tensor in graph.tensors.items() if name in live},
        constants={name: value for name, value in graph.constants.items() if name in live},
        folded=graph.folded & live,
    )
    in_place = {name: form.holder(name) for name in names if name not in results | form.pieces.keys()}
    return Canonical(canonical_graph, in_place, {**in_parts, **form.pieces})


@dataclass
class _Form:
    """A graph on the way to its canonical form."""

    graph: Graph
    anchors: frozenset[str]
    ops: dict[str, Op]
    """By name, in execution order."""
    source_tensors: Collection[str]
    """Tensors of the graph as it was."""
    held_by: dict[str, str] = field(default_factory=dict)
    """By tensor that is there no more, the tensor that was read in its place when it went."""
    pieces: dict[str, dict[str, Region]] = field(default_factory=dict)
    """By tensor of the model that was put together and is there no more, of which tensors, and which box each is."""

    def holder(self, name: str) -> str:
        """The tensor that is read in the place of one that is there no more."""
        while name in self.held_by:
            name = self.held_by[name]
        return name

    def shape(self, name: str) -> Shape:
        return self.graph.tensors[name].shape

    def value(self, name: str) -> np.ndarray | None:
        return self.graph.constants.get(name)

    def maker(self) -> dict[str, Op]:
        """The op that makes each tensor."""
        return {name: op for op in self.ops.values() for name in op.outputs if name}

    def readers(self) -> dict[str, dict[str, None]]:
        """The names of the ops that read each tensor."""
        readers: dict[str, dict[str, None]] = {name: {} for name in self.graph.tensors}
        for op in self.ops.values():
            for name in filter(None, op.inputs):
                readers[name][op.name] = None
        return readers

    def drop_unread(self) -> None:
        """Leaves out what only lays elements out that nobody reads any more."""
        wanted = {*self.graph.outputs, *self.anchors}
        ops = []
        for op in reversed(self.ops.values()):
            if not of_types(op, _LAYING_OUT) or not wanted.isdisjoint(op.outputs):
                wanted.update(op.inputs)
                ops.append(op)
            elif op.outputs[0] == whole_of(op):
                self.pieces[op.outputs[0]] = boxes(self.graph, op)
            else:
                self.held_by.update(dict.fromkeys(op.outputs, op.inputs[0]))
        self.ops = {op.name: op for op in reversed(ops)}


def _without_copies(form: _Form) -> None:
    """Readers of a copy read the original.

    Example: after ``b = Identity(a)`` every op that read ``b`` reads ``a``.
    """
    source_of: dict[str, str] = {}
    before: dict[str, Op] = {}
    """By tensor the op that makes it, among those that were walked."""
    laid: dict[tuple[object, ...], str] = {}
    """By what is laid out anew, and how, the tensor that holds it so."""
    ops = {}
    for old in form.ops.values():
        op = replace(old, inputs=tuple(source_of.get(name, name) for name in old.inputs))
        op = _joined(form, op, before)
        source = _original(form, op, before)
        if source is None and (layout := _layout(form, op)) is not None:
            source = laid.get(layout)
            if op.outputs[0] not in form.anchors:
                laid.setdefault(layout, op.outputs[0])
        if source is not None:
            (output,) = op.outputs
            op = replace(op, op_type="Identity", inputs=(source,), attributes=())
            if output not in form.anchors:
                source_of[output] = source
        ops[op.name] = op
        before.update((name, op) for name in op.outputs if name)
    form.ops = ops
    _make_outputs(form)


def _make_outputs(form: _Form) -> None:
    """An output that holds what an op makes is made by that op, and not by an Identity of it.

    So is what the model has a name for.
    """
    maker = form.maker()
    free = maker.keys() - set(form.graph.outputs) - form.anchors
    renamed: dict[str, str] = {}
    for op in form.ops.values():
        if not of_types(op, ("Identity",)) or op.inputs[0] not in free or op.inputs[0] in renamed:
            continue
        is_named = op.outputs[0] in form.graph.outputs or op.inputs[0] not in form.source_tensors
        if is_named and op.outputs[0] not in form.anchors:
            renamed[op.inputs[0]] = op.outputs[0]
    if not renamed:
        return
    copies = {maker[output].name for output in renamed.values()}
    form.ops = {op.name: op.renamed(renamed) for op in form.ops.values() if op.name not in copies}
    form.held_by |= renamed


def _layout(form: _Form, op: Op) -> tuple[object, ...] | None:
    """What an op lays out anew, and how: equal for ops that make equal tensors; None of an op that does not."""
    if not of_types(op, VIEWS):
        return None
    return op.inputs[0], turn_of(form.graph, op), form.shape(op.outputs[0])


def _joined(form: _Form, op: Op, before: Mapping[str, Op]) -> Op:
    """A Transpose of a Transpose, or a Reshape of a Reshape, that reads what the first one read."""
    if _is_reshape_of_reshape(form, op, before):
        return replace(op, inputs=(before[op.inputs[0]].inputs[0], *op.inputs[1:]))
    turn, inner = turn_of(form.graph, op), before.get(op.inputs[0]) if op.inputs else None
    first = None if turn is None or inner is None or inner.outputs[0] in form.anchors else turn_of(form.graph, inner)
    if turn is None or inner is None or first is None:
        return op
    return replace(op, inputs=inner.inputs, attributes=(("perm", tuple(first[dim] for dim in turn)),))


def _is_reshape_of_reshape(form: _Form, op: Op, before: Mapping[str, Op]) -> bool:
    """Whether a Reshape reads what a Reshape makes, and its shape says the same of what that one reads.

    Example: dims that one op joins, and the next one splits in another way, are then never joined.
    """
    if not of_types(op, ("Reshape",)) or (target := form.value(op.inputs[1])) is None or 0 in target:
        return False
    return op.inputs[0] not in form.anchors and of_types(before.get(op.inputs[0]), RESHAPES) is not None


def _original(form: _Form, op: Op, before: Mapping[str, Op]) -> str | None:
    """The tensor that an op makes again; None if it makes something else."""
    if not of_types(op, VIEWS):
        return None
    source, shape, turn = op.inputs[0], form.shape(op.outputs[0]), turn_of(form.graph, op)
    if turn is not None or not of_types(op, RESHAPES):
        return source if form.shape(source) == shape and turn in (None, tuple(range(len(shape)))) else None
    while form.shape(source) != shape:
        inner = of_types(before.get(source), RESHAPES)
        if inner is None or source in form.anchors:
            return None
        source = inner.inputs[0]
    return source


def _merged_dims(form: _Form) -> None:
    """Ops work on dims that Reshapes merge for them (``planner.graph.rewriting.unmerged``)."""
    graph = form.graph
    fixed = {*graph.inputs, *graph.outputs, *graph.constants, *form.anchors}
    rewrite = unmerged(graph, tuple(form.ops.values()), fixed)
    if rewrite is not None:
        emit, held = rewrite
        form.ops = {op.name: op for op in emit.ops}
        form.held_by |= held
        tensors, constants = {**graph.tensors, **emit.tensors}, {**graph.constants, **emit.constants}
        form.graph = replace(graph, tensors=tensors, constants=constants, folded=graph.folded | emit.constants.keys())


def _in_pieces(form: _Form) -> None:
    """Readers of a piece read the tensor that it is a piece of (``planner.graph.rewriting.pieces``)."""
    form.ops = {op.name: op for op in in_pieces(form.graph, form.ops.values(), form.anchors)}


def _turned_operands(form: _Form) -> None:
    """Products read what a Transpose turns, where all that read the Transpose are products that can."""
    readers = form.readers()
    for turning in list(form.ops.values()):
        turn = turn_of(form.graph, turning)
        if turn is None:
            continue
        (name,), (source,) = turning.outputs, turning.inputs
        rewrites = {reader: _reading(form, form.ops[reader], name, source, turn) for reader in readers[name]}
        products = {reader: op for reader, op in rewrites.items() if op is not None}
        if products and len(products) == len(rewrites) and name not in form.anchors:
            form.ops.update(products)
            readers[source].update(readers[name])


def _reading(form: _Form, op: Op, turned: str, source: str, perm: tuple[int, ...]) -> Op | None:
    """An op that reads the source of a Transpose in its place; None if it can not."""
    product = product_of(op, form.graph.tensors)
    if product is None or turned in op.inputs[len(product.operands) :]:
        return None
    return written(product.with_operand(turned, source, perm))


def _turned_results(form: _Form) -> None:
    """A product makes what a Transpose makes of it, where nothing else reads it but products, which can read that."""
    stay = {*form.graph.outputs, *form.anchors}
    maker, readers = form.maker(), form.readers()
    for transpose in list(form.ops.values()):
        turn = turn_of(form.graph, transpose)
        if turn is None or transpose.inputs[0] in stay or transpose.inputs[0] not in maker:
            continue
        (name,), (turned,) = transpose.inputs, transpose.outputs
        op = form.ops.get(maker[name].name)
        product = None if op is None or op.outputs != (name,) else product_of(op, form.graph.tensors)
        if product is None:
            continue
        back = tuple(turn.index(dim) for dim in range(len(turn)))
        consumers = [form.ops[reader] for reader in readers[name] if reader != transpose.name]
        rewrites = [
            written(product.with_result(turned, turn)),
            *(_reading(form, consumer, name, turned, back) for consumer in consumers),
        ]
        products = {op.name: op for op in rewrites if op is not None}
        if len(products) == len(rewrites):
            del form.ops[transpose.name]
            form.ops.update(products)
            form.held_by[name] = turned
            readers[turned].update(dict.fromkeys(consumer.name for consumer in consumers))


def _repeated_operands(form: _Form) -> None:
    """Ops that broadcast read what an Expand repeats, where that gives them the same shape."""
    maker = form.maker()
    rewrites = {}
    for op in form.ops.values():
        inputs = list(op.inputs)
        for slot, name in enumerate(op.inputs):
            inner = of_types(maker.get(name), ("Expand",))
            if inner is None or name in form.anchors:
                continue
            inputs[slot] = inner.inputs[0]
            if not _has_its_shape(form, op, inputs):
                inputs[slot] = name
        if tuple(inputs) != op.inputs:
            rewrites[op.name] = replace(op, inputs=tuple(inputs))
    form.ops.update(rewrites)


def _has_its_shape(form: _Form, op: Op, inputs: list[str]) -> bool:
    """Whether an op that reads these broadcasts them to the shape that it makes."""
    own = None if op.domain else _OWN_DIMS.get(op.op_type)
    if own is None:
        return False
    result, shapes, before = form.shape(op.outputs[0]), map(form.shape, inputs), map(form.shape, op.inputs)
    stacks = []
    for shape, old in zip(shapes, before, strict=True):
        stack = len(shape) - own
        if stack < 0 or shape[stack:] != old[len(old) - own :]:
            return False
        stacks.append(shape[:stack])
    return np.broadcast_shapes(*stacks) == result[: len(result) - own]


def _one_form(form: _Form) -> None:
    """Equal products are equal ops."""
    products = [(op.name, product_of(op, form.graph.tensors)) for op in form.ops.values()]
    form.ops.update({name: op for name, product in products if product and (op := written(product))})


_OWN_DIMS: Final = {**dict.fromkeys(BROADCASTING, 0), "MatMul": 2}
"""Of ops that broadcast, how many last dims of an operand are no part of that."""
_LAYING_OUT: Final = VIEWS | SLICING | {"Concat"}
Rule: TypeAlias = Callable[[_Form], None]

RULES: Final[tuple[Rule, ...]] = (
    _in_pieces,
    _without_copies,
    _turned_operands,
    _turned_results,
    _repeated_operands,
    _one_form,
)
"""In the order in which they are applied, until none of them changes anything and no dims are merged."""
