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
from planner.features.prove.proof.whole import ModelOp, Whole, described, local_view
from planner.features.prove.proof.whole import held as holding
from planner.graph.core.model import DType, Op, Shape
from planner.tdl.node_view import NodeView

_CONCAT = ("", "Concat")
_MOST_PLACES: Final = 1 << 12
"""At so many an array is looked for in another."""


@dataclass(frozen=True, slots=True)
class Template:
    """The findings on a call, step by step."""

    claims: tuple[Spot, ...]
    """Of the inputs, what the outputs are stated to be, and then one for each deed."""
    deeds: tuple[Moved | Placed, ...]
    ends: tuple[int, ...]
    """Which claim each output has."""

    def again(self, spots: Sequence[Spot]) -> list[Spot] | None:
        """The claims of a call's outputs whose input claims lie elsewhere; None where that is not seen.

        Args:
            spots: of the inputs that have claims, and what the outputs are stated to be; alike but for their places.
        """
        moves = Moves([lo for lo, _ in self.claims], spots)
        for deed, (_, partial) in zip(self.deeds, self.claims[len(spots) :], strict=True):
            spot = deed.again(moves)
            if spot is None or kind_of(spot[1]) != kind_of(partial):
                return None
            moves.spots.append(spot)
        return [moves.spots[number] for number in self.ends]


def kind_of(partial: Partial | None) -> Hashable:
    """A partial result without its places."""
    return partial and (partial.reducer, partial.extents)


