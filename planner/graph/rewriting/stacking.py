"""Equal ops beside each other become ops of a stack (``planner.graph.rewriting.lanes``).

Eight matrices that are each multiplied by themselves are one stack of eight that is; and of a stack, a worker may have
some and multiply these alone. So a stack says what a loop cannot: that each of equal things has one owner.

What the lanes have of their own is laid into a stack (Unsqueeze, Concat) before it is read, and what others read of
their results is taken out of it again (Split, Squeeze) under its own name. Every number stays what it was: the kernels
work on each matrix of a stack alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from planner.graph.emitter import Emitter, free_prefix
from planner.graph.model import Attribute, Graph, Op, Shape
from planner.graph.rewriting.canonical import BROADCASTING, RESHAPES, Canonical
from planner.graph.rewriting.lanes import ALONG_AN_AXIS, REDUCTIONS, UNARY, Lanes, axes_of, lanes_of, product_of_stacks


@dataclass(frozen=True)
class Stacked:
    """A graph in which equal ops beside each other are ops of stacks."""

    graph: Graph
    within: dict[str, str]
    """By tensor that the graph has no more, the stack that it is in."""
    lanes: dict[str, str]
    """By op that is new, the name of the lanes in whose place it is."""


def stacked(graph: Graph, names: Collection[str]) -> Stacked:
    """The graph with stacks in the place of some lanes.

    Args:
        graph: is left as it is.
        names: of the lanes (``Lanes.name``); others stay as they are, and so does what is no name of lanes.
    """
    within: dict[str, str] = {}
    made_for: dict[str, str] = {}
    for lanes in lanes_of(graph) if names else ():
        if lanes.name in names:
            known = {op.name for op in graph.ops}
            graph = _with_stack(graph, lanes, within)
            made_for.update((op.name, lanes.name) for op in graph.ops if op.name not in known)
    return Stacked(graph, within, made_for)


def with_stacks(form: Canonical, names: Collection[str]) -> Canonical:
    """A canonical form with stacks in the place of some lanes: who reads what they make reads the stack in its place.

    Args:
        form: of a model.
        names: see ``stacked``.
    """
    found = stacked(form.graph, names)
    held = {name: found.within.get(other, other) for name, other in form.in_place.items()}
    return Canonical(found.graph, {**held, **found.within})


def _with_stack(graph: Graph, lanes: Lanes, within: dict[str, str]) -> Graph:
    taken = sorted({*graph.tensors, *(op.name for op in graph.ops)})
    writer = _Writer(graph, lanes, Emitter(free_prefix(f"{lanes.count}x.{lanes.name}/", taken), graph.tensors,
                                           graph.constants, graph.opset))  # fmt: skip
    writer.write()
    emitter, members = writer.emitter, {op.name for ops in lanes.ops for op in ops}
    made = {name for ops in lanes.ops for op in ops for name in op.outputs}
    gone = made - writer.taken_out
    for ops in lanes.ops:
        within.update((op.outputs[0], writer.stacks[ops[0].outputs[0]]) for op in ops if op.outputs[0] in gone)
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name not in gone}
    kept = [op for op in graph.ops if op.name not in members]
    rewritten = replace(
        graph,
        ops=_in_order([*kept, *emitter.ops], {op.name: number for number, op in enumerate(graph.ops)}, graph),
        tensors={**tensors, **emitter.tensors},
        constants={**graph.constants, **emitter.constants},
        folded=graph.folded | emitter.constants.keys(),
    )
    read = {name for op in rewritten.ops for name in op.inputs} | set(rewritten.outputs)
    unread = {name for name in rewritten.constants if name not in read}
    return replace(
        rewritten,
        tensors={name: tensor for name, tensor in rewritten.tensors.items() if name not in unread},
        constants={name: value for name, value in rewritten.constants.items() if name not in unread},
        folded=frozenset(rewritten.folded - unread),
    )


def _in_order(ops: Sequence[Op], place: dict[str, int], graph: Graph) -> tuple[Op, ...]:
    """Ops such that each comes after what it reads; as they were, and what is new as early as it can be."""
    maker = {name: op.name for op in ops for name in op.outputs if name}
    by_name = {op.name: op for op in ops}
    missing = {op.name: {maker[name] for name in op.inputs if name in maker} for op in ops}
    readers: dict[str, list[str]] = {}
    for name, sources in missing.items():
        for source in sources:
            readers.setdefault(source, []).append(name)
    # What is new comes right after the last op that it waits for.
    latest: dict[str, int] = {}
    ready = [(place.get(op.name, -1), number, op.name) for number, op in enumerate(ops) if not missing[op.name]]
    number_of = {op.name: number for number, op in enumerate(ops)}
    heapq.heapify(ready)
    found: list[Op] = []
    while ready:
        at, _, name = heapq.heappop(ready)
        found.append(by_name[name])
        for reader in readers.get(name, ()):
            missing[reader].discard(name)
            latest[reader] = max(latest.get(reader, -1), at)
            if not missing[reader]:
                heapq.heappush(ready, (place.get(reader, latest[reader]), number_of[reader], reader))
    assert len(found) == len(ops), "lanes depend on each other"
    return tuple(found)


class _Writer:
    """Writes the ops of stacks.

    Attributes:
        stacks: by tensor of the first lane the stack of all lanes'.
        taken_out: tensors that others read, which stay under their names.
    """

    def __init__(self, graph: Graph, lanes: Lanes, emitter: Emitter) -> None:
        self._graph, self._lanes, self.emitter = graph, lanes, emitter
        self.stacks: dict[str, str] = {}
        self.taken_out: set[str] = set()

    def write(self) -> None:
        for beside in self._lanes.operands:
            self._lay_together(beside)
        members = {op.name for ops in self._lanes.ops for op in ops}
        outputs = set(self._graph.outputs)
        for ops in self._lanes.ops:
            self._emit(ops)
            made = [op.outputs[0] for op in ops]
            if any(
                name in outputs or any(reader.name not in members for reader in self._graph.consumers[name])
                for name in made
            ):
                self._take_out(made)

    def _lay_together(self, beside: Sequence[str]) -> None:
        emitter, first = self.emitter, beside[0]
        shape, dtype = emitter.shape(first), emitter.dtype(first)
        axis = emitter.ints((0,), f"{first}.axis")
        layers = [emitter.emit("Unsqueeze", (name, axis), f"{name}.layer", (1, *shape), dtype) for name in beside]
        self.stacks[first] = emitter.emit("Concat", layers, f"{first}.stack", (len(beside), *shape), dtype, {"axis": 0})

    def _take_out(self, names: Sequence[str]) -> None:
        emitter, stack = self.emitter, self.stacks[names[0]]
        shape, dtype = emitter.shape(names[0]), emitter.dtype(names[0])
        parts = emitter.emit_all(
            "Split",
            (stack, emitter.ints((1,) * len(names), f"{names[0]}.parts")),
            [f"{name}.layer" for name in names],
            (1, *shape),
            [dtype] * len(names),
            {"axis": 0},
        )
        axis = emitter.ints((0,), f"{names[0]}.axis")
        for name, part in zip(names, parts, strict=True):
            emitter.ops.append(Op(f"{emitter.prefix}{name}", "Squeeze", (part, axis), (name,)))
        self.taken_out.update(names)

    def _emit(self, ops: Sequence[Op]) -> None:
        emitter, op = self.emitter, ops[0]
        (output,) = op.outputs
        own = [name in self.stacks for name in op.inputs]
        read = [self.stacks.get(name, name) for name in op.inputs]
        tensor = self._graph.tensors[output]
        shape = (self._lanes.count, *tensor.shape)
        attributes: dict[str, Attribute] = dict(op.attributes)
        op_type = op.op_type
        if op_type in BROADCASTING:
            read = [self._at_rank(name, len(tensor.shape)) for name in op.inputs]
        elif op_type == "Transpose":
            perm = op.attribute("perm") or tuple(reversed(range(len(tensor.shape))))
            assert isinstance(perm, tuple), "perm is a list"
            attributes["perm"] = (0, *(int(dim) + 1 for dim in perm))
        elif op_type in RESHAPES:
            op_type, attributes = "Reshape", {}
            read = [read[0], emitter.ints(shape, f"{output}.shape")]
        elif op_type in ALONG_AN_AXIS:
            axis = op.attribute("axis", -1)
            assert isinstance(axis, int), "axis is a number"
            attributes["axis"] = axis % len(tensor.shape) + 1
        elif op_type in REDUCTIONS:
            self._reduce(op, shape)
            return
        elif op_type not in UNARY:
            found = product_of_stacks(op, self._graph, own, read)
            assert found is not None, f"{op.name} has a form that works on stacks"
            made, turned = found
            op_type, attributes = made.op_type, dict(made.attributes)
            read = [
                self._turned(name, f"{output}.turned{slot}") if slot in turned else name
                for slot, name in enumerate(made.inputs)
            ]
        self.stacks[output] = emitter.emit(op_type, read, f"{output}.stack", shape, tensor.dtype, attributes)

    def _turned(self, name: str, part: str) -> str:
        """The matrices of a stack transposed."""
        *stack, rows, columns = self.emitter.shape(name)
        perm = (*range(len(stack)), len(stack) + 1, len(stack))
        return self.emitter.emit(
            "Transpose", (name,), part, (*stack, columns, rows), self.emitter.dtype(name), {"perm": perm}
        )

    def _reduce(self, op: Op, shape: Shape) -> None:
        axes = axes_of(self._graph, op)
        assert axes is not None, "the axes are known"
        keeps = bool(op.attribute("keepdims", 1))
        (output,) = op.outputs
        self.stacks[output] = self.emitter.reduce(
            op.op_type, self.stacks[op.inputs[0]], [axis + 1 for axis in axes], f"{output}.stack", keepdims=keeps
        )
        assert self.emitter.shape(self.stacks[output]) == shape, "a stack of what each lane has"

    def _at_rank(self, name: str, rank: int) -> str:
        """A stack of tensors that broadcast to some rank, with the dims that they lack; what is in none as it is."""
        if name not in self.stacks:
            return name
        stack, shape = self.stacks[name], self._graph.tensors[name].shape
        missing = rank - len(shape)
        part = f"{name}.of{rank}"
        known = f"{self.emitter.prefix}{part}"
        if known in self.emitter.tensors or not missing:
            return known if missing else stack
        return self.emitter.reshape(stack, (self._lanes.count, *(1,) * missing, *shape), part)
