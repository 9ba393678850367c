"""Gradient rules, one file for each operator family."""

from __future__ import annotations

from planner.training.autodiff import GradientRule, collect
from planner.training.rules import (
    activations,
    convolution,
    einsum,
    elementwise,
    linear_maps,
    matmul,
    movement,
    normalisation,
    pooling,
    reduction,
    scatter,
    softmax,
    stops,
)


def standard() -> dict[str, GradientRule]:
    """The rules of the standard operators, by operator."""
    return collect(
        activations,
        convolution,
        einsum,
        elementwise,
        linear_maps,
        matmul,
        movement,
        normalisation,
        pooling,
        reduction,
        scatter,
        softmax,
        stops,
    )
