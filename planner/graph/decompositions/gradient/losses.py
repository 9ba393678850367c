"""Losses by labels, which a gradient rule of their own would say twice.

Their bodies in parts compare each label with all classes, so that classes can be split. A gradient takes a lookup: the
comparison would be three more passes over all scores.
"""

from __future__ import annotations

from planner.graph.core.attributes import integer, text
from planner.graph.core.builder import Builder
from planner.graph.core.model import Op
from planner.graph.decompositions.gradient.labelled import labelled
from planner.graph.decompositions.registry import Purpose, stands_for


@stands_for("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", purpose=Purpose.GRADIENT)
def cross_entropy(builder: Builder, op: Op) -> tuple[str, ...]:
    """SoftmaxCrossEntropyLoss is NegativeLogLikelihoodLoss of LogSoftmax along dim 1; it can give that, too."""
    scores, labels, *optional = op.inputs
    shape, dtype = builder.shape(scores), builder.dtype(scores)
    softmax = op.op_type == "SoftmaxCrossEntropyLoss"
    log_p = builder.one("LogSoftmax", [scores], shape, dtype, attributes={"axis": 1}) if softmax else scores
    ignored = op.attribute("ignore_index")
    weights = optional[0] if optional and optional[0] else None
    beside = labelled(builder, log_p, labels, weights, integer(op, "ignore_index", 0) if ignored is not None else None)
    match text(op, "reduction", "mean"):
        case "none":
            return beside.values(), log_p
        case "sum":
            return beside.sum(), log_p
        case _:
            return beside.mean(), log_p
