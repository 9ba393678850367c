"""Losses: from the model's output and a target to a scalar, and its gradient with respect to the output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from planner.errors import UnsupportedError, UsageError
from planner.graph.core.builder import Builder
from planner.graph.core.model import DType
from planner.graph.decompositions.gradient.labelled import Labelled, labelled
from planner.options.training import LabelOptions
from planner.training.update.registry import choose

OUTPUT_PREFIX: Final = "output:"
"""``output:NAME``: the model's own output NAME is the loss."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss in a graph."""

    value: str
    """The scalar; times ``weight``, where there is one."""
    gradient: str
    """The gradient of the scalar with respect to the model's output."""
    targets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """New data inputs that it compares with, and how sample data of each is drawn (see ``build.INPUTS``)."""
    own_targets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """The same of inputs that the model has already."""
    weight: str | None = None
    """What scalar and gradient have yet to be divided by: a scalar, to be summed as they are. None: nothing."""


LossFunction: TypeAlias = Callable[[Builder, str, LabelOptions, bool], Loss]
"""From the output, the settled options of labels, and whether a weighted mean is left undivided, since the weights are
summed over micro-batches."""


def softmax_cross_entropy(builder: Builder, logits: str, options: LabelOptions, apart: bool) -> Loss:
    """-w[label] log softmax(logits)[label], the weighted mean over samples and positions.

    logits: the C classes along ``options.class_axis``; the new input ``labels``: int64 of the other dims' sizes,
    0 <= label < C or ``ignore_index``. With p = softmax(logits), the one-hot form t of the labels and n positions, the
    gradient without weights is (p - t)/n (ONNX SoftmaxCrossEntropyLoss, reduction "mean").

    Raises:
        UnsupportedError: the output is no float tensor with a dim for the classes.
        UsageError: there are not as many class weights as classes.
    """
    _check_classes("softmax_cross_entropy", builder, logits)
    labels = _labels(builder, logits, options)
    with builder.scope("loss"):
        attributes = {"axis": labels.axis}
        log_p = builder.one("LogSoftmax", [logits], builder.shape(logits), builder.dtype(logits), attributes=attributes)
        beside = _beside(builder, log_p, labels, options)
    return _weighted(beside, labels, apart, beside.logits_gradient)


def nll(builder: Builder, log_p: str, options: LabelOptions, apart: bool) -> Loss:
    """-w[label] log_p[label], the weighted mean over samples and positions (ONNX NegativeLogLikelihoodLoss).

    log_p: what a LogSoftmax makes; classes and the new input ``labels`` as for ``softmax_cross_entropy``. The gradient
    is -w[label] / Σ w at the label, 0 elsewhere.

    Raises:
        UnsupportedError: the output is no float tensor with a dim for the classes.
        UsageError: there are not as many class weights as classes.
    """
    _check_classes("nll", builder, log_p)
    labels = _labels(builder, log_p, options)
    with builder.scope("loss"):
        beside = _beside(builder, log_p, labels, options)
    return _weighted(beside, labels, apart, beside.log_p_gradient)


BY_LABELS: Final[tuple[LossFunction, ...]] = (softmax_cross_entropy, nll)
"""The losses that look labels up along a dim of classes."""


@dataclass(frozen=True, slots=True)
class _Labels:
    """Labels beside an output."""

    name: str
    axis: int
    """The output's dim of classes."""
    targets: Mapping[str, Mapping[str, object]]
    own_targets: Mapping[str, Mapping[str, object]]
    counted: np.ndarray | None = None
    """See ``labelled.Labelled``."""


def _labels(builder: Builder, output: str, options: LabelOptions) -> _Labels:
    shape, axis = builder.shape(output), 1 if options.class_axis is None else options.class_axis
    positions = (*shape[:axis], *shape[axis + 1 :])
    rule: dict[str, object] = {"integers_below": shape[axis], "labels": True}
    if options.ignore_index is not None:
        rule["ignored"] = options.ignore_index
    if options.tokens is None:
        labels = builder.declare("labels", positions, DType.INT64)
        return _Labels(labels, axis, {labels: rule}, {})
    assert builder.shape(options.tokens) == positions, "next_token looked"
    with builder.scope("loss"):
        # As many positions as before, so that the output is read as it is; the last one's label is no class.
        behind = [0] * (len(positions) - 1)
        following = builder.pad(options.tokens, [*behind, -1], [*behind, 1], -1)
    counted = np.ones(positions[-1])
    counted[-1] = 0.0
    counted = np.expand_dims(counted.reshape(*(1 for _ in behind), -1), axis)
    return _Labels(following, axis, {}, {options.tokens: rule | {"next": True}}, counted)


def _check_classes(loss: str, builder: Builder, output: str) -> None:
    if builder.rank(output) < 2 or not builder.dtype(output).is_float or not math.prod(builder.shape(output)):
        raise _unfit(loss, builder, output, "a float tensor with a dim of samples and one of classes")


def _beside(builder: Builder, log_p: str, labels: _Labels, options: LabelOptions) -> Labelled:
    weights = None
    if options.class_weights is not None:
        classes = builder.shape(log_p)[labels.axis]
        if len(options.class_weights) != classes:
            raise UsageError(
                f"there are {len(options.class_weights)} class weights for {classes} classes",
                hint=f"write --class-weights with {classes} numbers, for the classes from 0 to {classes - 1}",
            )
        array = np.array(options.class_weights).astype(builder.dtype(log_p).array_dtype)
        weights = builder.constant(array, "class_weights")
    return labelled(
        builder, log_p, labels.name, weights, options.ignore_index, axis=labels.axis, counted=labels.counted
    )


