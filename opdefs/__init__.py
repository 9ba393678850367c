"""Descriptions of ONNX's operators, one file for each operator family."""

from __future__ import annotations

from types import ModuleType

from opdefs import (
    along_axis,
    attention,
    conv_transpose,
    convolution,
    einsum,
    elementwise,
    generators,
    group_norm,
    indexing,
    losses,
    matmul,
    movement,
    normalization,
    pooling,
    quantised,
    recurrent,
    reduction,
    reshape,
    resize,
    sampling,
    scatter,
    signal,
    space,
    streaming,
)
from opdefs.load import OpdefsFile, load_file
from planner.tdl.bind import Descriptions
from planner.tdl.builder import Description

__all__ = ["OpdefsFile", "collect", "load_file", "standard"]


def collect(*modules: ModuleType) -> tuple[Description, ...]:
    """The descriptions that modules define, in the order of their definition."""
    return tuple(value for module in modules for value in vars(module).values() if isinstance(value, Description))


def standard(*further: Description) -> Descriptions:
    """The descriptions of the standard operators, and further ones (``load_file``).

    Raises:
        DescriptionError: an operator is described twice.
    """
    return Descriptions(
        (
            *collect(
                along_axis,
                attention,
                conv_transpose,
                convolution,
                einsum,
                elementwise,
                generators,
                group_norm,
                indexing,
                losses,
                matmul,
                movement,
                normalization,
                pooling,
                quantised,
                recurrent,
                reduction,
                reshape,
                resize,
                sampling,
                scatter,
                signal,
                space,
                streaming,
            ),
            *further,
        )
    )
