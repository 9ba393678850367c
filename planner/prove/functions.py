"""A worker's function: what each of its outputs holds, given what its inputs hold.

Node by node, what a node makes is compared with the model's ops that the segment is of. What is none of these by
itself, a step of a local rule, stands for its own expression until a later node makes it one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, OperatorSetIdProto, helper

from planner.errors import TofuError
from planner.graph.model import DType, Graph, Op, Shape
from planner.graph.protos import elem_type_of
from planner.graph.reading.from_onnx import graph_from_proto
from planner.prove import index
from planner.prove.claims import Claim, Partial, Symbol
from planner.prove.expression import Acc, At, Described, Expr, Num, Read, UnprovenError
from planner.prove.index import Lin, Space
from planner.prove.matching import Matching, moved, summed
from planner.prove.pairing import Literal
from planner.prove.placing import MismatchError, Moved, Moves, Placed, Spot
from planner.prove.rules import by_rule
from planner.prove.whole import Known, Whole, described, local_view
from planner.tdl.node_view import NodeView

_CONCAT = ("", "Concat")


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of an array inside of a function."""

    claims: Mapping[Symbol, Claim]
    """By tensor of which it holds a part; the last one is that of the latest op."""
    constant: Num | Literal | None = None
    made: Described | None = None
    """By which node it is made."""
    reads: tuple[Value | None, ...] = ()
    """Of that node, by slot."""
    shape: Shape = ()


def read_function(function: FunctionProto, inputs: Sequence[tuple[Shape, DType]], whole: Whole) -> Graph:
    """A function's nodes as a graph, with all shapes.

    Args:
        function: of a worker's file.
        inputs: shape and dtype of each input.
        whole: whose descriptions say shapes that ONNX does not know.

    Raises:
        UnprovenError: it cannot be read.
    """
    graph = GraphProto(name=function.name)
    graph.node.extend(function.node)
    for name, (shape, dtype) in zip(function.input, inputs, strict=True):
        graph.input.append(helper.make_tensor_value_info(name, elem_type_of(dtype), shape))
    graph.output.extend([helper.make_empty_tensor_value_info(name) for name in function.output])
    graph.value_info.extend(function.value_info)
    model = ModelProto(ir_version=10, graph=graph)
    model.opset_import.extend(
        [OperatorSetIdProto(domain=one.domain, version=one.version) for one in function.opset_import]
    )
    try:
        graph_read = graph_from_proto(model, state_pairs=(), operators=whole.descriptions)
    except TofuError as error:
        raise UnprovenError(f"function {function.name} cannot be read: {error.what}") from None
    ours, theirs = ({**one.domains, "": one.opset} for one in (graph_read, whole.graph))
    if any(theirs.get(domain, version) != version for domain, version in ours.items()):
        raise UnprovenError(f"function {function.name} has ops of other versions than the model")
    return graph_read


@dataclass(frozen=True, slots=True)
class Template:
    """What was found of a call, step by step."""

    claims: tuple[Spot, ...]
    """Of the inputs, what the outputs are stated to be, and then one for each deed."""
    deeds: tuple[Moved | Placed, ...]
    ends: tuple[int, ...]
    """Which claim each output has."""

    def again(self, given: Sequence[Spot]) -> list[Spot] | None:
        """What the outputs of a call hold whose claims lie elsewhere; None where that is not seen.

        Args:
            given: of the inputs that have claims, and what the outputs are stated to be; alike but for their places.
        """
        moves = Moves([lo for lo, _ in self.claims], given)
        for deed, (_, partial) in zip(self.deeds, self.claims[len(given) :], strict=True):
            spot = deed.again(moves)
            if spot is None or kind_of(spot[1]) != kind_of(partial):
                return None
            moves.now.append(spot)
        return [moves.now[number] for number in self.ends]


def kind_of(partial: Partial | None) -> Hashable:
    """A partial result without its places."""
    return partial and (partial.reducer, partial.whole)