def _weighted(beside: Labelled, labels: _Labels, apart: bool, gradient_by: Callable[[str | None], str]) -> Loss:
    """The weighted mean, and its gradient: with one division, or with none and the weight to divide by later.

    Args:
        beside: log-probabilities beside labels.
        labels: the same labels.
        apart: whether the weight is left undivided.
        gradient_by: from what each position counts to the gradient.
    """
    builder = beside.emit
    if not apart or beside.counts_all:
        with builder.scope("loss"):
            value = beside.mean()
        with builder.scope("loss.backward"):
            gradient = gradient_by(beside.per_position(None, "mean"))
        return Loss(value, gradient, labels.targets, labels.own_targets)
    # All by the number of positions, so that sums of 16 bits do not overflow.
    with builder.scope("loss"):
        value = builder.scale(beside.sum(), 1.0 / beside.positions)
    with builder.scope("loss.backward"):
        gradient = gradient_by(beside.equal_share())
        weight = builder.scale(beside.total_weight(), 1.0 / beside.positions, "weight")
    return Loss(value, gradient, labels.targets, labels.own_targets, weight)


def _elementwise(
    name: str, per_element: Callable[[Builder, str, str], tuple[str, str]], sample: Mapping[str, object]
) -> LossFunction:
    """The mean over all elements of a function of output and target; it gives value and slope of each."""

    def loss(builder: Builder, output: str, options: LabelOptions, apart: bool) -> Loss:
        shape, dtype = builder.shape(output), builder.dtype(output)
        if options.named():
            raise UsageError(
                f"the loss {name!r} has no labels, so it takes no {' or '.join(options.named())}",
                hint="leave that out, or take a loss by labels: --loss softmax_cross_entropy or nll",
            )
        if not dtype.is_float or not math.prod(shape):
            raise _unfit(name, builder, output, "a float tensor that is not empty")
        target = builder.declare("target", shape, dtype)
        share = 1.0 / math.prod(shape)
        with builder.scope("loss"):
            values, slopes = per_element(builder, output, target)
            value = builder.scale(builder.reduce_sum(values, range(len(shape))), share)
        with builder.scope("loss.backward"):
            gradient = builder.scale(slopes, share)
        return Loss(value, gradient, {target: sample})

    loss.__doc__ = per_element.__doc__
    return loss


def _square(builder: Builder, output: str, target: str) -> tuple[str, str]:
    """(output - target)²; the slope is 2 (output - target)."""
    difference = builder.sub(output, target, "difference")
    return builder.mul(difference, difference, "square"), builder.scale(difference, 2.0)


def _absolute(builder: Builder, output: str, target: str) -> tuple[str, str]:
    """|output - target|; the slope is its sign, 0 at 0."""
    difference = builder.sub(output, target, "difference")
    return builder.unary("Abs", difference), builder.unary("Sign", difference)


def _binary(builder: Builder, output: str, target: str) -> tuple[str, str]:
    """Binary cross entropy of sigmoid(output), targets from 0 to 1: max(x, 0) - x t + ln(1 + e^-|x|).

    The slope is sigmoid(x) - t. This form does not overflow (PyTorch BCEWithLogitsLoss).
    """
    zero = builder.scalar(0.0, output)
    above = builder.binary("Max", output, zero)
    tail = builder.unary("Softplus", builder.unary("Neg", builder.unary("Abs", output)))
    values = builder.add(builder.sub(above, builder.mul(output, target)), tail)
    return values, builder.sub(builder.unary("Sigmoid", output), target)


mse: Final = _elementwise("mse", _square, {"normal": True, "target": "what the output should be"})
l1: Final = _elementwise("l1", _absolute, {"normal": True, "target": "what the output should be"})
bce_with_logits: Final = _elementwise(
    "bce_with_logits", _binary, {"integers_below": 2, "target": "what the output's sigmoid should be, from 0 to 1"}
)


def own_output(builder: Builder, output: str, options: LabelOptions, apart: bool) -> Loss:
    """The output is the loss already: its gradient is 1.

    Raises:
        UnsupportedError: it is no float of one element.
    """
    if options.named():
        raise UsageError(
            f"a loss of the model's own takes nothing that is said of labels: {', '.join(options.named())}"
        )
    if builder.tensors[output].elements != 1 or not builder.dtype(output).is_float:
        raise _unfit("a loss of the model's own", builder, output, "a float of one element")
    ones = np.ones(builder.shape(output), builder.dtype(output).array_dtype)
    return Loss(output, builder.constant(ones, "constant.1"))


def _unfit(loss: str, builder: Builder, output: str, wanted: str) -> UnsupportedError:
    tensor = builder.tensors[output]
    return UnsupportedError(f"{loss} takes {wanted}; output {output!r} is {list(tensor.shape)} of {tensor.dtype.value}")


LOSSES: Final[Mapping[str, LossFunction]] = MappingProxyType(
    {
        "softmax_cross_entropy": softmax_cross_entropy,
        "nll": nll,
        "mse": mse,
        "l1": l1,
        "bce_with_logits": bce_with_logits,
    }
)
"""By the names that ``--loss`` takes; besides, ``output:NAME``."""


def loss_function(name: str) -> LossFunction:
    """The loss of this name.

    Raises:
        UsageError: there is none.
    """
    return own_output if name.startswith(OUTPUT_PREFIX) else choose("loss", name, LOSSES)
