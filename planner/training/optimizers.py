"""Optimizers: from a parameter and its gradient to the parameter's next value, with what is remembered between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from planner.training.builder import Builder
from planner.training.registry import choose


@dataclass(frozen=True, slots=True)
class Update:
    """What one optimizer step is made of."""

    builder: Builder
    """Where it is emitted."""
    parameter: str
    """Its current value, R in ai.onnx.preview.training's terms X."""
    gradient: str
    """Of the loss with respect to the parameter."""
    rate: str
    """The learning rate, a scalar of the parameter's dtype."""
    momentum: float
    """How much of the accumulated gradient is kept."""


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
    return Updated(emit.sub(update.parameter, emit.mul(update.rate, update.gradient, "step"), "next"), {})


def momentum(update: Update) -> Updated:
    """V_next = alpha V + G; X_next = X - R V_next.

    ai.onnx.preview.training Momentum in mode "standard" with beta 1; PyTorch's SGD with dampening 0.
    """
    emit, parameter = update.builder, update.parameter
    shape, dtype = emit.shape(parameter), emit.dtype(parameter)
    velocity = emit.declare(f"{parameter}.momentum", shape, dtype)
    following = emit.add(emit.scale(velocity, update.momentum, "kept"), update.gradient, "momentum")
    stepped = emit.sub(parameter, emit.mul(update.rate, following, "step"), "next")
    return Updated(stepped, {"momentum": (velocity, following)})


OPTIMIZERS: Final[Mapping[str, Optimizer]] = MappingProxyType({"sgd": sgd, "momentum": momentum})
"""By the names that ``--optimizer`` takes."""


def optimizer_function(name: str) -> Optimizer:
    """The optimizer of this name.

    Raises:
        UsageError: there is none.
    """
    return choose("optimizer", name, OPTIMIZERS)