class FunctionProof:
    """Follows one function.

    Args:
        graph: its nodes.
        whole: the model.
        ops: the model's ops that it computes parts of.
    """

    def __init__(self, graph: Graph, whole: Whole, ops: Sequence[Known]) -> None:
        self._graph = graph
        self._whole = whole
        self._ops = list(ops)
        self._joining = [one for one in ops if (one.described_op.op.domain, one.described_op.op.op_type) == _CONCAT]
        self._done: set[tuple[str, int]] = set()
        self._constants = {name: value for name, value in graph.constants.items() if value is not None}
        self._values: dict[str, Value] = {
            name: Value({}, whole.held(value), shape=value.shape) for name, value in self._constants.items()
        }
        self._claims: list[Claim] = []
        self._deeds: list[Moved | Placed] = []
        self._is_movable = True
        self.failures: list[tuple[Known | None, str]] = []
        """Where nothing was seen to be equal: the op that came nearest, and why."""

    def run(self, inputs: Mapping[str, Value], outputs: Mapping[str, Claim]) -> dict[str, Value]:
        """What each output holds.

        Args:
            inputs: by name.
            outputs: what their buffers state, by name.
        """
        for name, value in inputs.items():
            numbered = {symbol: self._numbered(claim) for symbol, claim in value.claims.items()}
            self._values[name] = replace(value, claims=numbered)
        outputs = {name: self._numbered(claim) for name, claim in outputs.items()}
        for name in inputs:
            self._values[name] = self._joined_alone(self._values[name], self._graph.tensors[name].dtype)
        number = 0
        while number < len(self._graph.ops):
            taken = self._by_rule(number, outputs)
            if taken:
                number += taken
                continue
            op = self._graph.ops[number]
            description = (
                self._whole.descriptions.description(op.domain, op.op_type)
                if (op.domain, op.op_type) in self._whole.descriptions
                else None
            )
            reads = tuple(self._values.get(name) if name else None for name in op.inputs)
            view = local_view(op, self._graph, self._constants)
            try:
                told = (None,) * len(op.outputs) if description is None else described(view, description)
            except TofuError as error:  # a description may refuse a node that somebody else wrote
                raise UnprovenError(f"{op.name} is no {op.op_type}: {error.what}") from None
            for position, name in enumerate(op.outputs):
                if name:
                    made = self._made(view, told[position], position, reads, outputs.get(name))
                    self._values[name] = self._joined_alone(made, self._graph.tensors[name].dtype)
            number += 1
        return {name: self._values.get(name, Value({})) for name in outputs}

    def _numbered(self, claim: Claim, deed: Moved | Placed | None = None) -> Claim:
        self._claims.append(replace(claim, number=len(self._claims)))
        if deed is not None:
            self._deeds.append(deed)
        return self._claims[-1]

    def template(self, ends: Sequence[Claim]) -> Template | None:
        """What was found, for calls whose claims lie elsewhere; None where it rests on places.

        Args:
            ends: of the outputs, as ``run`` gave them.
        """
        if not self._is_movable or any(one.number < 0 for one in ends):
            return None
        claims = tuple((one.lo, one.partial) for one in self._claims)
        return Template(claims, tuple(self._deeds), tuple(one.number for one in ends))

    def _made(
        self,
        view: NodeView,
        told: Described | None,
        position: int,
        reads: tuple[Value | None, ...],
        output: Claim | None,
    ) -> Value:
        shape = view.output_shapes[position]
        dtype = view.output_dtypes[position]
        assert shape is not None, "an output that is there has a shape"
        assert dtype is not None, "an output that is there has a dtype"
        if told is None:
            return Value({}, shape=shape)
        own = Value({}, None, told, reads, shape)
        claims = self._moved(own, reads)
        open_ones = [
            (known, place, model)
            for known in self._ops
            for place, model in enumerate(known.outputs)
            if model is not None and known.makes[place] is not None
        ]
        open_ones.sort(key=lambda one: (one[0].described_op.op.name, one[1]) in self._done)
        near = 0
        reason: tuple[Known | None, str] = (None, "it is no part of an op of the model")
        for known, place, model in open_ones:
            try:
                claim, deed = self._claim(own, known, model, place, dtype, output)
            except (MismatchError, UnprovenError) as error:
                is_near = not isinstance(error, MismatchError) or error.is_alike
                nearness = 2 * is_near + (known.described_op.op.op_type == view.op.op_type)
                if nearness > near:
                    near, reason = nearness, (known, str(error))
                continue
            self._done.add((known.described_op.op.name, place))
            claims.pop(claim.tensor, None)
            claim = self._numbered(claim, deed)
            return replace(own, claims={**claims, claim.tensor: claim})
        if not claims:
            self.failures.append(reason)
        return replace(own, claims=claims)

    def _joined_alone(self, value: Value, dtype: DType) -> Value:
        """Also what a Concat makes of which this is all that is here: a copy, and copies are not read as nodes."""
        for known in self._joining:
            model = known.outputs[0]
            if model is None or known.makes[0] in value.claims:
                continue
            if not value.claims.keys().isdisjoint(known.reads):
                view = NodeView(
                    Op("copy", "Identity", ("x",), ("y",)),
                    (value.shape,),
                    (value.shape,),
                    (None,),
                    input_dtypes=(dtype,),
                    output_dtypes=(dtype,),
                )
                [told] = described(view, self._whole.descriptions.description("", "Identity"))
                own = Value({}, None, told, (value,), value.shape)
                try:
                    claim = self._numbered(*self._claim(own, known, model, 0, dtype, None))
                except (MismatchError, UnprovenError):
                    continue
                value = replace(value, claims={**value.claims, claim.tensor: claim})
        return value

    def _moved(self, own: Value, reads: tuple[Value | None, ...]) -> dict[Symbol, Claim]:
        """Claims of what only moves what it reads, or adds contributions to one tensor."""
        claims: dict[Symbol, Claim] = {}
        wanted = {symbol for value in reads if value is not None for symbol in value.claims}
        for symbol in sorted(wanted, key=str):
            space = Space()
            mine = [space.variable(size) for size in own.shape]
            try:
                local = _element(own, mine, space, (symbol,), self._whole)
            except UnprovenError:
                continue
            for rule in (moved, summed):
                try:
                    found = rule(local, mine, space)
                except MismatchError as error:
                    self.failures.append((None, str(error)))
                    continue
                if found is not None and found[0].tensor not in claims:
                    claims[found[0].tensor] = self._numbered(*found)
        return claims

    def _claim(
        self, own: Value, known: Known, model: Described, place: int, dtype: DType, output: Claim | None
    ) -> tuple[Claim, Placed]:
        symbol = known.makes[place]
        wanted_dtype = known.described_op.node.output_dtypes[place]
        if wanted_dtype is not dtype:
            raise MismatchError("of another dtype", is_alike=False)
        space = Space()
        mine = [space.variable(size) for size in own.shape]
        sizes = known.described_op.node.output_shapes[place]
        assert sizes is not None, "an output that is there has a shape"
        theirs = [space.variable(size) for size in sizes]
        local = _element(own, mine, space, known.reads, self._whole)
        wanted = model.at(theirs, _reader(known), space)
        hint = output if output is not None and output.tensor == symbol and own.shape else None
        floats = {one for one in known.described_op.node.input_dtypes if one is not None and one.is_float}
        rounds_to = dtype if dtype.is_float and floats <= {dtype} else None
        matching = Matching(space, rounds_to)
        told = (None, -1) if hint is None else (hint.lo, hint.number)
        deed = matching.placed(local, mine, wanted, theirs, *told)
        return Claim(symbol, deed.lo, own.shape, deed.partial), deed

    def _by_rule(self, number: int, outputs: Mapping[str, Claim]) -> int:
        """How many nodes from here are an op's local rule, word by word; what they make is then known."""
        ruled = [known for known in self._ops if known.is_by_rule]
        values = self._values_of() if ruled else {}
        for known in ruled:
            found = by_rule(self._graph, number, known, values, list(outputs.values()))
            if found is not None:
                count, claims = found
                self._is_movable = False
                for name, claim in claims.items():
                    self._values[name] = Value({claim.tensor: claim}, shape=self._graph.tensors[name].shape)
                self._done.update((known.described_op.op.name, place) for place in range(len(known.makes)))
                return count
        return 0

    def _values_of(self) -> dict[str, Mapping[Symbol, Claim] | np.ndarray | Num | Literal]:
        found: dict[str, Mapping[Symbol, Claim] | np.ndarray | Num | Literal] = {
            name: value.claims if value.constant is None else value.constant for name, value in self._values.items()
        }
        return {**found, **self._constants}


