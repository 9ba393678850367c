"""RNN, GRU and LSTM unrolled over time: ONNX's operators give only their last cell state, and no gradient's way back.

Formulas and gate orders are those of ONNX's operator specifications. What does not depend on the step before (the
inputs' product with W, and the biases) is computed for all steps at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from planner.graph.core.attributes import integer, number, refuse, text
from planner.graph.core.builder import Builder
from planner.graph.core.model import Op
from planner.graph.core.traits import RECURRENT
from planner.graph.decompositions.registry import Purpose, stands_for

_ACTIVATIONS: Final[Mapping[str, tuple[float, ...]]] = {
    **dict.fromkeys(("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"), ()),
    "Affine": (0.0, 0.0),
    "Elu": (1.0,),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01,),
    "ScaledTanh": (0.0, 0.0),
    "ThresholdedRelu": (1.0,),
}
"""Activations with alpha, or alpha and beta, and their defaults; where ONNX states none, ONNX Runtime takes 0."""

Cell: TypeAlias = Callable[["Direction", str, tuple[str, ...]], tuple[str, ...]]
"""One step: from the step's share of X Wᵀ + biases and the state before, to the state after (hidden state first)."""


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of a gate."""

    name: str
    numbers: tuple[float, ...] = ()
    """Alpha, or alpha and beta."""

    def emit(self, emit: Builder, x: str) -> str:
        """The function of x."""
        match self.name:
            case "Affine":
                alpha, beta = self.numbers
                return emit.add(emit.scale(x, alpha), emit.scalar(beta, x)) if beta else emit.scale(x, alpha)
            case "ScaledTanh":
                alpha, beta = self.numbers
                return emit.scale(emit.unary("Tanh", emit.scale(x, beta)), alpha)
        stated = dict(zip(("alpha", "beta"), self.numbers, strict=False))
        return emit.one(self.name, [x], emit.shape(x), emit.dtype(x), attributes=stated)


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a recurrent op."""

    emit: Builder
    op: Op
    hidden: int
    recurrence: str
    """Rᵀ, [H, gates*H]."""
    recurrence_bias: str | None
    """[gates*H], where it is not added with the inputs' (GRU's)."""
    peepholes: str | None
    """[3*H] of LSTM."""
    activations: tuple[Activation, ...]

    def parts(self, x: str, *gates: int) -> tuple[str, ...]:
        """Parts of so many gates each, of the last dim."""
        return self.emit.split(x, [count * self.hidden for count in gates], self.emit.rank(x) - 1)

    def act(self, index: int, x: str) -> str:
        """Activation ``index`` of what is clipped first, if the op says so."""
        clip = number(self.op, "clip", 0.0)
        if clip:
            bounds = [self.emit.scalar(-clip, x), self.emit.scalar(clip, x)]
            x = self.emit.one("Clip", [x, *bounds], self.emit.shape(x), self.emit.dtype(x))
        return self.activations[index].emit(self.emit, x)


@stands_for("RNN", purpose=Purpose.GRADIENT)
def rnn(emit: Builder, op: Op) -> tuple[str, ...]:
    """H_t = f(X_t Wᵀ + H_(t-1) Rᵀ + Wb + Rb)."""

    def cell(way: Direction, share: str, state: tuple[str, ...]) -> tuple[str, ...]:
        return (way.act(0, emit.add(share, emit.matmul(state[0], way.recurrence))),)

    return _unroll(emit, op, states=1, cell=cell)


