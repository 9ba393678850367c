"""Losses by labels as com.microsoft has them, forward and backward."""

from __future__ import annotations

from dataclasses import replace

from planner.graph.core.attributes import text
from planner.graph.core.model import Op
from planner.graph.decompositions.gradient.labelled import labelled
from planner.graph.decompositions.registry import Purpose, stands_for
from planner.training.doors.rewriting import Rewriting
from planner.training.gradients.expand import expand_op


def _ignored(emit: Rewriting, op: Op, slot: int) -> int | None:
    """The label that counts for nothing, which an operand or an attribute says; None where there is none."""
    index = op.attribute("ignore_index")
    assert index is None or isinstance(index, int), "it is a label"
    return int(emit.known(op, slot, "ignore_index").item()) if op.has_input(slot) else index


@stands_for(
    "com.microsoft.SoftmaxCrossEntropyLossGrad", "com.microsoft.SoftmaxCrossEntropyLossInternalGrad",
    purpose=Purpose.ARTIFACTS,
)  # fmt: skip
def gradient(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradient of the scores from (GO, log-probabilities, labels, weights, ignore_index).

    Most models are written with -1 or -100 for "none": no label is negative, so nothing is ignored then.
    """
    dy, log_p, labels = op.inputs[:3]
    weights = op.inputs[3] if op.has_input(3) else None
    beside = labelled(emit, log_p, labels, weights, _ignored(emit, op, 4))
    return (beside.logits_gradient(beside.per_position(dy, text(op, "reduction", "mean"))),)


@stands_for("SoftmaxCrossEntropyLoss", "com.microsoft.SoftmaxCrossEntropyLossInternal", purpose=Purpose.ARTIFACTS)
def forward(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """SoftmaxCrossEntropyLoss of ONNX; the label that counts for nothing may be an operand."""
    index = _ignored(emit, op, 3)
    ignored = () if index is None else (("ignore_index", index),)
    attributes = (*ignored, *(item for item in op.attributes if item[0] == "reduction"))
    op = replace(op, op_type="SoftmaxCrossEntropyLoss", domain="", inputs=op.inputs[:3], attributes=attributes)
    return expand_op(emit, op, emit.opset)
