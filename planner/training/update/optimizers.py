"""Optimizers: from a parameter and its gradient to the parameter's next value, with what is remembered between.

Formulas and letters are those of the operators of ai.onnx.preview.training (R the learning rate, T the count of
updates, X the parameter, G its gradient, V and H the memories), but for AdamW, which that domain does not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, TypeAlias

from planner.errors import UsageError
from planner.graph.core.builder import Builder
from planner.graph.core.model import DType, Shape
from planner.training.patterns import letters
from planner.training.update.registry import choose


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters with a learning rate or a weight decay of their own."""

    pattern: str
    """Matches their names, with * and ? as in file names."""
    rate: float | None = None
    """A multiple of the learning rate; None: as a less specific group says, or 1."""
    decay: float | None = None
    """The weight decay; None: as a less specific group says, or as of parameters in no group."""


def read_group(text: str) -> Group:
    """A group as ``--group`` writes it: ``head.*:lr=0.1x,decay=0``, or with one of the two numbers.

    Raises:
        UsageError: it cannot be read.
    """
    pattern, _, listed = text.rpartition(":")
    numbers = dict(part.partition("=")[::2] for part in listed.split(","))
    rate, decay = numbers.pop("lr", None), numbers.pop("decay", None)
    try:
        if pattern and not numbers and (rate is None or rate.endswith("x")):
            return Group(pattern, rate if rate is None else float(rate[:-1]), decay if decay is None else float(decay))
    except ValueError:
        pass
    raise UsageError(
        f"--group {text!r} is not PATTERN:lr=NUMBERx,decay=NUMBER",
        hint="write 'head.*:lr=0.1x,decay=0', or one of the two; lr is a multiple of the learning rate",
    )


@dataclass(frozen=True, slots=True)
class Hyper:
    """The numbers of an optimizer; each optimizer reads those that it has."""

    momentum: float = 0.9
    """alpha of Momentum and Nesterov: how much of V is kept."""
    beta1: float = 0.9
    """alpha of Adam: how much of V, the mean of gradients, is kept."""
    beta2: float = 0.999
    """beta of Adam: how much of H, the mean of squares, is kept."""
    epsilon: float | None = None
    """Added to the root of H; None: 1e-8 for Adam and AdamW, 1e-10 for Adagrad."""
    decay_factor: float = 0.0
    """Of Adagrad: R / (1 + T decay_factor) is the rate of update T."""
    weight_decay: float = 0.0
    """norm_coefficient: G + weight_decay X takes the place of G. In AdamW X (1 - R weight_decay) that of X."""
    groups: tuple[Group, ...] = ()
    """The groups; of several that match a name, the one with most letters wins, then the last."""

    def check(self) -> None:
        """Check the numbers.

        Raises:
            UsageError: each that cannot be used.
        """
        facts = [
            f"{name} is {value}; it must be at least 0 and below 1"
            for name, value in (("momentum", self.momentum), ("beta1", self.beta1), ("beta2", self.beta2))
            if not 0 <= value < 1
        ]
        facts += [
            f"{name} is {value}; it must be a number, at least 0"
            for name, value in (
                ("epsilon", self.epsilon),
                ("decay_factor", self.decay_factor),
                ("weight_decay", self.weight_decay),
                *((f"lr of group {group.pattern!r}", group.rate) for group in self.groups),
                *((f"decay of group {group.pattern!r}", group.decay) for group in self.groups),
            )
            if value is not None and not (math.isfinite(value) and value >= 0)
        ]
        if facts:
            raise UsageError(f"the {facts[0]}", facts=tuple(facts[1:]))

    def decay_of(self, name: str, shape: Shape) -> float:
        """The weight decay of a parameter: of vectors (biases, scales of normalisations) 0, unless a group says it."""
        is_vector = sum(size > 1 for size in shape) <= 1
        return self._grouped(name, "decay", 0.0 if is_vector else self.weight_decay)

    def rate_of(self, name: str) -> float:
        """The multiple of the learning rate that a parameter takes."""
        return self._grouped(name, "rate", 1.0)

    def _grouped(self, name: str, number: str, default: float) -> float:
        for group in sorted(self.groups, key=lambda group: letters(group.pattern)):
            if getattr(group, number) is not None and fnmatchcase(name, group.pattern):
                default = getattr(group, number)
        return default


