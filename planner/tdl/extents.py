"""Extents of index variables, symbolically and for an op's shapes."""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import DescriptionError
from planner.tdl.expr import Access, Reduce, subvalues
from planner.tdl.node_view import NodeView


@dataclass(frozen=True, slots=True)
class Extent:
    """The source of an index variable's extent."""

    side: str
    """"out", "in", or "given"."""
    position: int
    """Output or input position; for "given", the extent itself."""
    dim: int = 0
    stride: int = 1
    """How many elements of the dim go with one value of the variable."""

    def size(self, sized: NodeView) -> int:
        """The extent for an op's shapes.

        Raises:
            DescriptionError: the dim does not go in such steps.
        """
        if self.side == "given":
            return self.position
        shape = (sized.output_shapes if self.side == "out" else sized.input_shapes)[self.position]
        assert shape is not None, "extents come from tensors that are there"
        if shape[self.dim] % self.stride:
            raise DescriptionError(
                f"op {sized.op.name}: a dim of {shape[self.dim]} elements does not go in steps of {self.stride}"
            )
        return shape[self.dim] // self.stride


def reduced_extent(reduction: Reduce, number: int) -> Extent:
    """The source of the extent of a reduction's variable.

    Args:
        reduction: that binds it.
        number: which of its variables.

    Raises:
        DescriptionError: it is not given, and the variable indexes no dim alone.
    """
    if reduction.extents is not None:
        return Extent("given", reduction.extents[number])
    wanted = reduction.variables[number]
    for value in subvalues(reduction.body):
        if isinstance(value, Access):
            for dim, index in enumerate(value.indices):
                if index == wanted:
                    return Extent("in", value.slot, dim)
    raise DescriptionError(
        f"how far reduction variable {wanted.name} runs is not known",
        hint="no tensor is indexed by it alone: give extents=",
    )
