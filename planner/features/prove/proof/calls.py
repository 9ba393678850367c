"""Calls of functions: what each kind of call does is found once, and holds wherever what it reads lies.

Two calls are of one kind if their functions, the kinds of their ops, and how tensors tie these together are equal, and
if what they read and are stated to make differs in places alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from onnx import FunctionProto

from planner.artifacts.program import Buffer
from planner.features.prove.proof.claims import Claim
from planner.features.prove.proof.expression import Num, UnprovenError
from planner.features.prove.proof.functions import FunctionProof, Template, kind_of
from planner.features.prove.proof.pairing import Literal
from planner.features.prove.proof.placing import Spot
from planner.features.prove.proof.reading import Function, read_function
from planner.features.prove.proof.values import Value
from planner.features.prove.proof.whole import ModelOp, Whole, array_of
from planner.tdl.builder import MISFITS

_MOST_ALIKE = 64
"""So many calls that are alike but for their places are tried, at most."""
Array: TypeAlias = "tuple[Buffer, Claim | Num | Literal]"
"""A buffer, and what it holds."""


@dataclass(frozen=True, slots=True)
class Call:
    """The effect of a function call."""

    outputs: tuple[Spot | None, ...]
    """Of what is stated of each output, where it lies and what of it there is; None: it is not seen to be that."""
    op: int | None = None
    """The number of the op that came nearest where nothing was seen to be equal."""
    reason: str = ""
    template: Template | None = None


class Calls:
    """Calls that were followed; programs of one model may share them.

    Args:
        reference: the model.

    Attributes:
        reference: the model.
        functions: how many calls were followed node by node.
    """

    def __init__(self, reference: Whole) -> None:
        self.reference = reference
        self.functions = 0
        self._followed: dict[Hashable, Call] = {}
        self._alike: dict[Hashable, list[Call]] = {}
        """By what is left of a call without its places."""
        self._wirings: dict[tuple[str, ...], tuple[Hashable, dict[Hashable, int]]] = {}
        self._functions: dict[Hashable, Function] = {}
        self._contents: dict[str, list[FunctionProto]] = {}

    def effect(
        self, function: FunctionProto, ops: tuple[str, ...], read: Sequence[Array], outputs: Sequence[Array]
    ) -> Call:
        """The effect of a call.

        Args:
            function: that is called.
            ops: of the model, parts of which it computes.
            read: its inputs.
            outputs: its outputs, with the claims that are stated of them.
        """
        if ops not in self._wirings:
            self._wirings[ops] = _wiring([self.reference.ops[name] for name in ops])
        wiring, known_numbers = self._wirings[ops]
        numbers = dict(known_numbers)
        content = self._content(function)
        claims = [held for _, held in (*read, *outputs) if isinstance(held, Claim)]
        signature = (
            content,
            wiring,
            tuple([_array_kind(array, numbers) for array in read]),
            tuple([_array_kind(array, numbers) for array in outputs]),
        )
        key = signature, tuple([(claim.lo, claim.partial) for claim in claims])
        if key not in self._followed:
            kind = signature, tuple([_kind_of_place(claim) for claim in claims[: len(claims) - len(outputs)]])
            alike = self._alike.setdefault(kind, [])
            call = _again(alike, claims)
            if call is None:
                call = self._follow(function, content, ops, read, outputs)
                if call.template is not None and len(alike) < _MOST_ALIKE:
                    alike.append(call)
            self._followed[key] = call
        return self._followed[key]

    def _follow(
        self,
        function: FunctionProto,
        content: Hashable,
        ops: Sequence[str],
        read: Sequence[Array],
        outputs: Sequence[Array],
        *,
        every_rule: bool = False,
    ) -> Call:
        """Follows a function node by node; if descriptions do not show an output, every local rule is tried, too."""
        self.functions += not every_rule
        stated = {
            name: held for name, (_, held) in zip(function.output, outputs, strict=True) if isinstance(held, Claim)
        }
        model_ops = [self.reference.ops[name] for name in ops]
        for number, model_op in enumerate(model_ops):
            if self.reference.descriptions.is_unknown(model_op.described_op):
                why = "its operator has no description, which would say what it computes"
                return Call((None,) * len(outputs), number, why)
        try:
            followed = self._function(function, content, read)
            proof = FunctionProof(followed, self.reference, model_ops, every_rule=every_rule)
            ends = proof.run(dict(zip(function.input, map(_value, read), strict=True)), stated)
        except UnprovenError as error:
            return Call((None,) * len(outputs), None, str(error))
        except (AssertionError, *MISFITS) as error:  # a node that no description expects: somebody else wrote it
            return Call((None,) * len(outputs), None, f"function {function.name}: {type(error).__name__}: {error}")
        tensors = followed.graph.tensors
        held: list[Claim | None] = []
        for name in function.output:
            same_shape = name in tensors and tensors[name].shape == stated[name].shape
            held.append(ends[name].claims.get(stated[name].tensor) if same_shape else None)
        claims = [claim for claim in held if claim is not None]
        spots = tuple([None if claim is None else (claim.lo, claim.partial) for claim in held])
        if len(claims) == len(held):
            is_plain = len({*function.input, *function.output}) == len(read) + len(outputs)
            return Call(spots, template=proof.template(claims) if is_plain else None)
        if not every_rule and any(op.described_op.description.local for op in model_ops):
            by_rule = self._follow(function, content, ops, read, outputs, every_rule=True)
            if None not in by_rule.outputs:
                return by_rule
        op, reason = None, "it is no part of an op of the model"
        if proof.failures:
            nearest, reason = proof.failures[0]
            op = None if nearest is None else ops.index(nearest.described_op.op.name)
        return Call(spots, op, reason)

    def _function(self, function: FunctionProto, content: Hashable, read: Sequence[Array]) -> Function:
        types = tuple((buffer.shape, buffer.dtype) for buffer, _ in read)
        held = [None if isinstance(entry, Claim) else entry for _, entry in read]
        key = content, types, tuple(held)
        if key not in self._functions:
            constants = {
                name: array_of(constant, buffer.shape, buffer.dtype)
                for name, constant, (buffer, _) in zip(function.input, held, read, strict=True)
                if constant is not None
            }
            self._functions[key] = read_function(function, types, constants, self.reference)
        return self._functions[key]

    def _content(self, function: FunctionProto) -> tuple[str, int]:
        """What tells functions apart: their names do not, in files that others have written."""
        protos = self._contents.setdefault(function.name, [])
        for place, proto in enumerate(protos):
            if proto is function or proto == function:
                return function.name, place
        protos.append(function)
        return function.name, len(protos) - 1


def is_at(spot: Spot, stated: Claim) -> bool:
    """Whether an array lies where it is stated to lie."""
    return all(lo is None or lo == stated_lo for lo, stated_lo in zip(spot[0], stated.lo, strict=True))


def _value(array: Array) -> Value:
    buffer, held = array
    if isinstance(held, Claim):
        return Value({held.tensor: held}, shape=buffer.shape)
    return Value({}, held, shape=buffer.shape)


def _wiring(ops: Sequence[ModelOp]) -> tuple[Hashable, dict[Hashable, int]]:
    """Kinds of ops, and what they read and make by number; the numbers."""
    numbers: dict[Hashable, int] = {}
    return tuple((op.kind, *(_number(name, numbers) for name in (*op.reads, *op.makes))) for op in ops), numbers


def _number(symbol: Hashable, numbers: dict[Hashable, int]) -> Hashable:
    return symbol if isinstance(symbol, Num | Literal) else numbers.setdefault(symbol, len(numbers))


def _array_kind(array: Array, numbers: dict[Hashable, int]) -> Hashable:
    """What is known of an array, wherever it lies."""
    buffer, held = array
    return _number(held.tensor if isinstance(held, Claim) else held, numbers), buffer.shape, buffer.dtype


def _kind_of_place(claim: Claim) -> Hashable:
    return tuple([lo is None for lo in claim.lo]), kind_of(claim.partial)


def _again(alike: Sequence[Call], claims: Sequence[Claim]) -> Call | None:
    """What a call is found to do by what was found of calls that are alike but for their places."""
    spots = [(claim.lo, claim.partial) for claim in claims]
    for call in alike:
        ends = call.template.again(spots) if call.template else None
        if ends is not None and all(map(is_at, ends, claims[len(claims) - len(ends) :])):
            return Call(tuple(ends))
    return None
