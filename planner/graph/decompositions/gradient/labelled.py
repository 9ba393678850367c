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

from planner.graph.core.builder import Builder
from planner.graph.core.model import DType


@dataclass(frozen=True, slots=True)
class Labelled:
    """Log-probabilities beside the labels that they are looked up with."""

    emit: Builder
    log_p: str
    labels: str
    """Integers of the shape of ``log_p`` with one class; 0 at a position that does not count."""
    picked: str
    """``log_p`` at the labels, of their shape."""
    axis: int
    """The dim of ``log_p`` in which the classes lie."""
    weights: str | None
    """[C]."""
    counts_all: bool
    """Whether every position has weight 1: nothing is ignored and there are no weights."""
    mask: str | None = None
    """Booleans, broadcast to ``labels``: whether a position counts; None: all of them do."""
    counted: np.ndarray | None = None
    """1 where a position counts whatever its label is, else 0, broadcast to ``log_p``; None: all of them do. The label
    is no class where it is 0."""

    def _values(self) -> str:
        """``w[t] l[t]`` of every position, of the shape of the labels."""
        emit, values = self.emit, self.picked
        if self.weights is not None:
            values = emit.mul(values, self._label_weights(self.weights), "weighted")
        # Not a product with zeros: 0 * -inf is NaN.
        return values if self.mask is None else emit.where(self.mask, values, emit.scalar(0.0, values), "counted")

    def values(self) -> str:
        """``-w[t] l[t]`` of every position, without the dim of the classes."""
        return self.emit.unary("Neg", self.emit.squeeze(self._values(), [self.axis]))

    def sum(self) -> str:
        """Σ of the values."""
        values = self._values()
        return self.emit.unary("Neg", self.emit.reduce_sum(values, range(self.emit.rank(values))))

    @property
    def positions(self) -> int:
        """The number of positions that count, those with an ignored label included."""
        shape = self.emit.shape(self.log_p)
        count = math.prod(shape) // shape[self.axis]
        return count if self.counted is None else int(count * self.counted.sum()) // self.counted.size

    def _label_weights(self, weights: str) -> str:
        shape, dtype = self.emit.shape(self.labels), self.emit.dtype(weights)
        return self.emit.one("Gather", [weights, self.labels], shape, dtype, hint="label_weights")

    def _share(self, share: str | None) -> str:
        """``w[t] share`` of every position, 0 where it does not count; a scalar where it is one number."""
        emit = self.emit
        unit = emit.scalar(1.0, self.log_p)
        if self.counts_all:
            return unit if share is None else share
        weights = unit if self.weights is None else self._label_weights(self.weights)
        if self.mask is not None:
            weights = emit.where(self.mask, weights, emit.scalar(0.0, self.log_p), "weights")
        return weights if share is None else emit.mul(weights, share)

    def total_weight(self) -> str:
        """``Σ w[t]``, a scalar."""
        weights = self._share(None)
        return self.emit.reduce_sum(weights, range(self.emit.rank(weights)), hint="total_weight")

    def mean(self) -> str:
        """The weighted mean of the values."""
        if self.counts_all:
            # The sign and the mean in one factor: partial sums can be added up, partial means cannot.
            values = self._values()
            return self.emit.scale(self.emit.reduce_sum(values, range(self.emit.rank(values))), -1.0 / self.positions)
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
        unit = emit.scalar(1.0, self.log_p)
        return emit.div(unit if dy is None else dy, self.total_weight(), "share")

    def equal_share(self) -> str:
        """1 by the number of positions, a scalar, or 0 at those that never count."""
        emit, share = self.emit, 1.0 / self.positions
        if self.counted is None:
            return emit.scalar(share, self.log_p)
        return emit.constant((self.counted * share).astype(emit.dtype(self.log_p).array_dtype), "shares")

    def log_p_gradient(self, share: str | None) -> str:
        """``-w[t] share`` at the label, 0 elsewhere."""
        emit, classes = self.emit, self.emit.shape(self.log_p)[self.axis]
        dtype = emit.dtype(self.labels).array_dtype
        names = np.arange(classes, dtype=dtype).reshape(
            classes, *(1 for _ in range(emit.rank(self.log_p) - self.axis - 1))
        )
        is_label = emit.compare("Equal", self.labels, emit.constant(names, f"range.{classes}"))
        return emit.where(is_label, emit.unary("Neg", self._share(share)), emit.scalar(0.0, self.log_p))

    def logits_gradient(self, share: str | None) -> str:
        """``share w[t] (p - one_hot)``, where ``log_p`` is LogSoftmax of the logits along the classes."""
        emit, shares = self.emit, self._share(share)
        unit, p = emit.scalar(1.0, self.log_p), emit.unary("Exp", self.log_p, "softmax")
        operands = [p, self.labels, emit.sub(emit.unary("Exp", self.picked), unit)]
        attributes = {"axis": self.axis}
        difference = emit.one("ScatterElements", operands, emit.shape(p), emit.dtype(p), attributes=attributes)
        # The factor last: a product that reads it takes a number with it.
        return difference if shares == unit else emit.mul(difference, shares)


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
    column, mask = emit.unsqueeze(labels, [axis]), None
    zero = emit.constant(np.array(0, emit.dtype(labels).array_dtype), "int.0")
    if ignore_index is not None:
        ignored = emit.constant(np.array(ignore_index, emit.dtype(labels).array_dtype), f"int.{ignore_index}")
        is_ignored = emit.compare("Equal", column, ignored)
        mask = emit.one("Not", [is_ignored], emit.shape(column), DType.BOOL)
    if counted is not None:
        counting = emit.constant(counted.astype(np.bool_), "counting")
        mask = counting if mask is None else emit.compare("And", mask, counting)
    if mask is not None:
        column = emit.where(mask, column, zero, "labels")
    counts_all = weights is None and ignore_index is None
    attributes, dtype = {"axis": axis}, emit.dtype(log_p)
    picked = emit.one(
        "GatherElements", [log_p, column], emit.shape(column), dtype, hint="picked", attributes=attributes
    )
    return Labelled(emit, log_p, column, picked, axis, weights, counts_all, mask, counted)