def _reader(known: Known) -> Read:
    """Reads tensors of the model."""

    def read(slot: int, at: At, fill: float | None) -> Expr:
        what = known.reads[slot]
        shape = known.described_op.node.input_shapes[slot]
        assert shape is not None, "what is read is there"
        assert what is not None, "what is read is there"
        if isinstance(what, Num) and (fill is None or fill == what.value):
            return what
        return Acc(what, at, (0,) * len(shape), shape, shape, fill)

    return read


def _element(
    own: Value, at: Sequence[Lin], space: Space, prefer: Sequence[Symbol | Num | Literal | None], whole: Whole
) -> Expr:
    """The element of an array that a node makes, in tensors of the model.

    Args:
        own: the array.
        at: which element.
        space: of the variables.
        prefer: by which of its claims what is read is told, where it has several: the slot's own, then the first.
        whole: says how large tensors are.
    """
    assert own.made is not None, "a node makes it"

    def read(slot: int, where: At, fill: float | None) -> Expr:
        value = own.reads[slot]
        if value is None:
            raise UnprovenError("an array of which nothing is known is read")
        # A part of a tensor may be a part of two that an op reads: x, and a Slice of x.
        return _read(value, where, fill, space, (*prefer[slot : slot + 1], *prefer), whole)

    return own.made.at(at, read, space)