@dataclass(frozen=True, slots=True)
class Update:
    """The parts of one optimizer step."""

    builder: Builder
    """The graph that it is emitted to."""
    parameter: str
    """The current value, X."""
    gradient: str
    """Of the loss with respect to the parameter, G."""
    rate: str
    """The learning rate R of the parameter, a scalar of its dtype."""
    hyper: Hyper
    """Numbers of the optimizer."""
    count: Callable[[], str]
    """T, the count of updates with this one (a float64 scalar); asking for it makes it part of the state."""

    @property
    def decay(self) -> float:
        """Of this parameter."""
        return self.hyper.decay_of(self.parameter, self.builder.shape(self.parameter))

    def regularized(self) -> str:
        """``G + norm_coefficient X``: the gradient of the loss with half the squared norm of X added."""
        if not self.decay:
            return self.gradient
        emit = self.builder
        return emit.add(emit.scale(self.parameter, self.decay, "decay"), self.gradient, "regularized")

    def memory(self, name: str) -> str:
        """A new input of the parameter's shape, zeros at first."""
        emit = self.builder
        return emit.declare(f"{self.parameter}.{name}", emit.shape(self.parameter), emit.dtype(self.parameter))


@dataclass(frozen=True, slots=True)
class Updated:
    """The next state of one parameter."""

    parameter: str
    """Its next value."""
    memory: Mapping[str, tuple[str, str]]
    """What the optimizer remembers of it, by name: the new input (zeros at first) and what replaces it."""


Optimizer: TypeAlias = Callable[[Update], Updated]


def sgd(update: Update) -> Updated:
    """X_next = X - R G."""
    emit = update.builder
    step = emit.mul(update.rate, update.regularized(), "step")
    return Updated(emit.sub(update.parameter, step, "next"), {})


def momentum(update: Update) -> Updated:
    """V_next = alpha V + G; X_next = X - R V_next.

    ai.onnx.preview.training Momentum in mode "standard" with beta 1; PyTorch's SGD with dampening 0.
    """
    emit = update.builder
    velocity = update.memory("momentum")
    following = emit.add(emit.scale(velocity, update.hyper.momentum, "kept"), update.regularized(), "momentum")
    stepped = emit.sub(update.parameter, emit.mul(update.rate, following, "step"), "next")
    return Updated(stepped, {"momentum": (velocity, following)})


def nesterov(update: Update) -> Updated:
    """V_next = alpha V + G; X_next = X - R (G + alpha V_next).

    ai.onnx.preview.training Momentum in mode "nesterov" with beta 1; PyTorch's SGD with nesterov.
    """
    emit = update.builder
    velocity, gradient = update.memory("momentum"), update.regularized()
    following = emit.add(emit.scale(velocity, update.hyper.momentum, "kept"), gradient, "momentum")
    ahead = emit.add(gradient, emit.scale(following, update.hyper.momentum, "ahead"))
    stepped = emit.sub(update.parameter, emit.mul(update.rate, ahead, "step"), "next")
    return Updated(stepped, {"momentum": (velocity, following)})


def adagrad(update: Update) -> Updated:
    """H_next = H + G²; X_next = X - R / (1 + T decay_factor) G / (√H_next + epsilon).

    ai.onnx.preview.training Adagrad (Duchi, Hazan and Singer 2011), where T counts the updates before this one;
    PyTorch's Adagrad with lr_decay.
    """
    emit, hyper = update.builder, update.hyper
    squares, gradient = update.memory("squares"), update.regularized()
    following = emit.add(squares, emit.mul(gradient, gradient, "square"), "squares")
    root = emit.unary("Sqrt", following, "root")
    adaptive = emit.add(root, emit.scalar(1e-10 if hyper.epsilon is None else hyper.epsilon, root), "adaptive")
    rate = update.rate
    if hyper.decay_factor:
        count = update.count()
        before = emit.sub(count, emit.scalar(1.0, count))
        slower = emit.add(emit.scale(before, hyper.decay_factor), emit.scalar(1.0, count))
        rate = emit.div(rate, emit.cast(slower, emit.dtype(rate)), "rate")
    step = emit.mul(rate, emit.div(gradient, adaptive, "direction"), "step")
    return Updated(emit.sub(update.parameter, step, "next"), {"squares": (squares, following)})


def _moments(update: Update, gradient: str) -> tuple[Mapping[str, tuple[str, str]], str, str]:
    """V_next = alpha V + (1 - alpha) G and H_next = beta H + (1 - beta) G²."""
    emit, hyper = update.builder, update.hyper
    mean, squares = update.memory("mean"), update.memory("squares")
    next_mean = emit.add(
        emit.scale(mean, hyper.beta1, "kept"), emit.scale(gradient, 1.0 - hyper.beta1, "added"), "mean"
    )
    square = emit.mul(gradient, gradient, "square")
    next_squares = emit.add(
        emit.scale(squares, hyper.beta2, "kept"), emit.scale(square, 1.0 - hyper.beta2, "added"), "squares"
    )
    return {"mean": (mean, next_mean), "squares": (squares, next_squares)}, next_mean, next_squares


def _unbiased(update: Update, beta: float) -> str:
    """``1 - beta^T``, in float64: in float32, 1 - 0.999 has lost four of its seven digits."""
    emit, count = update.builder, update.count()
    unit = emit.scalar(1.0, count)
    return emit.sub(unit, emit.binary("Pow", emit.scalar(beta, count), count, "power"), "unbiased")


