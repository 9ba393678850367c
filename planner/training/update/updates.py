"""The next state, computed from gradients: accumulation, loss scaling, clipping, and the optimizer's step.

Plain updates stand right after their gradient, which then need not be kept. What looks at all gradients together
(clipping by the global norm, the search for numbers that are not finite) waits until the last one is there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from planner.errors import UsageError, did_you_mean
from planner.graph.core.builder import Builder
from planner.graph.core.model import DType, Graph, Tensor
from planner.graph.core.notes import MICRO_BATCHES
from planner.printable import some
from planner.training.update.micro_batches import repeated
from planner.training.update.optimizers import Counter, Hyper, Optimizer, Update

FIRST_SCALE: Final = 65536.0
"""Of dynamic loss scaling, with the numbers below as in PyTorch's GradScaler."""
_GROWTH: Final = 2.0
_BACKOFF: Final = 0.5
_GROWTH_INTERVAL: Final = 2000
_CLIP_EPSILON: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of the optimizer: its times and its gradients."""

    clip_norm: float | None = None
    """Gradients are scaled down to this norm, taken over all of them together; None: they are not."""
    accumulate: int = 1
    """How many micro-batches make one step."""
    loss_scale: float | None = None
    """The loss is multiplied by this before it is differentiated, the gradients divided; None: 1."""
    dynamic_scale: bool = False
    """Whether the scale is state: halved, and the step left out, when a gradient is not finite; doubled after 2000
    steps without that."""

    def check(self) -> None:
        """Check the numbers.

        Raises:
            UsageError: one that cannot be used.
        """
        for name, value in (("norm that gradients are clipped to", self.clip_norm), ("loss scale", self.loss_scale)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UsageError(f"the {name} is {value}; it must be a positive number")
        if self.accumulate < 1:
            raise UsageError(f"gradients of {self.accumulate} micro-batches cannot be accumulated")

    @property
    def notes(self) -> Mapping[str, str]:
        """The notes of a step of several micro-batches."""
        return {MICRO_BATCHES: str(self.accumulate)} if self.accumulate > 1 else {}

    @property
    def waits(self) -> bool:
        """Whether updates have to wait for the last gradient."""
        return self.clip_norm is not None or self.accumulate > 1 or self.dynamic_scale


class Updates:
    """The end of a training step.

    Args:
        builder: where it is emitted.
        forward: what tells which parameters have values.
        step: the optimizer.
        hyper: its numbers.
        schedule: when it steps.
        rate: the learning rate, a scalar.
        weight: of a loss that is a weighted mean, what it and its gradients have yet to be divided by, over all
            micro-batches of a step together; None: each micro-batch counts alike.
    """

    def __init__(
        self,
        builder: Builder,
        forward: Graph,
        step: Optimizer,
        hyper: Hyper,
        schedule: Schedule,
        rate: str,
        weight: str | None = None,
    ) -> None:
        self._emit = builder
        self._forward = forward
        self._step = step
        self._hyper = hyper
        self._schedule = schedule
        self._rate = rate
        assert weight is None or schedule.accumulate > 1, "one batch is divided by its own weight"
        self._weight = weight
        self._counter = Counter(builder)
        self._waiting: list[tuple[str, str]] = []
        self._scale: str | None = None
        self.parameters: list[tuple[str, str]] = []
        """Parameters and their next values, in the order in which gradients were found."""
        self.memories: list[tuple[str, str]] = []
        """Everything else that is state."""
        self.initial: dict[str, np.ndarray | None] = {}
        """Of the memories."""
        self.samples: dict[str, Mapping[str, object]] = {}
        """How memories without a first value are drawn."""

    def scaled(self, gradient: str) -> str:
        """The loss's own gradient with the loss scale put to it."""
        emit, schedule = self._emit, self._schedule
        if schedule.dynamic_scale:
            self._scale = emit.declare("loss_scale", (), DType.FLOAT32)
            return emit.mul(gradient, emit.cast(self._scale, emit.dtype(gradient)), "scaled")
        return emit.scale(gradient, schedule.loss_scale or 1.0, "scaled")

    def ready(self, parameter: str, gradient: str) -> None:
        """A parameter's gradient is complete."""
        if self._schedule.waits:
            self._waiting.append((parameter, gradient))
        else:
            self._update(parameter, self._unscaled(parameter, gradient), None)

    def in_micro_batches(
        self, dims: Mapping[str, int], outputs: Sequence[str], carried: Mapping[str, str], loss: str = ""
    ) -> tuple[Builder, Mapping[str, str]]:
        """All gradients of one micro-batch are there: from here on they are the sums of all.

        Args:
            dims: see ``micro_batches.samples_dims``.
            outputs: of numbers the mean is taken, and others, which each micro-batch has of its own, are left out.
            carried: see ``micro_batches.repeated``.
            loss: a result that is divided by the weight of all, if it has one.

        Returns:
            The builder that is gone on with, and by result, ``loss`` and what is carried the tensor that it is there.
        """
        batches, before = self._schedule.accumulate, self._emit
        if batches == 1:
            return before, {name: name for name in (*outputs, *carried.values(), loss)}
        sums = {gradient: before.dtype(parameter) for parameter, gradient in self._waiting}
        apart = {*sums, *carried.values()}
        means = [name for name in outputs if name not in apart and before.tensor(name).is_number]
        sums |= {name: before.dtype(name) for name in (*means, loss, self._weight) if name}
        self._emit, tensor_of = repeated(before, batches, dims, sums, carried)
        self._counter = Counter(self._emit)
        self._waiting = [(parameter, tensor_of[gradient]) for parameter, gradient in self._waiting]
        averaged = {name: self._emit.scale(tensor_of[name], 1.0 / batches) for name in (*means, loss) if name}
        if self._weight is not None:
            self._weight = tensor_of[self._weight]
            averaged[loss] = self._emit.div(tensor_of[loss], self._weight)
        for name in means:
            self._emit.rename(averaged[name], name)
        for parameter, total in self._waiting:
            self._emit.rename(total, f"{parameter}.grad")
        return self._emit, {**{name: tensor_of[name] for name in carried.values()}, **averaged}

    def finish(self) -> None:
        """The last gradient is there.

        Raises:
            UsageError: a group has no parameter.
        """
        gate: str | None = None
        gradients = {name: self._unscaled(name, gradient) for name, gradient in self._waiting}
        if self._scale is not None and gradients:
            gate = self._next_scale(self._finite(gradients))
        if self._schedule.clip_norm is not None and gradients:
            gradients = self._clipped(gradients, self._schedule.clip_norm)
        for parameter, gradient in gradients.items():
            self._update(parameter, gradient, gate)
        names = [parameter for parameter, _ in self.parameters]
        empty = [g.pattern for g in self._hyper.groups if not any(fnmatchcase(name, g.pattern) for name in names)]
        if empty:
            hint = did_you_mean(empty[0], names)
            raise UsageError(f"--group {empty[0]!r} fits no trained parameter", facts=(some(names),), hint=hint)
        self.memories.reverse()
        for current, following in self._counter.state:
            self._remember(current, self._gated(gate, following, current), np.zeros((), np.int64))

    def _update(self, parameter: str, gradient: str, gate: str | None) -> None:
        emit = self._emit
        with emit.scope(f"{parameter}.update"):
            rate = emit.scale(emit.cast(self._rate, emit.dtype(parameter)), self._hyper.rate_of(parameter), "rate")
            cast_gradient = emit.cast(gradient, emit.dtype(parameter))
            updated = self._step(Update(emit, parameter, cast_gradient, rate, self._hyper, self._counter))
            self.parameters.append((parameter, self._gated(gate, updated.parameter, parameter)))
            for memory, following in updated.memory.values():
                self._remember(memory, self._gated(gate, following, memory), self._zeros(parameter, memory))

    def _gated(self, gate: str | None, following: str, current: str) -> str:
        return following if gate is None else self._emit.where(gate, following, current, "next")

    def _remember(self, memory: str, following: str, first: np.ndarray | None) -> None:
        self.memories.append((memory, following))
        self.initial[memory] = first
        if first is None:
            self.samples[memory] = {"value": 0.0}

    def _zeros(self, parameter: str, memory: str) -> np.ndarray | None:
        """Zeros; None beside a parameter whose value was not loaded: such a model may be too large for any file."""
        forward = self._forward
        values = forward.constants if parameter in forward.constants else forward.initial
        tensor: Tensor = self._emit.tensors[memory]
        if values.get(parameter) is None:
            return None
        return np.zeros(tensor.shape, tensor.dtype.array_dtype)

    def _unscaled(self, parameter: str, gradient: str) -> str:
        emit, schedule = self._emit, self._schedule
        runs = schedule.accumulate if self._weight is None else 1
        factor = 1.0 / (runs * (1.0 if self._scale is not None else schedule.loss_scale or 1.0))
        if factor == 1.0 and self._scale is None and self._weight is None:
            return gradient
        with emit.scope(f"{parameter}.update"):
            unscaled = emit.scale(emit.cast(gradient, emit.dtype(parameter)), factor, "unscaled")
            if self._weight is not None:
                unscaled = emit.div(unscaled, emit.cast(self._weight, emit.dtype(unscaled)), "mean")
            if self._scale is None:
                return unscaled
            return emit.div(unscaled, emit.cast(self._scale, emit.dtype(unscaled)), "unscaled")

    def _finite(self, gradients: Mapping[str, str]) -> str:
        """Whether no gradient holds an infinity or NaN: 0 times a finite number is 0, and NaN spreads."""
        emit = self._emit
        with emit.scope("optimizer"):
            parts = [
                emit.reduce_sum(emit.cast(emit.scale(name, 0.0), DType.FLOAT32), range(emit.rank(name)))
                for name in gradients.values()
            ]
            total = self._sum(parts)
            bad = emit.one("IsNaN", [total], (), DType.BOOL)
            return emit.one("Not", [bad], (), DType.BOOL, hint="finite")

    def _sum(self, parts: list[str]) -> str:
        total = parts[0]
        for part in parts[1:]:
            total = self._emit.add(total, part)
        return total

    def _next_scale(self, finite: str) -> str:
        """The scale's next value; the optimizer steps where all is finite."""
        emit, scale = self._emit, self._scale
        assert scale is not None, "asked for with a dynamic scale only"
        good = emit.declare("loss_scale.good_steps", (), DType.INT64)
        with emit.scope("optimizer"):
            seen = emit.add(good, emit.scalar(1, good), "good_steps")
            grows = emit.compare("Equal", seen, emit.scalar(_GROWTH_INTERVAL, good), "grows")
            larger = emit.where(grows, emit.scale(scale, _GROWTH), scale, "larger")
            next_scale = emit.where(finite, larger, emit.scale(scale, _BACKOFF), "loss_scale")
            zero = emit.scalar(0, good)
            next_good = emit.where(finite, emit.where(grows, zero, seen), zero, "good_steps")
        first = FIRST_SCALE if self._schedule.loss_scale is None else self._schedule.loss_scale
        self._remember(scale, next_scale, np.array(first, np.float32))
        self._remember(good, next_good, np.zeros((), np.int64))
        return finite

    def _clipped(self, gradients: Mapping[str, str], max_norm: float) -> dict[str, str]:
        """All gradients times min(1, max_norm / (norm + 1e-6)), norm² = ΣΣ g² (PyTorch ``clip_grad_norm_``)."""
        emit = self._emit
        with emit.scope("optimizer"):
            squares = [
                emit.cast(emit.reduce_sum(emit.mul(name, name, "square"), range(emit.rank(name))), DType.FLOAT32)
                for name in gradients.values()
            ]
            norm = emit.unary("Sqrt", self._sum(squares), "norm")
            wanted = emit.div(emit.scalar(max_norm, norm), emit.add(norm, emit.scalar(_CLIP_EPSILON, norm)), "wanted")
            factor = emit.binary("Min", wanted, emit.scalar(1.0, norm), "factor")
            return {
                parameter: emit.mul(gradient, emit.cast(factor, emit.dtype(gradient)), "clipped")
                for parameter, gradient in gradients.items()
            }