def _read(
    value: Value,
    at: At,
    fill: float | None,
    space: Space,
    prefer: Sequence[Symbol | Num | Literal | None],
    whole: Whole,
) -> Expr:
    chosen = [value.claims[symbol] for symbol in prefer if symbol in value.claims]
    if not chosen and value.claims and value.constant is None:
        chosen = [list(value.claims.values())[-1]]
    if chosen:
        return _access(chosen[0], at, fill, whole)
    if isinstance(value.constant, Num) and (fill is None or fill == value.constant.value):
        return value.constant
    if value.constant is not None:
        tensor = value.constant if isinstance(value.constant, Literal) else ("filled", value.constant)
        return Acc(tensor, at, (0,) * len(value.shape), value.shape, value.shape, fill)
    if value.made is None:
        raise UnprovenError("an array of which nothing is known is read")
    inside: list[Lin] = []
    for one, size in zip(at, value.shape, strict=True):
        if not isinstance(one, Lin):
            raise UnprovenError("all of a dim is read of what is no part of a tensor")
        low, high = index.reach(one, space)
        if fill is not None and (low < 0 or high >= size):
            raise UnprovenError("what is no part of a tensor is padded")
        inside.append(one)
    return _element(value, inside, space, prefer, whole)


def _access(claim: Claim, at: At, fill: float | None, whole: Whole) -> Expr:
    sizes = whole.sizes[claim.tensor].shape
    moved_at = tuple(
        index.plus(one, index.number(first)) if isinstance(one, Lin) and first is not None else one
        for one, first in zip(at, claim.lo, strict=True)
    )
    return Acc(claim.tensor, moved_at, claim.lo, claim.shape, sizes, fill, claim.partial, claim.number)
