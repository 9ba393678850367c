"""Softmax, LogSoftmax, LayerNormalization, BatchNormalization: what normalises over a dim keeps that dim whole."""

from __future__ import annotations

from collections.abc import Sequence

from planner.graph.core.model import DType, Implied
from planner.opdefs.broadcast import aligned, normal_axis
from planner.tdl.builder import Ix, NodeView, Opaque, TensorArg, Val, call, op, over


@op("Softmax", "LogSoftmax", "Hardmax")
def softmax(node: NodeView, X: TensorArg) -> object:
    """Along axis; before opset 13 along all dims from axis on, as if they were one."""
    old = node.opset < 13
    axis = normal_axis(node.attribute("axis", 1 if old else -1), X.rank)
    together = range(axis, X.rank if old else axis + 1)

    def value(*i: Ix) -> Val:
        rows = X[tuple(slice(None) if dim in together else var for dim, var in enumerate(i))]
        return Opaque(node.op.op_type)(rows)[tuple(i[dim] for dim in together)]

    return value


@op("RMSNormalization")
def rms_normalization(node: NodeView, X: TensorArg, scale: TensorArg) -> object:
    """Divides by the root of the mean square over the dims from axis on."""
    axis = normal_axis(node.attribute("axis", -1), X.rank)

    def value(*i: Ix) -> Val:
        rows = X[(*i[:axis], *(slice(None) for _ in range(axis, X.rank)))]
        return Opaque("RMSNormalization")(rows, _learned(node, scale, i, axis))[i[axis:]]

    return value


def _layer_results(node: NodeView) -> Sequence[Implied | None]:
    """For models older than ONNX's own LayerNormalization."""
    shape = node.input_shape(0)
    axis = normal_axis(node.attribute("axis", -1), len(shape))
    statistic = ((*shape[:axis], *(1 for _ in shape[axis:])), DType.FLOAT32)
    return ((shape, None), statistic, statistic)


@op("LayerNormalization", results=_layer_results)
def layer_normalization(node: NodeView, X: TensorArg, scale: TensorArg, bias: TensorArg | None = None) -> object:
    """Normalises over the dims from axis on; also gives the mean and the inverse deviation, those dims of size 1."""
    axis = normal_axis(node.attribute("axis", -1), X.rank)

    def rows(i: tuple[Ix, ...]) -> Val:
        return X[(*i[:axis], *(slice(None) for _ in range(axis, X.rank)))]

    def normalised(*i: Ix) -> Val:
        learned = [_learned(node, tensor, i, axis) for tensor in (scale, bias) if tensor is not None]
        return Opaque("LayerNormalization")(rows(i), *learned)[i[axis:]]

    def statistic(name: str, *i: Ix) -> Val:
        return Opaque(name)(rows(i))[i[axis:]]

    leading = [f"i{dim}" for dim in range(axis)]
    single = [*leading, *(f"one{dim}" for dim in range(axis, X.rank))]
    return (
        normalised,
        over(single, lambda *i: statistic("Mean", *i)),
        over(single, lambda *i: statistic("InverseDeviation", *i)),
    )


def _learned(node: NodeView, tensor: TensorArg, i: tuple[Ix, ...], axis: int) -> Val:
    """Scale or bias: whole along the normalised dims; along others (it may have some) it broadcasts."""
    first = len(i) - tensor.rank
    where = aligned(node, tensor, i) if first < axis else ()
    return tensor[tuple(where[dim] if first + dim < axis else slice(None) for dim in range(tensor.rank))]


@op("BatchNormalization")
def batch_normalization(
    node: NodeView, X: TensorArg, scale: TensorArg, bias: TensorArg, mean: TensorArg, variance: TensorArg
) -> object:
    """At inference element-wise, with four numbers for each channel.

    In training mode the statistics are of the whole batch, so that it can be cut along the channels only; a
    training graph writes it as reductions instead.
    """
    if not node.attribute("training_mode", 0):
        return lambda b, c, *y: call("BatchNormalization", X[(b, c, *y)], scale[c], bias[c], mean[c], variance[c])

    def normalised(b: Ix, c: Ix, *y: Ix) -> Val:
        batch = X[(slice(None), c, *(slice(None) for _ in y))]
        return Opaque("BatchNormalization")(batch, scale[c], bias[c])[(b, *y)]

    def running(c: Ix, old: TensorArg) -> Val:
        batch = X[(slice(None), c, *(slice(None) for _ in range(X.rank - 2)))]
        return Opaque("BatchStatistic")(batch, old[c])[()]

    return normalised, (lambda c: running(c, mean)), (lambda c: running(c, variance))
