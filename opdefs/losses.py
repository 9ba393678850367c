"""SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss: samples and positions are independent, classes are not."""

from __future__ import annotations

from planner.opdefs.parts import filled, output_dtype
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, op
from planner.tdl.local import LocalNode, LocalOp, Part, same_op


def loss_local(node: NodeView, part: Part) -> LocalOp:
    """The same op; but a mean of a part of the samples is their sum over the count of all."""
    is_whole = all(part.ranges[name] == (0, part.extents[name]) for name in part.reduction_variables)
    if node.attribute("reduction", "mean") != "mean" or is_whole:
        return same_op(node, part)
    count = 1
    for name in part.reduction_variables:
        count *= part.extents[name]
    local = same_op(node, part, attributes={"reduction": "sum"})
    loss = local.nodes[0]
    return LocalOp(
        (
            LocalNode(loss.op_type, loss.inputs, ("sum", *loss.outputs[1:]), loss.attributes),
            LocalNode("Mul", ("sum", "share"), ("out0",)),
        ),
        {**local.constants, "share": filled(output_dtype(node), 1.0 / count, ())},
    )


@op("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss", local=loss_local)
def loss(node: NodeView, scores: TensorArg, labels: TensorArg, weights: TensorArg | None = None) -> object:
    """The loss of each label, by itself, summed, or their mean.

    A mean with weights, or with labels that are ignored, divides by what the labels weigh in all: then no partial
    result can be joined, and the samples stay together.
    """
    reduction = node.attribute("reduction", "mean")
    weighted = weights is not None or node.attribute("ignore_index") is not None

    def single(b: Ix | slice, *y: Ix | slice) -> list[Val]:
        read = [scores[(b, slice(None), *y)], labels[(b, *y)]]
        return read if weights is None else [*read, weights[:]]

    def label_loss(b: Ix, *y: Ix) -> Val:
        return Opaque(node.op.op_type)(*single(b, *y))[()]

    def total() -> Val:
        if reduction == "mean" and weighted:
            return Opaque(node.op.op_type)(*single(*(slice(None) for _ in range(labels.rank))))[()]
        return Sum(label_loss, count=labels.rank)

    def log_probability(b: Ix, c: Ix, *y: Ix) -> Val:
        return Opaque("LogSoftmax")(scores[(b, slice(None), *y)])[c]

    def all_log_probabilities(sample: Ix, c: Ix, *position: Ix) -> Val:
        # The loss is of all samples, so this output cannot be of some of them.
        return Opaque("LogSoftmax")(scores[tuple(slice(None) for _ in range(scores.rank))])[(sample, c, *position)]

    return (label_loss, log_probability) if reduction == "none" else (total, all_log_probabilities)
