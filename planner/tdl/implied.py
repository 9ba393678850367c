"""Shapes of outputs that a description implies, for operators whose shapes ONNX cannot infer.

Where an output's index variable stands alone as the index of an input's dim, the output's dim has that size: of
``lambda m, n: Sum(lambda k: A[m, k] * B[k, n])`` the sizes are those of A's first and B's second dim. A starred
variable stands for as many dims as fit, if only one number does.
"""

from __future__ import annotations

from dataclasses import replace

from planner.errors import DescriptionError
from planner.graph.core.model import Shape
from planner.tdl.builder import Description, NodeView
from planner.tdl.expr import Access, Output, subvalues
from planner.tdl.terms import RankError


def implied_shapes(description: Description, node: NodeView) -> tuple[Shape | None, ...]:
    """The shape of each output, in order; None where the description does not imply one.

    Args:
        description: of the op.
        node: the op; its ``output_shapes`` say only which outputs there are.

    Raises:
        DescriptionError: a user's description of a single output fails, whatever rank that has.
    """
    max_rank = max((len(shape) for shape in node.input_shapes if shape is not None), default=0) + 1
    shapes: list[Shape | None] = []
    for position, shape in enumerate(node.output_shapes):
        tried = [_traced(description, node, position, rank) for rank in range(max_rank + 1) if shape is not None]
        fitting = [output for output in tried if isinstance(output, Output)]
        faults = {str(output): output for output in tried if isinstance(output, DescriptionError)}
        # Another output's rank is not known here, so that a description of several may fail for the lack of it.
        if not fitting and len(faults) == len(node.output_shapes) == 1 and not description.is_shipped:
            raise next(iter(faults.values()))
        shapes.append(_sizes(fitting[0], node) if len(fitting) == 1 else None)
    return tuple(shapes)


def _traced(description: Description, node: NodeView, position: int, rank: int) -> Output | DescriptionError | None:
    """What a description makes of an output if it had that rank, or its error; None if it cannot have it."""
    alone = tuple((1,) * rank if number == position else None for number in range(len(node.output_shapes)))
    try:
        outputs = description.trace(replace(node, output_shapes=alone, questions=set(), derived={}))
    except Exception as error:  # noqa: BLE001 -- it is tried on ranks that are not the op's
        is_misfit = isinstance(error.__cause__, RankError | IndexError)
        return error if isinstance(error, DescriptionError) and not is_misfit else None
    return outputs[position] if position < len(outputs) else None


def _sizes(output: Output, node: NodeView) -> Shape | None:
    sizes: list[int] = []
    accesses = [value for value in subvalues(output.value) if isinstance(value, Access) and value.fill is None]
    for variable in output.variables:
        extents: set[int] = set()
        for access in accesses:
            shape = node.input_shape(access.slot)
            extents |= {shape[dim] for dim, index in enumerate(access.indices) if index == variable}
        if len(extents) != 1:
            return None
        sizes.append(extents.pop())
    return tuple(sizes)
