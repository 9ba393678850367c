"""A worker's function: what each of its outputs holds, given what its inputs hold.

Node by node, what a node makes is compared with the model's ops that the segment is of. What is none of these by
itself, a step of a local rule, stands for its own expression until a later node makes it one.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.errors import TofuError
from planner.features.prove.proof.claims import Claim, Partial, Place, Symbol
from planner.features.prove.proof.expression import Described, Num, UnprovenError
from planner.features.prove.proof.index import Space
from planner.features.prove.proof.matching import Matching, moved, summed
from planner.features.prove.proof.placing import MismatchError, Moved, Moves, Placed, Spot
from planner.features.prove.proof.reading import Function
from planner.features.prove.proof.rules import by_rule
from planner.features.prove.proof.values import Reads, Value, element, is_padding, reader, readings
from planner.features.prove.proof.whole import Known, Whole, described, local_view
from planner.features.prove.proof.whole import held as holding
from planner.graph.model import DType, Op, Shape
from planner.tdl.node_view import NodeView

_CONCAT = ("", "Concat")
_MOST_PLACES: Final = 1 << 12
"""At so many an array is looked for in another."""


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
        function: its nodes.
        whole: the model.
        ops: the model's ops that it computes parts of.
        every_rule: those whose descriptions say all are also held against their local rules.
    """

    def __init__(self, function: Function, whole: Whole, ops: Sequence[Known], *, every_rule: bool = False) -> None:
        self._function = function
        self._graph = function.graph
        self._whole = whole
        self._ops = list(ops)
        self._ruled = [one for one in ops if one.is_by_rule or every_rule]
        self._joining = [one for one in ops if (one.described_op.op.domain, one.described_op.op.op_type) == _CONCAT]
        self._done: set[tuple[str, int]] = set()
        self._values: dict[str, Value] = {}
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
        for name, constant in self._function.constants.items():
            self._values[name] = self._constant(constant, outputs.values())
        for name, value in inputs.items():
            if value.claims:
                self._values[name] = self._joined_alone(self._values[name], self._graph.tensors[name].dtype)
        number = 0
        while number < len(self._graph.ops):
            taken = self._by_rule(number, outputs)
            if taken:
                number += taken
                continue
            op = self._graph.ops[number]
            known = (op.domain, op.op_type) in self._whole.descriptions
            description = self._whole.descriptions.description(op.domain, op.op_type) if known else None
            reads = tuple(self._values.get(name) if name else None for name in op.inputs)
            view = local_view(op, self._graph, self._function.constants)
            try:
                told = (None,) * len(op.outputs) if description is None else described(view, description)
            except TofuError as error:  # a description may refuse a node that somebody else wrote
                raise UnprovenError(f"{op.name} is no {op.op_type}: {error.what}") from None
            for position, name in enumerate(op.outputs):
                if name:
                    array = self._function.derived.value(name)
                    made = Value({}) if array is None else self._constant(array, outputs.values())
                    wanted = outputs.get(name)
                    if not made.claims or (wanted is not None and wanted.tensor not in made.claims):
                        other = self._made(view, told[position], position, reads, wanted)
                        whole = {symbol: one for symbol, one in other.claims.items() if one.partial is None}
                        made = replace(other, claims={**made.claims, **(whole if made.claims else other.claims)})
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
        assert shape is not None, "an output that is there has a shape"
        if told is None:
            return Value({}, shape=shape)
        own = Value({}, None, told, reads, shape)
        claims = self._moved(own, reads)
        open_ones = [
            (known, place, reads)
            for known in self._ops
            for place, model in enumerate(known.outputs)
            if model is not None and known.makes[place] is not None
            for reads in readings(known)
        ]
        open_ones.sort(key=lambda one: (one[0].described_op.op.name, one[1]) in self._done)
        near = 0
        reason: tuple[Known | None, str] = (None, "it is no part of an op of the model")
        for known, place, prefer in open_ones:
            try:
                claim, deed = self._claim(own, known, place, prefer, output)
            except (MismatchError, UnprovenError) as error:
                is_near = not isinstance(error, MismatchError) or error.is_alike
                nearness = 2 * is_near + (known.described_op.op.op_type == view.op.op_type)
                if nearness > near:
                    near, reason = nearness, (known, str(error))
                continue
            self._done.add((known.described_op.op.name, place))
            is_copy = bool(claims)
            claims.pop(claim.tensor, None)
            claims[claim.tensor] = self._numbered(claim, deed)
            if not is_copy:  # what is no more than moved may be a part of several
                break
        if not claims:
            self.failures.append(reason)
        return replace(own, claims=claims)

    def _constant(self, array: np.ndarray, stated: Iterable[Claim]) -> Value:
        """An array that no data change, and the tensors that it is a part of by its elements."""
        claims = {}
        for known in self._ops:
            for position, symbol in enumerate(known.makes):
                lo = None if symbol is None else self._place(array, known, position, stated)
                if symbol is not None and lo is not None:
                    claims[symbol] = Claim(symbol, lo, array.shape)
        return Value(claims, self._whole.held(array), shape=array.shape)

    def _place(self, array: np.ndarray, known: Known, position: int, stated: Iterable[Claim]) -> Place | None:
        """Where an array lies in what an op makes of constants alone, or of padding there; None if it does not."""
        node, symbol, told = known.described_op.node, known.makes[position], known.outputs[position]
        sizes, dtype = node.output_shapes[position], node.output_dtypes[position]
        if sizes is None or dtype is None or dtype.array_dtype != array.dtype or len(sizes) != array.ndim:
            return None
        spare = [size - held + 1 for size, held in zip(sizes, array.shape, strict=True)]
        if any(places < 1 for places in spare):
            return None
        value, wanted = self._whole.value(known.described_op.op.outputs[position]), holding(array)
        alike = [one for one in stated if len(one.lo) == array.ndim]
        own = [one.lo for one in alike if one.tensor == symbol and one.shape == array.shape]
        corners = own or [one.lo for one in alike]
        for lo in corners if value is None else (*corners, *itertools.islice(np.ndindex(*spare), _MOST_PLACES)):
            if len(lo) != array.ndim or any(first is None or first >= n for first, n in zip(lo, spare, strict=True)):
                continue
            if value is None:
                if told is not None and isinstance(wanted, Num) and is_padding(told, known, lo, array.shape, wanted):
                    return lo
            elif holding(value[_box(lo, array.shape)]) == wanted:
                return tuple(None if _is_alike(value, dim) else first for dim, first in enumerate(lo))
        return None

    def _joined_alone(self, value: Value, dtype: DType) -> Value:
        """Also what a Concat makes of which this is all that is here: a copy, and copies are not read as nodes."""
        for known in self._joining:
            if known.outputs[0] is None or known.makes[0] in value.claims:
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
                    claim = self._numbered(*self._claim(own, known, 0, known.reads))
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
                local = element(own, mine, space, (symbol,), self._whole)
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
        self, own: Value, known: Known, place: int, prefer: Reads, output: Claim | None = None
    ) -> tuple[Claim, Placed]:
        """What an array is of an op's output; an UnprovenError or MismatchError, if that is not seen."""
        symbol, model = known.makes[place], known.outputs[place]
        assert model is not None, "an output that is there is described"
        assert own.made is not None, "a node makes it"
        dtype = own.made.dtype
        if model.dtype is not dtype:
            raise MismatchError("of another dtype", is_alike=False)
        space = Space()
        mine = [space.variable(size) for size in own.shape]
        sizes = known.described_op.node.output_shapes[place]
        assert sizes is not None, "an output that is there has a shape"
        theirs = [space.variable(size) for size in sizes]
        local = element(own, mine, space, prefer, self._whole)
        wanted = model.at(theirs, reader(known), space)
        hint = output if output is not None and output.tensor == symbol and own.shape else None
        floats = {one for one in known.described_op.node.input_dtypes if one is not None and one.is_float}
        rounds_to = dtype if dtype.is_float and floats <= {dtype} else None
        matching = Matching(space, rounds_to)
        told = (None, -1) if hint is None else (hint.lo, hint.number)
        deed = matching.placed(local, mine, wanted, theirs, *told)
        return Claim(symbol, deed.lo, own.shape, deed.partial), deed

    def _by_rule(self, number: int, outputs: Mapping[str, Claim]) -> int:
        """How many nodes from here are an op's local rule, word by word; what they make is then known."""
        if not self._ruled:
            return 0
        values = {name: value.claims for name, value in self._values.items() if value.claims}
        for known in self._ruled:
            found = by_rule(self._function, number, known, values, list(outputs.values()), self._whole)
            if found is not None:
                count, claims = found
                self._is_movable = False
                for name, claim in claims.items():
                    self._values[name] = Value({claim.tensor: claim}, shape=self._graph.tensors[name].shape)
                self._done.update((known.described_op.op.name, place) for place in range(len(known.makes)))
                return count
        return 0


def _box(lo: Place, shape: Shape) -> tuple[slice, ...]:
    return tuple(slice(first, (first or 0) + size) for first, size in zip(lo, shape, strict=True))


def _is_alike(value: np.ndarray, dim: int) -> bool:
    """Whether an array does not change along a dim."""
    return value.tobytes() == np.broadcast_to(value.take([0], dim), value.shape).tobytes()
