"""Accuracy, the labels that the model gets right: the count of ``--metric accuracy``, of a step's own results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import UsageError
from planner.graph.core.attributes import axis_of
from planner.graph.core.model import Graph, Op
from planner.graph.core.notes import MICRO_BATCHES
from planner.runtime.values.samples import Labels, stated_labels


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The result and the labels that accuracy is counted by."""

    logits: str
    """The result with a number for each class."""
    axis: int
    """Its dim of classes."""
    labels: Labels

    def count(self, logits: np.ndarray, labels: np.ndarray) -> tuple[int, int]:
        """The number of labels with the largest number, and the number of all that count: neither ignored nor without a
        class.
        """
        wanted = labels
        if self.labels.is_next:
            # Each position's label is the next token; the last has none.
            wanted = np.concatenate([labels[..., 1:], np.full_like(labels[..., :1], -1)], axis=-1)
        counts = (wanted >= 0) & (wanted < self.labels.classes)
        if self.labels.ignored is not None:
            counts &= wanted != self.labels.ignored
        exact = logits if logits.dtype == np.float64 else logits.astype(np.float32)
        right = np.argmax(exact, axis=self.axis) == wanted
        return int(np.count_nonzero(right & counts)), int(np.count_nonzero(counts))


def share_of(right: int, counted: int) -> float:
    """The share of the labels that count which the model gets right; NaN where no label counts."""
    return right / counted if counted else math.nan


def accuracy_of(graph: Graph) -> Accuracy:
    """The result and the labels that a step's accuracy is counted by.

    Raises:
        UsageError: the model's metadata names no labels, or not exactly one result has a number for each class of each.
    """
    states = {pair.following for pair in graph.state}
    results = [name for name in graph.outputs if name not in states and graph.tensors[name].dtype.is_float]
    softmaxes = {name: [op for op in graph.ops_of("LogSoftmax") if op.inputs[0] == name] for name in results}
    stated = stated_labels(graph)
    matches: list[Accuracy] = []
    for labels in stated:
        wanted = graph.tensors[labels.name].shape
        for name in results:
            shape = graph.tensors[name].shape
            axes = [
                axis
                for axis, size in enumerate(shape)
                if size == labels.classes and (*shape[:axis], *shape[axis + 1 :]) == wanted
            ]
            if axes:
                matches.append(Accuracy(name, _axis(softmaxes[name], axes, len(shape)), labels))
    # Several results may fit: the logits are those that a loss reads through a LogSoftmax.
    read = [match for match in matches if softmaxes[match.logits]]
    fitting = read if len(read) == 1 else matches
    if len(fitting) != 1:
        names = ", ".join(labels.name for labels in stated) or "none are known; a loss by classes has them"
        raise UsageError(
            f"--metric accuracy: {'several results fit' if matches else 'no result fits'} the model's labels",
            facts=(f"labels: {names}", *(f"result {name}: {list(graph.tensors[name].shape)}" for name in results)),
            hint="a step of several micro-batches gives the loss alone" if MICRO_BATCHES in graph.notes else "",
        )
    return fitting[0]


def _axis(softmaxes: Sequence[Op], axes: list[int], rank: int) -> int:
    """The dim of classes, of those that may be it: the one that the loss's softmax is taken along, else the first."""
    along = (axis_of(op, rank, -1) for op in softmaxes)
    return next((axis for axis in along if axis in axes), axes[0])