@stands_for("GRU", purpose=Purpose.GRADIENT)
def gru(emit: Builder, op: Op) -> tuple[str, ...]:
    """z, r = f(X Wᵀ + H Rᵀ + Wb + Rb); h = g(X Whᵀ + (r H) Rhᵀ + Rbh + Wbh); H_t = (1 - z) h + z H.

    With linear_before_reset, h = g(X Whᵀ + r (H Rhᵀ + Rbh) + Wbh).
    """
    before_reset = bool(integer(op, "linear_before_reset", 0))

    def cell(way: Direction, share: str, state: tuple[str, ...]) -> tuple[str, ...]:
        (before,) = state
        (share_zr, share_h), (recurrence_zr, recurrence_h) = way.parts(share, 2, 1), way.parts(way.recurrence, 2, 1)
        gates = emit.add(share_zr, emit.matmul(before, recurrence_zr))
        bias_h = None
        if way.recurrence_bias is not None:
            bias_zr, bias_h = way.parts(way.recurrence_bias, 2, 1)
            gates = emit.add(gates, bias_zr)
        z, r = (way.act(0, gate) for gate in way.parts(gates, 1, 1))
        inner = emit.matmul(before if before_reset else emit.mul(r, before), recurrence_h)
        if bias_h is not None:
            inner = emit.add(inner, bias_h)
        h = way.act(1, emit.add(share_h, emit.mul(r, inner) if before_reset else inner))
        complement = emit.sub(emit.scalar(1.0, z), z)
        return (emit.add(emit.mul(complement, h), emit.mul(z, before)),)

    return _unroll(emit, op, states=1, cell=cell)


@stands_for("LSTM", purpose=Purpose.GRADIENT)
def lstm(emit: Builder, op: Op) -> tuple[str, ...]:
    """i, o, f = f(X Wᵀ + H Rᵀ + P C + Wb + Rb), c = g(...); C_t = f C + i c; H_t = o h(C_t).

    P are peepholes; o looks at C_t. With input_forget, f = 1 - i.
    """
    coupled = bool(integer(op, "input_forget", 0))

    def cell(way: Direction, share: str, state: tuple[str, ...]) -> tuple[str, ...]:
        hidden, memory = state
        gates = emit.add(share, emit.matmul(hidden, way.recurrence))
        i, o, f, c = way.parts(gates, 1, 1, 1, 1)
        peep = (None, None, None) if way.peepholes is None else way.parts(way.peepholes, 1, 1, 1)

        def seen(gate: str, weights: str | None, looked_at: str) -> str:
            return gate if weights is None else emit.add(gate, emit.mul(weights, looked_at))

        i = way.act(0, seen(i, peep[0], memory))
        f = emit.sub(emit.scalar(1.0, i), i) if coupled else way.act(0, seen(f, peep[2], memory))
        following = emit.add(emit.mul(f, memory), emit.mul(i, way.act(1, c)))
        o = way.act(0, seen(o, peep[1], following))
        return emit.mul(o, way.activations[2].emit(emit, following)), following

    return _unroll(emit, op, states=2, cell=cell)


def _activations(op: Op, directions: int) -> list[tuple[Activation, ...]]:
    """The activations of each direction; those with a number take theirs from activation_alpha and _beta."""
    defaults = RECURRENT[op.op_type].activations
    stated = op.attribute("activations") or defaults * directions
    assert isinstance(stated, tuple), "the schema was checked"
    spellings = {name.lower(): name for name in _ACTIVATIONS}
    parameters = [_numbers(op, "activation_alpha"), _numbers(op, "activation_beta")]
    activations: list[Activation] = []
    for wanted in stated:
        name = spellings.get(str(wanted).lower())
        if name is None:
            raise refuse(op, f"its activation {wanted!r} is not one of ONNX's: {', '.join(sorted(spellings.values()))}")
        constants = _ACTIVATIONS[name]
        numbers = (queue.pop(0) if queue else default for queue, default in zip(parameters, constants, strict=False))
        activations.append(Activation(name, tuple(numbers)))
    count = len(defaults)
    return [tuple(activations[start : start + count]) for start in range(0, directions * count, count)]


def _numbers(op: Op, name: str) -> list[float]:
    value = op.attribute(name) or ()
    assert isinstance(value, tuple), "the schema was checked"
    return [float(item) for item in value]


