"""The descriptions in force, and the ops that they are applied to.

An op is told by its signature: by what its description asks of it. The analysis of a signature is made once and shared
by every op that has it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import DescriptionError, ModelError, UnsupportedError
from planner.graph.core.model import Graph, Implied, Op, Shape, Tensor
from planner.graph.folding.undescribed import undescribed_error
from planner.graph.step.deliveries import is_delivery
from planner.tdl.analyse import Analysis, analyse
from planner.tdl.bind import BoundOp, Content
from planner.tdl.builder import Derivation, Description, NodeView
from planner.tdl.delivered import delivered
from planner.tdl.implied import implied_shapes
from planner.tdl.whole import whole_analysis, whole_description


class Descriptions:
    """The descriptions in force, and the analyses made of them so far."""

    def __init__(
        self,
        descriptions: Iterable[Description],
        *,
        repeats_unknown: bool = False,
        reasons: Mapping[str, str] | None = None,
        own: Iterable[Description] = (),
    ) -> None:
        """Collects descriptions.

        Args:
            descriptions: one or more operators each.
            repeats_unknown: an op without a description is executed whole by every worker, and not refused.
            reasons: by operator of the default domain, why it has no description.
            own: those of the descriptions that are the user's.

        Raises:
            DescriptionError: an op type is described twice.
        """
        self.repeats_unknown = repeats_unknown
        self.own = frozenset(key for description in own for key in description.keys)
        self._reasons = {("", op_type): reason for op_type, reason in (reasons or {}).items()}
        self._by_type: dict[tuple[str, str], Description] = {}
        self._questions: dict[object, _Questions] = {}
        self._analyses: dict[object, Analysis] = {}
        self._contents: dict[object, Content] = {}
        for description in descriptions:
            for key in description.keys:
                if self._by_type.setdefault(key, description) is not description:
                    raise DescriptionError(f"operator {key[1]} is described twice")

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._by_type

    @property
    def described(self) -> tuple[tuple[str, str], ...]:
        """(domain, op type) of every operator that has a description, sorted."""
        return tuple(sorted(self._by_type))

    def description(self, domain: str, op_type: str) -> Description:
        """The description of an operator; KeyError where it has none."""
        return self._by_type[domain, op_type]

    def takes(self, domain: str, op_type: str) -> bool:
        """True if ops of this type can be planned: they are described, or may be executed whole."""
        return self.repeats_unknown or (domain, op_type) in self._by_type

    @property
    def reasons(self) -> Mapping[tuple[str, str], str]:
        """The reason why an operator has no description, by (domain, op type)."""
        return self._reasons

    def is_unknown(self, op: BoundOp) -> bool:
        """True if an op has no description and is executed whole."""
        return not is_delivery(op.op) and (op.op.domain, op.op.op_type) not in self._by_type

    def implied_outputs(
        self, op: Op, tensors: Mapping[str, Tensor], constants: Mapping[str, np.ndarray | None], opset: int
    ) -> tuple[Implied | None, ...]:
        """Shape and dtype of each output of an op, in order, as far as its description implies them.

        Args:
            op: all of whose inputs are in ``tensors``.
            tensors: by name; outputs need not be among them.
            constants: values that are known.
            opset: version of the default operator domain.

        Raises:
            ModelError: the op contradicts its inputs.
            DescriptionError: a user's description is wrong.
        """
        description = self._by_type.get((op.domain, op.op_type))
        if description is None:
            return (None,) * len(op.outputs)
        present = tuple(() if name else None for name in op.outputs)
        node = _view(op, tensors, present, constants, opset)
        if description.results is not None:
            try:
                return description.stated_results(node)
            except DescriptionError as error:
                if not description.is_shipped:
                    raise
                raise ModelError(
                    f"its inputs or attributes are not those of the operator ({error.__cause__})"
                ) from error
        shapes = implied_shapes(description, node)
        return tuple(None if shape is None else (shape, None) for shape in shapes)

    @property
    def analyses_made(self) -> int:
        """The number of analysed signatures."""
        return len(self._analyses)

    def bind_all(self, graph: Graph, bound_ops: Sequence[BoundOp] = ()) -> tuple[BoundOp, ...]:
        """Applies a description to every op of the graph.

        Args:
            graph: whose ops are to be described.
            bound_ops: ops with their descriptions, of nearly the same graph: those that are as they were are taken.

        Raises:
            UnsupportedError: operators without a description, all of them at once.
            DescriptionError: a description that cannot be analysed.
        """
        unknown = [op for op in graph.ops if not (self.takes(op.domain, op.op_type) or is_delivery(op))]
        if unknown:
            raise undescribed_error(unknown, self._reasons)
        bound = {op.op.name: op for op in bound_ops}
        return tuple(
            bound[op.name] if op.name in bound and bound[op.name].op == op else self.bind(op, graph) for op in graph.ops
        )

    def bind(self, op: Op, graph: Graph) -> BoundOp:
        """Applies the description of an op's type to the op.

        Raises:
            DescriptionError: the description cannot be analysed, or does not fit the op.
        """
        shapes = tuple(graph.tensors[name].shape if name else None for name in op.outputs)
        node = _view(op, graph.tensors, shapes, graph.constants, graph.opset)
        description = delivered if is_delivery(op) else self._by_type.get((op.domain, op.op_type))
        if description is None:
            assert self.repeats_unknown, f"{op.op_type} has no description"
            analysis = self._whole_analysis(node)
            content = self._content(node, analysis, ())
            return BoundOp(node, whole_description(op.domain, op.op_type), analysis, (), content)
        analysis = self._analyse(description, node)
        extents = tuple(variable.extent.size(node) for variable in analysis.variables)
        if 0 in extents and any(graph.tensors[name].elements for name in op.outputs if name):
            empty = [name for name in op.inputs if name and not graph.tensors[name].elements]
            raise UnsupportedError(
                f"op {op.name} ({op.op_type}) makes elements of none: it has nothing to be divided by",
                facts=tuple(f"{name!r}: {list(graph.tensors[name].shape)}" for name in empty),
                hint="replace its results by the constants that they are",
            )
        return BoundOp(
            node, description, analysis, extents, self._content(node, analysis, extents), graph.lanes.get(op.name)
        )

    def _content(self, node: NodeView, analysis: Analysis, extents: tuple[int, ...]) -> Content:
        key = (
            id(analysis),
            extents,
            node.input_shapes,
            node.output_shapes,
            node.input_dtypes,
            node.output_dtypes,
        )
        return self._contents.setdefault(key, Content())

    def _whole_analysis(self, node: NodeView) -> Analysis:
        ranks = tuple(
            tuple(None if shape is None else len(shape) for shape in shapes)
            for shapes in (node.input_shapes, node.output_shapes)
        )
        return self._analyses.setdefault(("whole", ranks), whole_analysis(node))

    def _analyse(self, description: Description, node: NodeView) -> Analysis:
        family = (
            node.op.domain,
            node.op.op_type,
            node.opset,
            node.op.attributes,
            tuple(None if shape is None else len(shape) for shape in node.input_shapes),
            tuple(None if shape is None else len(shape) for shape in node.output_shapes),
        )
        questions = self._questions.get(family)
        if questions is not None:
            cached = self._analyses.get((family, _answers(questions, node)))
            if cached is not None:
                return cached
        outputs = description.trace(node)
        present = tuple(shape is not None for shape in node.output_shapes)
        with description.blamed(node):
            if len(outputs) < len(present):
                raise DescriptionError(f"{len(present)} outputs, {len(outputs)} described")
            analysis = analyse(outputs[: len(present)], present)
        # Equal answers to the first op's questions do not make ops equal: the next one may be asked for more.
        before = questions or _Questions((), ())
        everything = _Questions(
            tuple(sorted({*before.values, *node.questions})), tuple(dict.fromkeys((*before.derived, *node.derived)))
        )
        self._questions[family] = everything
        self._analyses[family, _answers(everything, node)] = analysis
        return analysis


def _view(
    op: Op,
    tensors: Mapping[str, Tensor],
    output_shapes: tuple[Shape | None, ...],
    constants: Mapping[str, np.ndarray | None],
    opset: int,
) -> NodeView:
    return NodeView(
        op,
        tuple(tensors[name].shape if name else None for name in op.inputs),
        output_shapes,
        tuple(constants.get(name) if name else None for name in op.inputs),
        input_dtypes=tuple(tensors[name].dtype if name else None for name in op.inputs),
        output_dtypes=tuple(tensors[name].dtype if name in tensors else None for name in op.outputs),
        opset=opset,
    )


@dataclass(frozen=True, slots=True)
class _Questions:
    """The questions of a family's descriptions about their ops: the answers tell signatures apart."""

    values: tuple[tuple[str, int, int], ...]
    """As in ``NodeView.questions``, sorted."""
    derived: tuple[Derivation, ...]


def _answers(questions: _Questions, node: NodeView) -> tuple[Hashable, ...]:
    answers: list[Hashable] = [node.answer(function) for function in questions.derived]
    for side, position, dim in questions.values:
        if side == "constant":
            value = node.constants[position] if position < len(node.constants) else None
            answers.append(None if value is None else f"{value.dtype}{value.shape}{value.tobytes().hex()}")
        elif side == "single":
            input_shape = node.input_shapes[position]
            answers.append(None if input_shape is None else int(input_shape[dim] == 1))
        else:
            shape = (node.input_shapes if side == "in" else node.output_shapes)[position]
            answers.append(None if shape is None else shape[dim])
    return tuple(answers)
