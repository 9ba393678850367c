"""The local op: what a worker executes to compute its part of an op.

By default it is the same op on smaller tensors. An op whose attributes or constant inputs name sizes or borders
(pads, shape, starts, ends) has a local rule, kept beside its description in ``opdefs/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from planner.algebra.region import Region
from planner.graph.core.model import Attribute
from planner.tdl.node_view import NodeView


class NotLocalError(Exception):
    """This part of the op cannot be computed by a local op; the strategy is left out of the search."""


@dataclass(frozen=True, slots=True)
class Part:
    """One worker's part of an op."""

    ranges: Mapping[str, tuple[int, int]]
    """The half-open range of every index variable."""
    extents: Mapping[str, int]
    """How far each index variable runs in the whole op."""
    inputs: tuple[Region | None, ...]
    """The region that it reads of each input, clipped to the tensor; None: nothing is read (or input absent)."""
    reach: tuple[tuple[tuple[int, ...], tuple[int, ...]] | None, ...]
    """(before, after) by input and dim: how far the reads run past the tensor's own borders; never negative."""
    outputs: tuple[Region | None, ...]
    """The region that it makes of each output; None where the output is absent."""

    @property
    def is_first(self) -> bool:
        """True for the one worker of a reduction that adds the terms outside of the reduction (a bias)."""
        return all(self.ranges[name][0] == 0 for name in self.reduction_variables)

    reduction_variables: tuple[str, ...] = ()
    read_slots: tuple[int, ...] = ()
    """Inputs that the description reads; the others only parameterise the op, and have no region."""
    empty: Mapping[int, Region] = field(default_factory=dict)
    """By position, its region of an input that has no elements in the whole op (a cache of no positions)."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One ONNX node of a local op.

    Tensors are named ``in0``, ``in1``, ... (the op's inputs, as the part reads them), ``out0``, ... (its outputs),
    or anything else for constants and values in between; "" is an absent optional input.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    domain: str = ""


@dataclass(frozen=True, slots=True)
class LocalOp:
    """The nodes to execute for a part, in order."""

    nodes: tuple[LocalNode, ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)


LocalRule: TypeAlias = "Callable[[NodeView, Part], LocalOp]"


def same_op(
    node: NodeView,
    part: Part,
    *,
    attributes: Mapping[str, Attribute] | None = None,
    constants: Mapping[int, np.ndarray] | None = None,
    drop: tuple[int, ...] = (),
) -> LocalOp:
    """The op itself, with some attributes or constant inputs replaced.

    A constant input that the description does not read (axes, a shape) goes along as a constant.

    Args:
        node: the op.
        part: the worker's part.
        attributes: attributes to replace or to add.
        constants: constant inputs to replace, by position.
        drop: optional inputs to leave out.

    Raises:
        NotLocalError: the part does not read an input that the op needs (a term outside of the reduction).
    """
    replaced = dict(constants or {})
    for slot, value in enumerate(node.constants):
        if value is not None and slot not in part.read_slots:
            replaced.setdefault(slot, value)
        elif value is not None and slot in part.empty:
            replaced.setdefault(slot, np.empty(part.empty[slot].shape, value.dtype))
    for slot, name in enumerate(node.op.inputs):
        if name and part.inputs[slot] is None and slot not in replaced and slot not in drop:
            raise NotLocalError(f"input {slot} of {node.op.op_type} is not read by this part, and the op needs it")
    inputs = []
    for slot, name in enumerate(node.op.inputs):
        if not name or slot in drop:
            inputs.append("")
        else:
            inputs.append(f"c{slot}" if slot in replaced else f"in{slot}")
    while inputs and not inputs[-1]:
        inputs.pop()
    outputs = tuple(f"out{position}" if name else "" for position, name in enumerate(node.op.outputs))
    merged = {**dict(node.op.attributes), **(attributes or {})}
    local = LocalNode(node.op.op_type, tuple(inputs), outputs, merged, node.op.domain)
    used = set(inputs)
    return LocalOp((local,), {f"c{slot}": value for slot, value in replaced.items() if f"c{slot}" in used})
