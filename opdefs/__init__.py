"""Descriptions of ONNX's operators, one file for each operator family."""

from __future__ import annotations

from types import ModuleType

from opdefs import (
    conv_transpose,
    convolution,
    elementwise,
    generators,
    indexing,
    matmul,
    movement,
    normalization,
    pooling,
    reduction,
    reshape,
)
from planner.tdl.bind import Descriptions
from planner.tdl.builder import Description


def collect(*modules: ModuleType) -> tuple[Description, ...]:
    """The descriptions that modules define, in the order of their definition."""
    return tuple(value for module in modules for value in vars(module).values() if isinstance(value, Description))


def standard() -> Descriptions:
    """The descriptions of the standard operators."""
    return Descriptions(
        collect(
            elementwise,
            matmul,
            convolution,
            conv_transpose,
            pooling,
            reduction,
            normalization,
            reshape,
            movement,
            indexing,
            generators,
        )
    )
