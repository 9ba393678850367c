"""Losses: from the model's output and a target to a scalar, and its gradient with respect to the output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from planner.errors import UnsupportedError
from planner.graph.model import DType
from planner.training.builder import Builder
from planner.training.registry import choose


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss in a graph."""

    value: str
    """The scalar."""
    gradient: str
    """The gradient of the scalar with respect to the model's output."""
    target: str
    """The new data input that it compares with."""
    sample: Mapping[str, object]
    """How sample data of the target is drawn (see ``build.INPUTS``)."""


LossFunction: TypeAlias = Callable[[Builder, str], Loss]


def softmax_cross_entropy(builder: Builder, logits: str) -> Loss:
    """-log softmax(logits)[label], the mean over samples and positions.

    logits: [N, C, ...]; the new input ``labels``: int64 [N, ...], 0 <= label < C. With p = softmax(logits) and the
    one-hot form t of the labels, the gradient is (p - t)/n (ONNX SoftmaxCrossEntropyLoss, reduction "mean").

    Raises:
        UnsupportedError: the output is no float tensor [N, C, ...].
    """
    shape = builder.shape(logits)
    if len(shape) < 2 or not builder.dtype(logits).is_float:
        raise _unfit("softmax_cross_entropy", builder, logits, "a float tensor [N, C, ...]")
    classes = shape[1]
    positions = (shape[0], *shape[2:])
    labels = builder.declare("labels", positions, DType.INT64)
    share = 1.0 / math.prod(positions)
    with builder.scope("loss"):
        log_p = builder.one("LogSoftmax", [logits], shape, builder.dtype(logits), attributes={"axis": 1})
        names = np.arange(classes, dtype=np.int64).reshape(classes, *(1 for _ in shape[2:]))
        is_label = builder.compare("Equal", builder.unsqueeze(labels, [1]), builder.constant(names, f"range.{classes}"))
        # Not a product with the one-hot form: 0 * -inf is NaN.
        picked = builder.where(is_label, log_p, builder.scalar(0.0, logits), "picked")
        total = builder.reduce_sum(picked, range(len(shape)))
        value = builder.scale(total, -share)
    with builder.scope("loss.backward"):
        one_hot = builder.cast(is_label, builder.dtype(logits))
        gradient = builder.scale(builder.sub(builder.unary("Exp", log_p, "softmax"), one_hot), share)
    return Loss(value, gradient, labels, {"integers_below": classes})


def mse(builder: Builder, output: str) -> Loss:
    """(output - target)², the mean over all elements.

    The new input ``target`` has the output's shape and dtype. The gradient is 2 (output - target)/n.

    Raises:
        UnsupportedError: the output is no float tensor.
    """
    shape, dtype = builder.shape(output), builder.dtype(output)
    if not dtype.is_float:
        raise _unfit("mse", builder, output, "a float tensor")
    target = builder.declare("target", shape, dtype)
    share = 1.0 / math.prod(shape)
    with builder.scope("loss"):
        difference = builder.sub(output, target, "difference")
        total = builder.reduce_sum(builder.mul(difference, difference, "square"), range(len(shape)))
        value = builder.scale(total, share)
    with builder.scope("loss.backward"):
        gradient = builder.scale(difference, 2.0 * share)
    return Loss(value, gradient, target, {"normal": True})


def _unfit(loss: str, builder: Builder, output: str, wanted: str) -> UnsupportedError:
    tensor = builder.tensors[output]
    return UnsupportedError(f"{loss} takes {wanted}; output {output!r} is {list(tensor.shape)} of {tensor.dtype.value}")


LOSSES: Final[Mapping[str, LossFunction]] = MappingProxyType(
    {"softmax_cross_entropy": softmax_cross_entropy, "mse": mse}
)
"""By the names that ``--loss`` takes."""


def loss_function(name: str) -> LossFunction:
    """The loss of this name.

    Raises:
        UsageError: there is none.
    """
    return choose("loss", name, LOSSES)
