"""Recurrent operators of com.microsoft, unrolled, and their gradients: those of the steps that they are unrolled into.

onnxruntime-training puts LSTMTraining and GRUTraining in the place of LSTM and GRU: beside the states they hand on what
their gradient operators read (cell states, gates). Here the gradient goes back through the steps, and the gates only
say to which forward op a gradient operator belongs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from planner.errors import UnsupportedError
from planner.graph.core.attributes import label, refuse
from planner.graph.core.dependence import live_ops
from planner.graph.core.model import Op
from planner.training import rules
from planner.training.doors.walk import Lowering, Unrolled, Walk
from planner.training.gradients.autodiff import backward
from planner.training.gradients.expand import expand_op

_LENGTHS: Final = 4
"""The operand ``sequence_lens``, which has no gradient."""


def _forward(op_type: str, gates: int) -> Lowering:
    """As the standard operator; output ``gates`` and those beside it are for the gradient operator alone."""

    def lowering(walk: Walk, op: Op) -> tuple[str, ...]:
        operands: list[str] = []
        for name in op.inputs:
            # One tensor may be two operands (a zero for both initial states): each has a gradient of its own.
            while name and name in operands:
                name = walk.builder.unary("Identity", name)
            operands.append(name)
        standard = replace(op, op_type=op_type, domain="", inputs=tuple(operands))
        outputs = expand_op(walk.builder, standard, walk.opset)
        if len(op.outputs) > gates:
            # An earlier recurrent op may have emitted some of them.
            way = live_ops(walk.builder.ops, outputs, operands)
            walk.unrolled[op.outputs[gates]] = Unrolled(tuple(operands), outputs, way)
        return outputs

    return lowering


def _gradient(walk: Walk, op: Op) -> tuple[str, ...]:
    """From (forward operands, its states and gates, gradients of all hidden states and of each last state).

    Gives a gradient for each forward operand but ``sequence_lens``.
    """
    emit = walk.builder
    at = next((at for at, name in enumerate(op.inputs) if name in walk.unrolled), None)
    if at is None:
        raise refuse(op, "the op whose gradient it is, or that op's output of gates, is not in the model")
    unrolled = walk.unrolled[op.inputs[at]]
    seeds = {y: dy for y, dy in zip(unrolled.outputs, op.inputs[at + 1 :], strict=False) if y and dy}
    operands = [name for position, name in enumerate(unrolled.operands) if position != _LENGTHS]
    targets = [name if output else "" for name, output in zip(operands, op.outputs, strict=False)]
    wanted = [name for name in targets if name]
    gradients: dict[str, str] = {}
    try:
        backward(emit, unrolled.ops, seeds, wanted, rules=rules.standard(), saved={}, ready=gradients.__setitem__)
    except UnsupportedError as error:
        raise UnsupportedError(f"{label(op)}: {error.what}: {'; '.join(error.facts)}") from None
    return tuple(name and (gradients.get(name) or emit.zeros(emit.shape(name), name)) for name in targets)


LOWERINGS: Final[Mapping[str, Lowering]] = MappingProxyType(
    {
        "GRUGrad": _gradient,
        "GRUTraining": _forward("GRU", gates=2),
        "LSTMGrad": _gradient,
        "LSTMTraining": _forward("LSTM", gates=4),
    }
)
"""By operator."""
