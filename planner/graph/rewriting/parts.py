"""States by their parts: what every reader takes apart in one way is several tensors, and not one.

q, k and v lie in one matrix, or gate and up, and the product with it is split. A worker that has some columns of each
part holds no box of such a state. Where all ops around it take the state, or what is made of it, apart along one dim at
the same places, each part becomes a state of its own: one product is a product for each part, its gradient and its
update are, too. What the parts are of is the model's: names, files and results know the whole alone.

A tensor is *packed* if it has its parts beside each other along a dim, once or in several equal blocks. Ops carry that
from their operands to their results and back: element-wise ops, products, Reshapes, Transposes, sums. It ends where
parts are taken (Split, Slice, Gather) or put together (Concat, Pad and Add). An op of another kind is a reader of the
whole, and all that is tied to it stays as it is. So do states of several blocks (q, k and v of each head): some of
their blocks are a box.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from planner.algebra.region import Region
from planner.graph.core.builder import Builder
from planner.graph.core.model import Graph, Op, Role, StatePair, of_types
from planner.graph.core.traits import PRODUCTS, RESHAPES
from planner.graph.rewriting.dims import WholeError, parts_of, whole_of
from planner.graph.rewriting.packing import JOINED_BY, InParts, Packing, carried
from planner.graph.rewriting.products import product_of


def by_parts(graph: Graph, anchors: Collection[str] = ()) -> tuple[Graph, InParts]:
    """A graph whose packed states are states by part; the graph itself where there are none.

    Args:
        graph: is left as it is.
        anchors: tensors that stay whole.
    """
    in_parts: dict[str, dict[str, Region]] = {}
    refused = set(anchors)
    while groups := _Search(graph, refused).groups():
        writing = _Writing(graph, {name: packing for group in groups for name, packing in group.items()})
        try:
            written = writing.rewritten()
        except WholeError:
            refused.update(next(group for group in groups if writing.tensor in group))
            continue
        pieces = {name: boxes for name in writing.parts if (boxes := writing.boxes(name))}
        for name, boxes in in_parts.items():  # parts may have parts
            inner = {part: pieces.get(part, {part: Region.whole(box.shape)}) for part, box in boxes.items()}
            in_parts[name] = {piece: box.moved(boxes[part].lo) for part in inner for piece, box in inner[part].items()}
        in_parts |= pieces
        graph = written
    return graph, in_parts


def whole_name(part: str, names: Collection[str]) -> str:
    """The name, among these, that a part, or a part of a part, is called after."""
    while part not in names and "#" in part:
        part = part.rpartition("#")[0]
    return part


class _Search:
    """Finds tensors that are packed, and all that are packed with them.

    Args:
        graph: of the tensors.
        refused: those that stay whole.
    """

    def __init__(self, graph: Graph, refused: Collection[str]) -> None:
        self._graph, self._refused = graph, refused
        self._failed: set[tuple[str, Packing]] = set()
        pairs = [(pair.current, pair.following) for pair in graph.state]
        self._tied = dict((*pairs, *(pair[::-1] for pair in pairs)))

    def groups(self) -> list[dict[str, Packing]]:
        """The packed tensors around states: those of one group are packed because the others are."""
        groups: list[dict[str, Packing]] = []
        seen: set[str] = set()
        for name, readers in self._graph.consumers.items():
            takers = [op for op in readers if whole_of(op) == name]
            if takers and name not in self._refused and name not in seen:
                group = {name: packing} if (packing := self._packing(name, takers)) is not None else {}
                if group and self._is_by_parts(group) and seen.isdisjoint(group):
                    groups.append(group)
                    seen.update(group)
        return groups

    def _packing(self, name: str, takers: Sequence[Op]) -> Packing | None:
        """How those that take parts of a tensor take it apart; None: along several dims, or nothing."""
        try:
            takings = [place for op in takers for place in parts_of(self._graph, op)]
        except WholeError:
            return None
        dims = {dim for _, dim, _, _ in takings}
        if len(dims) != 1:
            return None
        (dim,) = dims
        ends = {0, self._graph.tensors[name].shape[dim], *(end for _, _, *bounds in takings for end in bounds)}
        widths = tuple(end - start for start, end in pairwise(sorted(ends)))
        return Packing(dim, 1, widths) if len(widths) > 1 else None

    def _is_by_parts(self, group: dict[str, Packing]) -> bool:
        """Whether all that is packed because a tensor is, which is put to it, is that of weights, and no op needs more.

        Weights of several blocks, and of parts of one place each, are left: some of them are a box.
        """
        try:
            self._spread(group)
        except WholeError:
            self._failed |= group.items()
            return False
        roles = self._graph.roles
        held = [packing for name, packing in group.items() if roles[name] in (Role.STATE, Role.CONSTANT)]
        if any(packing.blocks > 1 for packing in held) or all(max(packing.widths) == 1 for packing in held):
            self._failed |= group.items()
            return False
        return any(op.op_type in PRODUCTS for name in group for op in self._graph.consumers[name])

    def _spread(self, group: dict[str, Packing]) -> None:
        graph, waiting = self._graph, list(group)
        while waiting:
            name = waiting.pop()
            is_end = graph.roles[name] in (Role.DATA, Role.RESULT) or not graph.tensors[name].elements
            if is_end or name in self._refused or (name, group[name]) in self._failed:
                raise WholeError
            ops = [*graph.consumers[name], *([graph.producer[name]] if name in graph.producer else [])]
            implied = [pair for op in ops for pair in carried(graph, op, name, group[name])]
            implied += [(self._tied[name], group[name])] if name in self._tied else []
            for peer, packing in implied:
                if peer not in group:
                    waiting.append(peer)
                if group.setdefault(peer, packing) != packing:
                    raise WholeError


class _Writing:
    """The ops of a graph in order, with those of parts in the place of what made or read packed tensors.

    Attributes:
        parts: by packed tensor its parts; "" for one of zeros alone.
        tensor: a packed tensor of the op that is being written.
    """

    def __init__(self, graph: Graph, packed: Mapping[str, Packing]) -> None:
        self._graph, self._packed, self._emit = graph, packed, Builder(graph)
        self.parts: dict[str, tuple[str, ...]] = {}
        self.tensor = ""

    def rewritten(self) -> Graph:
        """The graph by parts.

        Raises:
            WholeError: an op cannot do with parts alone; ``tensor`` is a tensor of it.
        """
        graph, emit, initial = self._graph, self._emit, dict(self._graph.initial)
        for name in filter(self._packed.__contains__, (*graph.inputs, *graph.constants)):
            packing, parts = self._packed[name], self._part_tensors(name)
            for values in (initial, emit.constants):
                if name in values:
                    value = values.pop(name)
                    cuts = [(slice(None),) * packing.dim + (slice(*place),) for place in packing.places]
                    cut = [None if value is None else value[index] for index in cuts]
                    values.update(zip(parts, cut, strict=True))
            emit.folded.update(parts if name in emit.folded else ())
        for op in graph.ops:
            # If the op cannot be written by parts, ``by_parts`` leaves the group of ``tensor`` whole.
            self.tensor = next((name for name in (*op.inputs, *op.outputs) if name in self._packed), "")
            if self.tensor:
                self._write(op)
            else:
                emit.replay(op)
        flat = {name: self.parts.get(name, (name,)) for name in (*graph.inputs, *graph.outputs)}
        inputs, outputs = ([part for name in names for part in flat[name]] for names in (graph.inputs, graph.outputs))
        pairs = [pair for state in graph.state for pair in zip(flat[state.current], flat[state.following], strict=True)]
        self.tensor = next((name for name in graph.outputs if not all(flat[name])), "")
        if self.tensor:
            raise WholeError
        parts_graph = emit.finish(
            inputs=inputs,
            outputs=outputs,
            state=[StatePair(*pair) for pair in pairs],
            initial=initial,
            opset=graph.opset,
            notes=graph.notes,
        )
        return replace(parts_graph, domains=graph.domains)

    def boxes(self, name: str) -> dict[str, Region]:
        """The boxes of the parts of a packed tensor; {} where some of them are no boxes of it, or are not there."""
        packing, parts, shape = self._packed[name], self.parts[name], self._graph.tensors[name].shape
        return dict(zip(parts, packing.boxes(shape), strict=True)) if packing.blocks == 1 and all(parts) else {}

    def _part_tensors(self, name: str) -> tuple[str, ...]:
        """Tensors for all parts of a packed one."""
        if name not in self.parts:
            tensor, packing = self._graph.tensors[name], self._packed[name]
            shapes = enumerate(packing.shapes(tensor.shape))
            self.parts[name] = tuple(self._emit.declare(f"{name}#{n}", shape, tensor.dtype) for n, shape in shapes)
        return self.parts[name]

    def _write(self, op: Op) -> None:
        source, target = op.inputs[0], op.outputs[0]
        packing, result = self._packed.get(source), self._packed.get(target)
        if result is not None and packing is None and whole_of(op) == target:
            put = {result.part_at(place): place[0] for place in parts_of(self._graph, op)}
            self.parts[target] = tuple(put.get(part, "") for part in range(len(result.widths)))
        elif packing is not None and result is None and whole_of(op) == source:
            for place in parts_of(self._graph, op):
                self._laid_out(self.parts[source][packing.part_at(place)], place[0])
        elif result is None:
            self._join(op)
        else:
            for name in op.outputs:
                self._part_tensors(name)
            for part in range(len(result.widths)):
                self._write_part(op, part)

    def _laid_out(self, source: str, target: str) -> None:
        """A part under another name, perhaps in another shape."""
        if not source:
            raise WholeError
        emit = self._emit
        emit.define(target, emit.reshape(source, emit.tensor(target).shape))

    def _write_part(self, op: Op, part: int) -> None:
        """An op of parts for one of them; a part of zeros adds nothing."""
        inputs, outputs = self._reads(op.inputs, part), self._reads(op.outputs, part)
        terms = tuple(filter(None, inputs))
        if all(inputs[slot] for slot, operand in enumerate(op.inputs) if operand):
            if of_types(op, RESHAPES):
                self._laid_out(inputs[0], outputs[0])
            else:
                widths = self._packed[op.outputs[0]].widths
                if isinstance(group := op.attribute("group"), int):
                    op = op.with_attributes(group=group * widths[part] // sum(widths))
                self._emit.replay(replace(op, name="", inputs=inputs, outputs=outputs))
        elif op.op_type not in ("Add", "Sum"):
            raise WholeError
        elif not terms:
            target = op.outputs[0]
            self.parts[target] = tuple("" if name == outputs[0] else name for name in self.parts[target])
        elif len(terms) == 1 and self._emit.tensor(terms[0]).kind == self._emit.tensor(outputs[0]).kind:
            self._laid_out(terms[0], outputs[0])
        else:
            raise WholeError

    def _reads(self, names: Sequence[str], part: int) -> tuple[str, ...]:
        return tuple(self.parts[name][part] if name in self._packed else name for name in names)

    def _join(self, op: Op) -> None:
        """A sum over the dim of parts is the sum of those of each part."""
        (target,) = op.outputs
        tensor, product = self._graph.tensors[target], product_of(op, self._graph.tensors)
        terms: list[str] = []
        for part in range(len(self._packed[self.tensor].widths)):
            inputs = self._reads(op.inputs, part)
            if not all(inputs[:2]):
                continue  # of zeros
            if terms and product is not None:
                inputs = inputs[: len(product.operands)]  # what is added, is added once
            terms.append(self._emit.declare(f"{target}#{part}", *tensor.kind))
            self._emit.replay(replace(op, name="", inputs=inputs, outputs=(terms[-1],)))
        joined = JOINED_BY.get(op.op_type, "Sum")
        if joined == "Sum" and len(terms) == 2:
            joined = "Add"  # the stock runtime fails to make one kernel of a Gemm and a Sum of two
        if not terms:
            raise WholeError
        self._emit.replay(Op(op.name, joined, tuple(terms), (target,)))
