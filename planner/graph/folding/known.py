"""Facts of a graph during folding: static types, values, what follows from them, and the ops that stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from planner.graph.core.model import Op, Tensor, dtype_of_array, of_types
from planner.graph.core.wellformed import fresh_name
from planner.graph.files.protos import op_to_node
from planner.graph.folding.derived import Derived, inputs_behind
from planner.graph.folding.evaluate import evaluate

_FEW_NUMBERS: Final = 8
"""So many a user would state on a command line."""
_FEW_FLOATS: Final = 64
"""More of them are weights, and no scales, bounds or borders."""


class KnownGraph:
    """The facts of a graph before the first op: inputs and initializers. The walk over the graph adds the rest.

    Args:
        inputs: the graph's inputs.
        initializers: constants by name.
        values: the constants' values; None where external.
        computed: initializers that an earlier folding made: values like any other, not weights.
        opset: version of the default domain.
        written_at: that version as the file has it, which may be later than the runtime's last one.
    """

    def __init__(
        self,
        inputs: Mapping[str, Tensor],
        initializers: Mapping[str, Tensor],
        values: Mapping[str, np.ndarray | None],
        computed: frozenset[str],
        opset: int,
        written_at: int,
    ) -> None:
        self.inputs = inputs
        self.initializers = initializers
        self.opset = opset
        self.written_at = written_at
        self.tensors: dict[str, Tensor] = {**initializers, **inputs}
        self.values: dict[str, np.ndarray | None] = dict(values)
        """Every constant."""
        self.foldable: set[str] = set()
        """Those of them that may be computed from; no floats that are stated, for they may be weights."""
        self.scalars: set[str] = set()
        """Float initializers of rank 0: computed from where an operand besides them is foldable."""
        self.folded: set[str] = set(computed)
        self.sequences: dict[str, tuple[str, ...]] = {}
        """By sequence the tensors that are its elements."""
        self.aliases: dict[str, str] = {}
        """Names of tensors that are handed on unchanged; by each, the first name."""
        self.ops: list[Op] = []
        """Those that stay, in execution order."""
        self.makers: dict[str, Op] = {}
        """By tensor the op of these that makes it."""
        self._derived = Derived(self.values, opset)
        # A float that the file states may be a weight to be trained: folding it into others would freeze it.
        for name, tensor in initializers.items():
            if values[name] is None:
                continue
            if not tensor.dtype.is_float or name in computed:
                self.foldable.add(name)
            elif tensor.shape == ():
                self.scalars.add(name)
        for tensor in inputs.values():
            if not tensor.elements:
                self.know_empty(tensor, is_kept=True)

    def first_name(self, name: str) -> str:
        """The name under which a tensor is made or given."""
        return self.aliases.get(name, name)

    def know(self, name: str, value: np.ndarray) -> None:
        """A constant that the file computes."""
        value.flags.writeable = False
        self.tensors[name] = Tensor(name, value.shape, dtype_of_array(value))
        self.values[name] = value
        self.foldable.add(name)
        self.folded.add(name)

    def know_weight(self, name: str, value: np.ndarray) -> None:
        """A constant that is a weight, whatever made it."""
        self.know(name, value)
        self.foldable.discard(name)
        self.folded.discard(name)

    def know_empty(self, tensor: Tensor, *, is_kept: bool) -> None:
        """A tensor without elements is known, whatever makes it, and nothing of it can be given to a worker.

        Where it stays a tensor (an input, one output of several), those that read it read a constant in its place.
        """
        names = [tensor.name]
        if is_kept:
            self.aliases[tensor.name] = fresh_name(f"{tensor.name}.empty", self.tensors)
            names.append(self.aliases[tensor.name])
        for name in names:
            self.know(name, np.empty(tensor.shape, tensor.dtype.array_dtype))

    def keep(self, op: Op) -> None:
        """An op stays; it reads its operands by their first names."""
        self.ops.append(replace(op, inputs=tuple(self.first_name(operand) for operand in op.inputs)))
        self.makers.update(dict.fromkeys(filter(None, op.outputs), self.ops[-1]))

    def keep_typed(self, op: Op, types: Mapping[str, Tensor | None]) -> None:
        """An op stays, and its outputs' static types are these."""
        self.tensors.update((name, tensor) for name, tensor in types.items() if tensor is not None)
        self.keep(op)
        self._derived.note(self.ops[-1], types.values())

    def made_by(self, name: str, *op_types: str) -> Op | None:
        """The op of one of these types of ONNX's own (any, without types) that makes a tensor, and stays; else None."""
        return of_types(self.makers.get(name), op_types)

    def value_of(self, name: str) -> np.ndarray | None:
        """The value of a tensor that depends on no input; None of one that does."""
        return self._derived.value(self.first_name(name))

    def is_stated(self, name: str) -> bool:
        """Whether a tensor is computed from what is foldable and from scalars, and from no weight to be trained."""
        return self._derived.sources(self.first_name(name)) <= self.foldable | self.scalars

    def deciders(self, name: str) -> tuple[str, ...]:
        """The inputs that a tensor depends on, if they are so few and small that one would state their values."""
        names = inputs_behind(self.first_name(name), self.ops, self.inputs)
        return names if all(self.tensors[name].elements <= _FEW_NUMBERS for name in names) else ()

    def deciding(self, op: Op) -> tuple[Sequence[str], Sequence[str]]:
        """Operands that depend on no input and may decide shapes: those that are no floats, and a few that are."""
        names = [name for name in op.inputs if name and self._derived.covers(self.first_name(name))]
        floats = [name for name in names if self.tensors[name].dtype.is_float]
        numbers = [name for name in floats if self.tensors[name].elements <= _FEW_FLOATS]
        return [name for name in names if name not in floats], numbers

    def settle(self, op: Op) -> bool:
        """Has the outputs of an op known that depends on no input, and whether they are.

        For an op whose outputs' sizes are what its operands' values say, so that it cannot stay.
        """
        operands = [name for name in op.inputs if name]
        if not operands or not all(self._derived.covers(self.first_name(name)) for name in operands):
            return False
        results = evaluate(op_to_node(op), [self.value_of(name) if name else None for name in op.inputs], self.opset)
        if results is None or len(results) != len(op.outputs):
            return False
        for name, result in zip(op.outputs, results, strict=True):
            if name:
                self.know(name, result.view())
        return True

    def demand(self, names: Sequence[str]) -> bool:
        """Has tensors known that depend on no input, and whether there were such and they all are.

        An initializer is as known as it was: nothing more is computed from a weight.
        """
        for name in names:
            source = self.first_name(name)
            op, value = self._derived.maker(source), self._derived.value(source)
            if value is None:
                return False
            if op is not None and source not in self.foldable:
                self.ops = [survivor for survivor in self.ops if survivor.name != op.name]
                for output in op.outputs:
                    self.makers.pop(output, None)
                    if (array := self._derived.value(output)) is not None:
                        self.know(output, array)
            if op is not None:
                self.values[name] = value
                self.foldable.add(name)
        return bool(names)
