"""An op that nobody describes, executed whole by every worker: it reads all of its inputs and makes all of its outputs.

It has no index variables, so there is nothing to cut it along; what it costs is that its inputs are brought to every
worker whole, and that all of them do the same work.
"""

from __future__ import annotations

from planner.errors import DescriptionError
from planner.tdl.analyse import Analysis, Read
from planner.tdl.builder import Description, NodeView
from planner.tdl.work import Work


def whole_description(domain: str, op_type: str) -> Description:
    """The stand-in for the description of an operator that has none."""

    def undescribed(node: NodeView, *inputs: object) -> None:
        raise DescriptionError(f"operator {op_type} has no description")

    return Description((op_type,), undescribed, domain)


def whole_analysis(node: NodeView) -> Analysis:
    """The analysis of an unknown op, for all sizes."""
    ranks = [None if shape is None else len(shape) for shape in node.input_shapes]
    return Analysis(
        variables=(),
        outputs=tuple(None if shape is None else () for shape in node.output_shapes),
        reads=tuple(
            Read(slot, (None,) * rank, (), ((),) * rank) for slot, rank in enumerate(ranks) if rank is not None
        ),
        is_elementwise=False,
        is_opaque=True,
        work=(Work(1),),
    )
