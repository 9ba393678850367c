"""Tensors that a graph computes from initializers alone, evaluated if a shape or a branch depends on them.

Float initializers are weights, and what is computed from them stays in the graph, for it may change as they are
trained. But a shape is decided before anything runs, by the values that the file has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from planner.graph.core.model import Op, Tensor, of_types
from planner.graph.files.protos import op_to_node
from planner.graph.folding.evaluate import FOLDABLE, MAX_FOLDED_ELEMENTS, evaluate
from planner.walk import walk


class Derived:
    """Tensors that depend on no input.

    Args:
        values: of every constant that has one, by name; those that are worked out are not added.
        opset: version of the default domain.
        most: elements of what is worked out.
    """

    def __init__(self, values: Mapping[str, np.ndarray | None], opset: int, *, most: int = MAX_FOLDED_ELEMENTS) -> None:
        self._limit = most
        self._values = values
        self._opset = opset
        self._made_by: dict[str, Op] = {}
        self._results: dict[str, np.ndarray | None] = {}

    def note(self, op: Op, outputs: Iterable[Tensor | None]) -> None:
        """An op that stays in the graph; it is remembered if it reads no more than what is derived."""
        if self._may_derive(op) and all(tensor is not None and tensor.elements <= self._limit for tensor in outputs):
            self._made_by.update((name, op) for name in op.outputs if name)

    def covers(self, name: str) -> bool:
        """Whether a tensor depends on no input, as far as it can be computed here."""
        value = self._values.get(name)
        return name in self._made_by or (value is not None and value.size <= self._limit)

    def sources(self, name: str) -> frozenset[str]:
        """The constants that a derived tensor is computed from; of a constant, itself."""
        return frozenset(_behind(name, self._made_by) - self._made_by.keys())

    def maker(self, name: str) -> Op | None:
        """The op that makes a derived tensor; None for a constant."""
        return self._made_by.get(name)

    def value(self, name: str) -> np.ndarray | None:
        """The value of a tensor; None if it depends on an input, or the evaluator cannot tell."""
        pending = [name]
        while pending:
            op = self._made_by.get(pending[-1])
            missing = [] if op is None else [source for source in op.inputs if not self._is_settled(source)]
            if op is None or self._is_settled(pending[-1]):
                pending.pop()
            elif missing:
                pending.extend(missing)
            else:
                results = self._evaluated(op)
                self._results.update(zip(op.outputs, results or (None,) * len(op.outputs), strict=True))
        return self._value(name)

    def _may_derive(self, op: Op) -> bool:
        return of_types(op, FOLDABLE) is not None and all(self.covers(name) for name in op.inputs if name)

    def _is_settled(self, name: str) -> bool:
        return name in self._results or name not in self._made_by

    def _value(self, name: str) -> np.ndarray | None:
        return self._results[name] if name in self._results else self._values.get(name)

    def _evaluated(self, op: Op) -> tuple[np.ndarray, ...]:
        operands = [self._value(name) if name else None for name in op.inputs]
        if any(operand is None for operand, name in zip(operands, op.inputs, strict=True) if name):
            return ()
        results = evaluate(op_to_node(op), operands, self._opset) or ()
        return results if len(results) == len(op.outputs) else ()


def inputs_behind(name: str, ops: Iterable[Op], inputs: Iterable[str]) -> tuple[str, ...]:
    """The inputs that a tensor depends on, in their order.

    Args:
        name: of the tensor.
        ops: in execution order; what makes it is among them.
        inputs: of the graph.
    """
    behind = _behind(name, {output: op for op in ops for output in op.outputs})
    return tuple(input_name for input_name in inputs if input_name in behind)


def _behind(name: str, made_by: Mapping[str, Op]) -> set[str]:
    """The tensors that a tensor is computed from, and itself."""
    return set(walk([name], lambda source: filter(None, made_by[source].inputs) if source in made_by else ()))