def _unroll(emit: Builder, op: Op, *, states: int, cell: Cell) -> tuple[str, ...]:
    gates = RECURRENT[op.op_type].gates
    operands = [*op.inputs, *([""] * 8)]
    x, w, r, b, lengths, first_h, first_c, peepholes = operands[:8]
    batch_first = bool(integer(op, "layout", 0))
    if batch_first:
        x = emit.transpose(x, [1, 0, 2])
    steps, batch, _ = emit.shape(x)
    directions, _, hidden = emit.shape(r)
    ways = {"forward": [False], "reverse": [True]}.get(text(op, "direction", "forward"), [False, True])
    activations = _activations(op, directions)
    masks = _masks(emit, lengths, steps, batch)
    outputs: list[list[str]] = []
    last: list[list[str]] = [[] for _ in range(states)]
    starts = [emit.transpose(name, [1, 0, 2]) if name and batch_first else name for name in (first_h, first_c)[:states]]
    of_directions = [_by_direction(emit, name, directions) for name in (w, r, b, peepholes, *starts)]
    for index, backwards in enumerate(ways):
        kernel, recurrence, bias, peep, *before = (tensors[index] for tensors in of_directions)
        assert kernel is not None, "W is required"
        assert recurrence is not None, "R is required"
        # The input's share of the gates is one product for all time steps, with every bias that can be added ahead: a
        # GRU's reset gate may multiply the state's bias, so that one waits for the time step.
        share = emit.matmul(x, emit.transpose(kernel, [1, 0]))
        recurrence_bias = None
        if bias is not None and gates == 3:
            of_input, recurrence_bias = emit.split(bias, [gates * hidden] * 2, 0)
            share = emit.add(share, of_input)
        elif bias is not None:
            share = emit.add(share, emit.reduce_sum(emit.reshape(bias, (2, gates * hidden)), [0]))
        shares = emit.split(share, [1] * steps, 0)
        way = Direction(emit, op, hidden, emit.transpose(recurrence, [1, 0]), recurrence_bias, peep, activations[index])
        state = tuple(name or emit.zeros((batch, hidden), x) for name in before)
        sequence: list[str] = [""] * steps
        for step in reversed(range(steps)) if backwards else range(steps):
            with emit.scope(f"{op.name}.{'reverse' if backwards else 'forward'}.{step}"):
                following = cell(way, emit.squeeze(shares[step], [0]), state)
                sequence[step] = following[0]
                if masks is not None:
                    sequence[step] = emit.where(masks[step], following[0], emit.scalar(0.0, x))
                    following = tuple(
                        emit.where(masks[step], later, earlier) for later, earlier in zip(following, state, strict=True)
                    )
                state = following
        outputs.append(sequence)
        for parts, value, start in zip(last, state, before, strict=True):
            # Of an empty sequence the runtime makes zeros, whatever it starts from.
            parts.append(emit.where(masks[0], value, emit.scalar(0.0, x)) if masks and start else value)
    at = 2 if batch_first else 1
    y = ""
    if op.outputs[0]:
        per_direction = [
            emit.concat([emit.unsqueeze(name, [1 if batch_first else 0]) for name in sequence], 1 if batch_first else 0)
            for sequence in outputs
        ]
        y = emit.concat([emit.unsqueeze(name, [at]) for name in per_direction], at)
    axis = 1 if batch_first else 0
    finals = [emit.concat([emit.unsqueeze(name, [axis]) for name in parts], axis) for parts in last]
    return (y, *finals)


def _by_direction(emit: Builder, name: str, count: int) -> Sequence[str | None]:
    """Each direction's share of a tensor whose dim 0 is directions; None where there is no tensor."""
    return [emit.squeeze(part, [0]) for part in emit.split(name, [1] * count, 0)] if name else [None] * count


def _masks(emit: Builder, lengths: str, steps: int, batch: int) -> list[str] | None:
    """For each step, which samples have not ended, [batch, 1]; None where none ends early."""
    if not lengths:
        return None
    value = emit.value(lengths)
    if value is not None and bool((value >= steps).all()):
        return None
    column = emit.reshape(lengths, (batch, 1))
    dtype = np.int32 if emit.dtype(lengths).value == "int32" else np.int64
    return [
        emit.compare("Greater", column, emit.constant(np.array(step, dtype), f"int.{step}")) for step in range(steps)
    ]
