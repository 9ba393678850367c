"""The rewriting of a training step while it is read: of operators that no runtime has, and of those of older opsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from onnx import ModelProto, defs

from planner.errors import UnsupportedError
from planner.graph.core.attributes import refuse
from planner.graph.core.builder import Builder
from planner.graph.core.model import Attribute, Graph, Op
from planner.graph.decompositions.registry import Purpose, decomposition
from planner.graph.files.protos import op_to_node
from planner.graph.folding.foreign import IN_DEFAULT_DOMAIN
from planner.graph.folding.known import KnownGraph
from planner.graph.folding.restated import Nodes
from planner.graph.reading.from_onnx import graph_from_proto
from planner.graph.reading.load import default_opset
from planner.training import rules
from planner.training.gradients.autodiff import Backward
from planner.training.gradients.older_opsets import OLDEST_OPSET, OPSET, upgraded


@dataclass(frozen=True, slots=True)
class Unrolled:
    """A recurrent op, written out."""

    operands: tuple[str, ...]
    """Its inputs by position, each another tensor; "" where one is absent."""
    outputs: tuple[str, ...]
    """All hidden states, and each last state."""
    ops: tuple[Op, ...]
    """Those that lead from ``operands`` to ``outputs``."""


def read_rewritten(model: ModelProto) -> Graph:
    """The graph of a model in standard operators of a training step's opset.

    Raises:
        ModelError, UnsupportedError: the model is malformed, or an op has no standard form.
    """
    opset = default_opset(model)
    if opset < OLDEST_OPSET:
        raise UnsupportedError(
            f"the model is of opset {opset}; the oldest that is taken is {OLDEST_OPSET}",
            hint="make it again from a forward model of a later opset",
        )
    later = ModelProto()
    later.CopyFrom(model)
    del later.graph.value_info[:]
    for entry in later.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = max(opset, OPSET)
    outputs = {value.name for value in model.graph.output}
    names = outputs.union(*(node.output for node in model.graph.node))
    rewriting = partial(Rewriting, names=names, outputs=outputs, opset=opset)
    return graph_from_proto(later, state_pairs=[], rewriting=rewriting)


class Rewriting(Builder):
    """Emits what stands for ops of a file into the graph that is being read.

    Args:
        graph: what is known of it so far, which its shapes, values and makers are.
        names: of the file's tensors, which nothing that is emitted has.
        outputs: of the file, which have their names where they are emitted.
        opset: of the file.
    """

    def __init__(self, graph: KnownGraph, names: Collection[str], outputs: Collection[str], opset: int) -> None:
        super().__init__(Graph("", {}, (), (), (), {}, opset=graph.opset))
        self.graph, self.tensors, self.constants, self.folded = graph, graph.tensors, graph.values, graph.folded
        self._tensor_names.update(names)
        self._outputs, self._written_at = outputs, opset
        self.unrolled: dict[str, Unrolled] = {}
        """Recurrent ops by the output that holds their gates, which is for the gradient operator alone."""

    def __call__(self, op: Op) -> Nodes | None:
        """The nodes that stand for an op; None where it stays.

        Raises:
            ModelError: a node that its operator would not take.
            UnsupportedError: a form of the operator that is not taken.
        """
        op = replace(op, inputs=tuple(map(self.graph.first_name, op.inputs)))
        first = len(self.ops)
        with self.scope(op.name):
            if rule := decomposition(Purpose.ARTIFACTS, op) or decomposition(Purpose.UPDATE, op):
                self._name_results(op, rule.of_foreign(self, op) or ())
            elif (
                not op.domain and not defs.has(op.op_type, self._written_at, "") and op.op_type not in IN_DEFAULT_DOMAIN
            ):
                raise refuse(op, f"no such operator at opset {self._written_at}")
            elif (standard := upgraded(self, op, self._written_at)) is not op:
                self._append(standard)
            else:
                return None
        emitted = [self._with_name(body_op.renamed(self._final)) for body_op in self.ops[first:]]
        self._emitted_names.clear()  # what the graph has under a name keeps that
        return [(body_op.name, op_to_node(body_op)) for body_op in emitted]

    def _name_results(self, op: Op, results: Sequence[str]) -> None:
        """The outputs of an op get the names that the file has for them."""
        for output, result in zip(op.outputs, results, strict=False):
            if output in self._outputs and result in self._emitted_names - self._final.keys():
                self._final[result] = output
            elif output and result:
                self._append(Op("", "Identity", (result,), (output,)))

    def constant(self, array: np.ndarray, hint: str) -> str:
        """See ``Builder.constant``: it is known as one that the file computes."""
        name = super().constant(array, hint)
        self.graph.foldable.add(name)
        return name

    def made_by(self, name: str, *op_types: str) -> Op | None:
        """The op of these types that makes a tensor, of the file or emitted."""
        return super().made_by(name, *op_types) or self.graph.made_by(name, *op_types)

    def gradients(
        self,
        op: Op,
        op_type: str,
        inputs: tuple[str, ...],
        dy: str,
        *,
        y: str = "",
        attributes: Mapping[str, Attribute] | None = None,
        saved: Mapping[str, str] | None = None,
    ) -> tuple[str, ...]:
        """The gradients of a standard operator's inputs, by its rule; inputs need not have been read by such an op.

        Args:
            op: the gradient operator, of which each output is the gradient of the input at its place.
            op_type: the standard operator.
            inputs: of that operator.
            dy: the gradient of its output.
            y: that output, where the rule looks at it.
            attributes: of that operator.
            saved: what its lowering would have left.
        """
        stated = tuple(sorted((attributes or {}).items(), key=lambda item: item[0]))
        forward = Op(op.name, op_type, inputs, (y or dy,), stated)
        wanted = tuple(any(op.outputs[slot : slot + 1]) for slot in range(len(inputs)))
        gradients = rules.standard()[op_type].function(Backward(self, forward, (dy,), wanted, saved or {}))
        return tuple(gradient or "" for gradient in gradients)
