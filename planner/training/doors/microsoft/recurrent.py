"""Recurrent operators of com.microsoft, unrolled, and their gradients: those of the steps that they are unrolled into.

onnxruntime-training puts LSTMTraining and GRUTraining in the place of LSTM and GRU: beside the states they hand on what
their gradient operators read (cell states, gates). Here the gradient goes back through the steps, and the gates only
say to which forward op a gradient operator belongs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.graph.core.attributes import refuse
from planner.graph.core.dependence import live_ops
from planner.graph.core.model import Op
from planner.graph.decompositions.registry import Purpose, stands_for
from planner.training import rules
from planner.training.doors.rewriting import Rewriting, Unrolled
from planner.training.gradients.autodiff import gradients_for
from planner.training.gradients.expand import expand_op

_LENGTHS: Final = 4
"""The operand ``sequence_lens``, which has no gradient."""
_GATES: Final = {"GRU": 2, "LSTM": 4}
"""The output from which on outputs are for the gradient operator alone."""


@stands_for("com.microsoft.GRUTraining", "com.microsoft.LSTMTraining", purpose=Purpose.ARTIFACTS)
def forward(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The standard operator, unrolled."""
    operands: list[str] = []
    for name in op.inputs:
        # One tensor may be two operands (a zero for both initial states): each has a gradient of its own.
        while name and name in operands:
            name = emit.unary("Identity", name)
        operands.append(name)
    op_type = op.op_type.removesuffix("Training")
    outputs = expand_op(emit, replace(op, op_type=op_type, domain="", inputs=tuple(operands)), emit.opset)
    for gates in op.outputs[_GATES[op_type] :][:1]:
        # An earlier recurrent op may have emitted some of them.
        way = live_ops(emit.ops, outputs, operands)
        emit.unrolled[gates] = Unrolled(tuple(operands), outputs, way)
    return outputs


@stands_for("com.microsoft.GRUGrad", "com.microsoft.LSTMGrad", purpose=Purpose.ARTIFACTS)
def gradient(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradient of each forward operand but ``sequence_lens``.

    They are made from (forward operands, states and gates, gradients of all hidden states and of each last state).
    """
    at = next((at for at, name in enumerate(op.inputs) if name in emit.unrolled), None)
    if at is None:
        raise refuse(op, "the op whose gradient it is, or that op's output of gates, is not in the model")
    unrolled = emit.unrolled[op.inputs[at]]
    seeds = {y: dy for y, dy in zip(unrolled.outputs, op.inputs[at + 1 :], strict=False) if y and dy}
    operands = [name for position, name in enumerate(unrolled.operands) if position != _LENGTHS]
    targets = [name if output else "" for name, output in zip(operands, op.outputs, strict=False)]
    return gradients_for(emit, op, unrolled.ops, seeds, targets, rules=rules.standard(), saved={})
