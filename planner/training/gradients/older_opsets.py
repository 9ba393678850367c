"""Ops of an older opset as the training graph's opset writes them, where that is another form or means another thing.

A step is written in one opset, and its gradients are those of what ops mean there. So the forward model is brought to
it before anything else is done with it; what is not in the table has one form and one meaning from opset 13 on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from planner.errors import UnsupportedError
from planner.graph.core.attributes import axis_of, integer, refuse
from planner.graph.core.builder import Builder
from planner.graph.core.model import Attribute, Graph, Op
from planner.graph.core.traits import REDUCTIONS
from planner.training.gradients.refusals import Refusals

OPSET: Final = 21
"""Version of the default domain that training graphs are written in; a later one of the model is kept."""
OLDEST_OPSET: Final = 13


def brought_up(forward: Graph) -> Graph:
    """A graph whose ops are written as ``OPSET`` has them; itself where it is of that opset or a later one.

    Raises:
        UnsupportedError: forms that have no counterpart there: all of them.
    """
    if forward.opset >= OPSET:
        return forward
    builder, refusals = Builder(forward), Refusals()
    for op in forward.ops:
        with builder.scope(op.name):
            try:
                builder.replay(upgraded(builder, op, forward.opset))
            except UnsupportedError as error:
                refusals.add(error.what, error.hint)
                builder.replay(op)
    refusals.raise_any()
    return replace(builder.rewritten(), opset=OPSET, domains=forward.domains)


def upgraded(builder: Builder, op: Op, opset: int) -> Op:
    """An op of an older opset as ``OPSET`` writes it; constants and ops that it then reads are emitted.

    Raises:
        UnsupportedError: its form has no counterpart there.
    """
    since, form = _FORMS.get(op.op_type, (0, None))
    return op if op.domain or form is None or opset >= since else form(builder, op)


def _with_axes(builder: Builder, op: Op) -> Op:
    """A reduction's axes were an attribute."""
    axes = op.attribute("axes")
    assert axes is None or isinstance(axes, tuple)
    operands = (op.inputs[0], builder.ints([int(axis) for axis in axes], "axes")) if axes else op.inputs
    return replace(op, inputs=operands, attributes=_without(op, "axes"))


def _with_parts(builder: Builder, op: Op) -> Op:
    """A Split without sizes had no ``num_outputs``."""
    if op.has_input(1):
        return op
    axis = axis_of(op, builder.rank(op.inputs[0]), 0)
    size, count = builder.shape(op.inputs[0])[axis], len(op.outputs)
    return replace(op, inputs=(op.inputs[0], builder.ints([size // count] * count, "split")))


def _with_axis(builder: Builder, op: Op) -> Op:
    """A DFT's axis was an attribute, with another default."""
    axis = builder.constant(np.array(integer(op, "axis", 1), np.int64), f"int.{integer(op, 'axis', 1)}")
    operands = (*op.inputs, *("",) * (2 - len(op.inputs)), axis)
    return replace(op, inputs=operands, attributes=_without(op, "axis"))


def _without_shift(builder: Builder, op: Op) -> Op:
    """RoiAlign read without the shift by half an element."""
    attributes = _without(op, "coordinate_transformation_mode")
    return replace(op, attributes=(("coordinate_transformation_mode", "output_half_pixel"), *attributes))


def _by_channel(builder: Builder, op: Op) -> Op:
    """GroupNormalization's scale and bias had an entry for each group.

    Raises:
        UnsupportedError: its channels do not make whole groups.
    """
    channels, groups = builder.shape(op.inputs[0])[1], integer(op, "num_groups", 1)
    if channels % groups or any(builder.shape(name) != (groups,) for name in op.inputs[1:]):
        raise refuse(op, f"{groups} groups of {channels} channels, of a scale and bias by group")
    by_group = (groups, channels // groups)
    scale, bias = (
        builder.reshape(builder.expand(builder.unsqueeze(name, [1]), by_group), (channels,)) for name in op.inputs[1:]
    )
    return replace(op, inputs=(op.inputs[0], scale, bias))


def _without(op: Op, name: str) -> tuple[tuple[str, Attribute], ...]:
    return tuple(item for item in op.attributes if item[0] != name)


_FORMS: Final[Mapping[str, tuple[int, Callable[[Builder, Op], Op]]]] = MappingProxyType(
    {
        "DFT": (20, _with_axis),
        "GroupNormalization": (21, _by_channel),
        "RoiAlign": (16, _without_shift),
        "Split": (18, _with_parts),
        **dict.fromkeys(REDUCTIONS - {"ReduceSum"}, (18, _with_axes)),
    }
)
"""By operator: the opset at which it changed, and how an op of an earlier one is written since then."""