class FunctionProof:
    """Follows one function.

    Args:
        function: its nodes.
        reference: the model.
        ops: the model's ops that it computes parts of.
        every_rule: those whose descriptions say all are also held against their local rules.
    """

    def __init__(
        self, function: Function, reference: Whole, ops: Sequence[ModelOp], *, every_rule: bool = False
    ) -> None:
        self._function = function
        self._graph = function.graph
        self._reference = reference
        self._ops = list(ops)
        self._ruled = [op for op in ops if op.is_by_rule or every_rule]
        self._joining = [op for op in ops if (op.described_op.op.domain, op.described_op.op.op_type) == _CONCAT]
        self._done: set[tuple[str, int]] = set()
        self._values: dict[str, Value] = {}
        self._claims: list[Claim] = []
        self._deeds: list[Moved | Placed] = []
        self._is_movable = True
        self.failures: list[tuple[ModelOp | None, str]] = []
        """Where nothing was seen to be equal: the op that came nearest, and why."""

    def run(self, inputs: Mapping[str, Value], outputs: Mapping[str, Claim]) -> dict[str, Value]:
        """The claim of each output.

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
            count = self._by_rule(number, outputs)
            if count:
                number += count
                continue
            op = self._graph.ops[number]
            is_described = (op.domain, op.op_type) in self._reference.descriptions
            description = self._reference.descriptions.description(op.domain, op.op_type) if is_described else None
            reads = tuple(self._values.get(name) if name else None for name in op.inputs)
            view = local_view(op, self._graph, self._function.constants)
            try:
                expressions = (None,) * len(op.outputs) if description is None else described(view, description)
            except TofuError as error:  # a description may refuse a node that somebody else wrote
                raise UnprovenError(f"{op.name} is no {op.op_type}: {error.what}") from None
            for position, name in enumerate(op.outputs):
                if name:
                    array = self._function.derived.value(name)
                    held = Value({}) if array is None else self._constant(array, outputs.values())
                    wanted = outputs.get(name)
                    if not held.claims or (wanted is not None and wanted.tensor not in held.claims):
                        output = self._output_value(view, expressions[position], position, reads, wanted)
                        finals = {symbol: claim for symbol, claim in output.claims.items() if claim.partial is None}
                        held = replace(output, claims={**held.claims, **(finals if held.claims else output.claims)})
                    self._values[name] = self._joined_alone(held, self._graph.tensors[name].dtype)
            number += 1
        return {name: self._values.get(name, Value({})) for name in outputs}

    def _numbered(self, claim: Claim, deed: Moved | Placed | None = None) -> Claim:
        self._claims.append(replace(claim, number=len(self._claims)))
        if deed is not None:
            self._deeds.append(deed)
        return self._claims[-1]

    def template(self, ends: Sequence[Claim]) -> Template | None:
        """The findings, for calls whose claims lie elsewhere; None where it rests on places.

        Args:
            ends: of the outputs, as ``run`` gave them.
        """
        if not self._is_movable or any(claim.number < 0 for claim in ends):
            return None
        claims = tuple((claim.lo, claim.partial) for claim in self._claims)
        return Template(claims, tuple(self._deeds), tuple(claim.number for claim in ends))

    def _output_value(
        self,
        view: NodeView,
        expression: Described | None,
        position: int,
        reads: tuple[Value | None, ...],
        output: Claim | None,
    ) -> Value:
        shape = view.output_shape(position)
        if expression is None:
            return Value({}, shape=shape)
        array = Value({}, None, expression, reads, shape)
        claims = self._moved(array, reads)
        candidates = [
            (model_op, place, reads)
            for model_op in self._ops
            for place, model in enumerate(model_op.outputs)
            if model is not None and model_op.makes[place] is not None
            for reads in readings(model_op)
        ]
        candidates.sort(key=lambda candidate: (candidate[0].described_op.op.name, candidate[1]) in self._done)
        near = 0
        reason: tuple[ModelOp | None, str] = (None, "it is no part of an op of the model")
        for model_op, place, prefer in candidates:
            try:
                claim, deed = self._claim(array, model_op, place, prefer, output)
            except (MismatchError, UnprovenError) as error:
                is_near = not isinstance(error, MismatchError) or error.is_alike
                nearness = 2 * is_near + (model_op.described_op.op.op_type == view.op.op_type)
                if nearness > near:
                    near, reason = nearness, (model_op, str(error))
                continue
            self._done.add((model_op.described_op.op.name, place))
            is_copy = bool(claims)
            claims.pop(claim.tensor, None)
            claims[claim.tensor] = self._numbered(claim, deed)
            if not is_copy:  # what is no more than moved may be a part of several
                break
        if not claims:
            self.failures.append(reason)
        return replace(array, claims=claims)

    def _constant(self, array: np.ndarray, stated: Iterable[Claim]) -> Value:
        """An array that no data change, and the tensors that it is a part of by its elements."""
        claims = {}
        for model_op in self._ops:
            for position, symbol in enumerate(model_op.makes):
                lo = None if symbol is None else self._place(array, model_op, position, stated)
                if symbol is not None and lo is not None:
                    claims[symbol] = Claim(symbol, lo, array.shape)
        return Value(claims, self._reference.held(array), shape=array.shape)

    def _place(self, array: np.ndarray, model_op: ModelOp, position: int, stated: Iterable[Claim]) -> Place | None:
        """Where an array lies in what an op makes of constants alone, or of padding there; None if it does not."""
        node, symbol, output = model_op.described_op.node, model_op.makes[position], model_op.outputs[position]
        sizes, dtype = node.output_shapes[position], node.output_dtypes[position]
        if sizes is None or dtype is None or dtype.array_dtype != array.dtype or len(sizes) != array.ndim:
            return None
        spare = [size - held + 1 for size, held in zip(sizes, array.shape, strict=True)]
        if any(places < 1 for places in spare):
            return None
        value, wanted = self._reference.value(model_op.described_op.op.outputs[position]), holding(array)
        alike = [claim for claim in stated if len(claim.lo) == array.ndim]
        exact_corners = [claim.lo for claim in alike if claim.tensor == symbol and claim.shape == array.shape]
        corners = exact_corners or [claim.lo for claim in alike]
        for lo in corners if value is None else (*corners, *itertools.islice(np.ndindex(*spare), _MOST_PLACES)):
            if len(lo) != array.ndim or any(first is None or first >= n for first, n in zip(lo, spare, strict=True)):
                continue
            if value is None:
                if (
                    output is not None
                    and isinstance(wanted, Num)
                    and is_padding(output, model_op, lo, array.shape, wanted)
                ):
                    return lo
            elif holding(value[_box(lo, array.shape)]) == wanted:
                return tuple(None if _is_alike(value, dim) else first for dim, first in enumerate(lo))
        return None

    def _joined_alone(self, value: Value, dtype: DType) -> Value:
        """Adds claims of each Concat of which only this array is here: a copy, and no node stands for copies."""
        for concat in self._joining:
            if concat.outputs[0] is None or concat.makes[0] in value.claims:
                continue
            if not value.claims.keys().isdisjoint(concat.reads):
                view = NodeView(
                    Op("copy", "Identity", ("x",), ("y",)),
                    (value.shape,),
                    (value.shape,),
                    (None,),
                    input_dtypes=(dtype,),
                    output_dtypes=(dtype,),
                )
                [expression] = described(view, self._reference.descriptions.description("", "Identity"))
                copy = Value({}, None, expression, (value,), value.shape)
                try:
                    claim = self._numbered(*self._claim(copy, concat, 0, concat.reads))
                except (MismatchError, UnprovenError):
                    continue
                value = replace(value, claims={**value.claims, claim.tensor: claim})
        return value

    def _moved(self, array: Value, reads: tuple[Value | None, ...]) -> dict[Symbol, Claim]:
        """Claims of what only moves what it reads, or adds contributions to one tensor."""
        claims: dict[Symbol, Claim] = {}
        wanted = {symbol for value in reads if value is not None for symbol in value.claims}
        for symbol in sorted(wanted, key=str):
            space = Space()
            mine = [space.variable(size) for size in array.shape]
            try:
                local = element(array, mine, space, (symbol,), self._reference)
            except UnprovenError:
                continue
            for rule in (moved, summed):
                try:
                    evidence = rule(local, mine, space)
                except MismatchError as error:
                    self.failures.append((None, str(error)))
                    continue
                if evidence is not None and evidence[0].tensor not in claims:
                    claims[evidence[0].tensor] = self._numbered(*evidence)
        return claims

    def _claim(
        self, array: Value, model_op: ModelOp, place: int, prefer: Reads, output: Claim | None = None
    ) -> tuple[Claim, Placed]:
        """What an array is of an op's output; an UnprovenError or MismatchError, if that is not seen."""
        symbol, model = model_op.makes[place], model_op.outputs[place]
        assert model is not None, "an output that is there is described"
        assert array.producer is not None, "a node makes it"
        dtype = array.producer.dtype
        if model.dtype is not dtype:
            raise MismatchError("of another dtype", is_alike=False)
        space = Space()
        mine = [space.variable(size) for size in array.shape]
        sizes = model_op.described_op.node.output_shape(place)
        theirs = [space.variable(size) for size in sizes]
        local = element(array, mine, space, prefer, self._reference)
        wanted = model.at(theirs, reader(model_op), space)
        hint = output if output is not None and output.tensor == symbol and array.shape else None
        floats = {kind for kind in model_op.described_op.node.input_dtypes if kind is not None and kind.is_float}
        rounds_to = dtype if dtype.is_float and floats <= {dtype} else None
        matching = Matching(space, rounds_to)
        suggestion = (None, -1) if hint is None else (hint.lo, hint.number)
        deed = matching.placed(local, mine, wanted, theirs, *suggestion)
        return Claim(symbol, deed.lo, array.shape, deed.partial), deed

    def _by_rule(self, number: int, outputs: Mapping[str, Claim]) -> int:
        """How many nodes from here are an op's local rule, word by word; what they make is then known."""
        if not self._ruled:
            return 0
        values = {name: value.claims for name, value in self._values.items() if value.claims}
        for model_op in self._ruled:
            matched = by_rule(self._function, number, model_op, values, list(outputs.values()), self._reference)
            if matched is not None:
                count, claims = matched
                self._is_movable = False
                for name, claim in claims.items():
                    self._values[name] = Value({claim.tensor: claim}, shape=self._graph.tensors[name].shape)
                self._done.update((model_op.described_op.op.name, place) for place in range(len(model_op.makes)))
                return count
        return 0


def _box(lo: Place, shape: Shape) -> tuple[slice, ...]:
    return tuple(slice(first, (first or 0) + size) for first, size in zip(lo, shape, strict=True))


def _is_alike(value: np.ndarray, dim: int) -> bool:
    """Whether an array does not change along a dim."""
    return value.tobytes() == np.broadcast_to(value.take([0], dim), value.shape).tobytes()
