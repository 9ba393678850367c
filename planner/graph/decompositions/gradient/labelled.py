"""Cross entropy by labels: what the losses and the ONNX loss operators have in common.

For log-probabilities l with the C classes along one dim (``axis``), labels t of the other dims' sizes and weights w [C]
(1 if absent), where positions with t = ignore_index count for nothing:

    value_i = -w[t_i] l[i, t_i]         mean = Σ value_i / Σ w[t_i]

(ONNX NegativeLogLikelihoodLoss, whose classes lie in dim 1; SoftmaxCrossEntropyLoss is the same of LogSoftmax.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planner.graph.builder import Builder
from planner.graph.model import DType
from planner.graph.protos import numpy_dtype


@dataclass(frozen=True, slots=True)
class Labelled:
    """Log-probabilities beside the labels that they are looked up with."""

    emit: Builder
    log_p: str
    is_label: str
    """Booleans of the shape of ``log_p``: whether this class is the label, and is not ignored."""
    axis: int
    """The dim of ``log_p`` in which the classes lie."""
    weights: str | None
    """[C, 1, ...], as many dims behind C as ``log_p`` has."""
    counts_all: bool
    """Whether every position has weight 1: nothing is ignored and there are no weights."""
    counted: np.ndarray | None = None
    """1 where a position counts whatever its label is, else 0, broadcast to ``log_p``; None: all of them do. The label
    is no class where it is 0."""

    def values(self) -> str:
        """``-w[t] l[t]`` of every position, without the dim of the classes."""
        emit, zero = self.emit, self.emit.scalar(0.0, self.log_p)
        weighted = self.log_p if self.weights is None else emit.mul(self.log_p, self.weights, "weighted")
        # Not a product with the one-hot form: 0 * -inf is NaN.
        picked = emit.where(self.is_label, weighted, zero, "picked")
        return emit.unary("Neg", emit.reduce_sum(picked, [self.axis]))

    def sum(self) -> str:
        """Σ of the values."""
        emit, zero = self.emit, self.emit.scalar(0.0, self.log_p)
        weighted = self.log_p if self.weights is None else emit.mul(self.log_p, self.weights, "weighted")
        picked = emit.where(self.is_label, weighted, zero, "picked")
        return emit.unary("Neg", emit.reduce_sum(picked, range(emit.rank(picked))))

    @property
    def positions(self) -> int:
        """How many there are that count, those with an ignored label included."""
        shape = self.emit.shape(self.log_p)
        every = math.prod(shape) // shape[self.axis]
        return every if self.counted is None else int(every * self.counted.sum()) // self.counted.size

    def class_weights(self) -> str:
        """``w[c]`` where c is the label, else 0; of the shape of ``log_p``."""
        emit = self.emit
        if self.weights is None:
            return emit.cast(self.is_label, emit.dtype(self.log_p))
        return emit.where(self.is_label, self.weights, emit.scalar(0.0, self.log_p), "label_weights")

    def total_weight(self) -> str:
        """``Σ w[t]``, a scalar."""
        weights = self.class_weights()
        return self.emit.reduce_sum(weights, range(self.emit.rank(weights)), hint="total_weight")

    def mean(self) -> str:
        """The weighted mean of the values."""
        if self.counts_all:
            # The sign and the mean in one factor: partial sums can be added up, partial means cannot.
            emit, zero = self.emit, self.emit.scalar(0.0, self.log_p)
            picked = emit.where(self.is_label, self.log_p, zero, "picked")
            return emit.scale(emit.reduce_sum(picked, range(emit.rank(picked))), -1.0 / self.positions)
        return self.emit.div(self.sum(), self.total_weight(), "mean")

    def per_position(self, dy: str | None, reduction: str) -> str | None:
        """The gradient of each position's value: a scalar, or broadcast along the classes; None for 1.

        Args:
            dy: gradient of the reduced value; None for 1.
            reduction: "mean", "sum" or "none".
        """
        emit = self.emit
        if reduction == "none":
            assert dy is not None, "an unreduced loss has a gradient of its own shape"
            return emit.unsqueeze(dy, [self.axis])
        if reduction == "sum":
            return dy
        if self.counts_all:
            share = self.equal_share()
            return share if dy is None else emit.mul(dy, share)
        one = emit.scalar(1.0, self.log_p)
        return emit.div(one if dy is None else dy, self.total_weight(), "share")

    def equal_share(self) -> str:
        """1 by the number of positions, a scalar, or 0 at those that never count."""
        emit, share = self.emit, 1.0 / self.positions
        if self.counted is None:
            return emit.scalar(share, self.log_p)
        return emit.constant((self.counted * share).astype(numpy_dtype(emit.dtype(self.log_p))), "shares")

    def log_p_gradient(self, share: str | None) -> str:
        """``-w[t] share`` at the label, 0 elsewhere."""
        weights = self.emit.unary("Neg", self.class_weights())
        return weights if share is None else self.emit.mul(weights, share)

    def logits_gradient(self, share: str | None) -> str:
        """``share w[t] (p - one_hot)``, where ``log_p`` is LogSoftmax of the logits along the classes."""
        emit, weights = self.emit, self.class_weights()
        p = emit.unary("Exp", self.log_p, "softmax")
        if not self.counts_all:
            p = emit.mul(p, emit.reduce_sum(weights, [self.axis], keepdims=True))
        difference = emit.sub(p, weights)
        return difference if share is None else emit.mul(difference, share)


def labelled(
    emit: Builder,
    log_p: str,
    labels: str,
    weights: str | None,
    ignore_index: int | None,
    *,
    axis: int = 1,
    counted: np.ndarray | None = None,
) -> Labelled:
    """Log-probabilities beside integer labels.

    Args:
        emit: where ops are emitted.
        log_p: the classes lie in dim ``axis``.
        labels: of the same shape without that dim.
        weights: [C], or None.
        ignore_index: the label that counts for nothing; None: there is none.
        axis: see above.
        counted: see ``Labelled``.
    """
    classes, rest = emit.shape(log_p)[axis], emit.rank(log_p) - axis - 1
    dtype = np.int32 if emit.dtype(labels) is DType.INT32 else np.int64
    names = np.arange(classes, dtype=dtype).reshape(classes, *(1 for _ in range(rest)))
    column = emit.unsqueeze(labels, [axis])
    is_label = emit.compare("Equal", column, emit.constant(names, f"range.{classes}"))
    if ignore_index is not None and 0 <= ignore_index < classes:
        ignored = emit.compare("Equal", column, emit.constant(np.array(ignore_index, dtype), f"int.{ignore_index}"))
        kept = emit.one("Not", [ignored], emit.shape(ignored), DType.BOOL)
        is_label = emit.compare("And", is_label, kept)
    aligned = None
    if weights is not None:
        aligned = emit.unsqueeze(weights, range(1, rest + 1)) if rest else weights
    counts_all = weights is None and ignore_index is None
    return Labelled(emit, log_p, is_label, axis, aligned, counts_all, counted)