def adam(update: Update) -> Updated:
    """X_next = X - R √(1 - betaᵀ) / (1 - alphaᵀ) V_next / (√H_next + epsilon).

    V_next = alpha V + (1 - alpha) G, H_next = beta H + (1 - beta) G² (Kingma and Ba 2015, the form before section
    2.1; ai.onnx.preview.training Adam, where T > 0). T counts this update: it is 1 at the first. PyTorch adds epsilon
    to √(H_next / (1 - betaᵀ)) instead: for that take ``adamw`` without weight decay.
    """
    emit, hyper = update.builder, update.hyper
    memory, mean, squares = _moments(update, update.regularized())
    root = emit.unary("Sqrt", squares, "root")
    deviation = emit.add(root, emit.scalar(1e-8 if hyper.epsilon is None else hyper.epsilon, root), "deviation")
    with emit.scope("optimizer"):
        bias = emit.div(emit.unary("Sqrt", _unbiased(update, hyper.beta2)), _unbiased(update, hyper.beta1), "bias")
        rate = emit.mul(update.rate, emit.cast(bias, emit.dtype(update.rate)), "rate")
    step = emit.mul(rate, emit.div(mean, deviation, "direction"), "step")
    return Updated(emit.sub(update.parameter, step, "next"), memory)


def adamw(update: Update) -> Updated:
    """X_next = (1 - R weight_decay) X - R / (1 - alphaᵀ) V_next / (√(H_next / (1 - betaᵀ)) + epsilon).

    Adam with the decay taken from the weight, not added to the gradient (Loshchilov and Hutter 2019, algorithm 2), as
    PyTorch's AdamW computes it.
    """
    emit, hyper = update.builder, update.hyper
    memory, mean, squares = _moments(update, update.gradient)
    with emit.scope("optimizer"):
        dtype = emit.dtype(update.rate)
        # Both sides of the quotient times √(1 - betaᵀ), so that what is as large as X is not divided by it.
        spread = emit.unary("Sqrt", _unbiased(update, hyper.beta2))
        bias = emit.div(spread, _unbiased(update, hyper.beta1), "bias")
        rate = emit.mul(update.rate, emit.cast(bias, dtype), "rate")
        least = emit.cast(emit.scale(spread, 1e-8 if hyper.epsilon is None else hyper.epsilon, "least"), dtype)
    deviation = emit.add(emit.unary("Sqrt", squares, "root"), least, "deviation")
    weight = update.parameter
    if update.decay:
        with emit.scope("optimizer"):
            shrink = emit.sub(emit.scalar(1.0, update.rate), emit.scale(update.rate, update.decay), "shrink")
        weight = emit.mul(shrink, weight, "decayed")
    step = emit.mul(rate, emit.div(mean, deviation, "direction"), "step")
    return Updated(emit.sub(weight, step, "next"), memory)


def adamw_after(update: Update) -> Updated:
    """Adam's step, then X_final = X_next (1 - R weight_decay).

    onnxruntime-training's AdamWOptimizer in mode 1, which is HuggingFace's AdamW.
    """
    emit = update.builder
    stepped = adam(replace(update, hyper=replace(update.hyper, weight_decay=0.0, groups=())))
    if not update.decay:
        return stepped
    with emit.scope("optimizer"):
        shrink = emit.sub(emit.scalar(1.0, update.rate), emit.scale(update.rate, update.decay), "shrink")
    return replace(stepped, parameter=emit.mul(stepped.parameter, shrink, "decayed"))


OPTIMIZERS: Final[Mapping[str, Optimizer]] = MappingProxyType(
    {
        "sgd": sgd,
        "momentum": momentum,
        "nesterov": nesterov,
        "adagrad": adagrad,
        "adam": adam,
        "adamw": adamw,
        "adamw_after": adamw_after,
    }
)
"""By the names that ``--optimizer`` takes."""


def optimizer_function(name: str) -> Optimizer:
    """The optimizer of this name.

    Raises:
        UsageError: there is none.
    """
    return choose("optimizer", name, OPTIMIZERS)


class Counter:
    """The count of updates T, shared by all parameters; part of the state once somebody asks for it."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._value: str | None = None
        self.state: list[tuple[str, str]] = []
        """The input and what replaces it; empty where nobody asked."""

    def __call__(self) -> str:
        """T as a float64 scalar."""
        if self._value is None:
            emit = self._builder
            before = emit.declare("updates", (), DType.INT64)
            with emit.scope("optimizer"):
                following = emit.add(before, emit.scalar(1, before), "updates")
                self._value = emit.cast(following, DType.FLOAT64)
            self.state.append((before, following))
        return self._value
