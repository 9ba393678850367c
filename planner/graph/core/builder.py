"""A graph under construction: names, tensors, constants, ops; ``emitter`` has the operators.

Names tell where a tensor comes from: the emitter opens a scope (``relu_3.backward``) and each op of it makes
``SCOPE.HINT``. The same op on the same operands is emitted once, unless it is random; constants are shared by content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from planner.graph.core.dependence import live_ops
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Graph, Op, Shape, StatePair, Tensor, of_types
from planner.graph.core.traits import DRAWING
from planner.graph.core.wellformed import fresh_name


class Builder(Emitter):
    """Emits ops after one another, and gives the graph of those that its outputs need.

    Args:
        source: what inputs, constants and names are taken from. Its ops are not: see ``replay``.
    """

    def __init__(self, source: Graph) -> None:
        super().__init__("", source.tensors, {}, source.opset)
        self._source = source
        self.tensors |= {name: source.tensors[name] for name in (*source.inputs, *source.constants)}
        self.constants |= source.constants
        self.folded: set[str] = set(source.folded)
        self._tensor_names: set[str] = set(source.tensors)
        self._op_names: set[str] = {op.name for op in source.ops}
        self._emitted_names: set[str] = set()
        self._final: dict[str, str] = {}
        self._memo: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._shared: dict[tuple[str, Shape, bytes], str] = {}
        self._producer: dict[str, Op] = {}
        self._scope = ""

    # names ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Everything emitted inside is named ``name.HINT``."""
        before, self._scope = self._scope, name
        try:
            yield
        finally:
            self._scope = before

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is emitted inside is shared with nothing that is emitted outside.

        For ops that a gradient does not look at, because it passes the one that they stand for: it would end at them.
        """
        before, self._memo = self._memo, {}
        try:
            yield
        finally:
            self._memo = before

    def rename(self, name: str, wanted: str) -> str:
        """Give an emitted tensor the name that it has in the finished graph; only the first call for a tensor counts.

        Returns:
            The name in the finished graph. Until then the tensor goes on under the old one.
        """
        if name in self._emitted_names and name not in self._final:
            self._final[name] = self.reserve(wanted)
        return self._final.get(name, name)

    def output(self, name: str, wanted: str) -> str:
        """Make a tensor an output under this name: by ``rename``, or by an Identity where it has a name already.

        Returns:
            The name in the finished graph: the wanted one, numbered if that is taken.
        """
        if name in self._emitted_names and name not in self._final:
            return self.rename(name, wanted)
        copy = self.one("Identity", [name], self.shape(name), self.dtype(name))
        return self.rename(copy, wanted)

    def reserve(self, wanted: str) -> str:
        """A name that no tensor has."""
        name = fresh_name(wanted, self._tensor_names)
        self._tensor_names.add(name)
        return name

    # tensors -------------------------------------------------------------------------------------------------------

    def is_fixed(self, name: str, number: float) -> bool:
        """Whether a tensor is a constant of this number alone, and no weight."""
        value = self.value(name) if name in self.folded else None
        return value is not None and bool((value == number).all())

    def made_by(self, name: str, *op_types: str) -> Op | None:
        """The op of one of these types of ONNX's own (any, without types) that makes a tensor; None if no such does."""
        return of_types(self._producer.get(name), op_types)

    def declare(self, wanted: str, shape: Shape, dtype: DType) -> str:
        """A new tensor that no emitted op makes: an input, or an output of an op that is replayed."""
        name = self.reserve(wanted)
        self.tensors[name] = Tensor(name, shape, dtype)
        return name

    def take(self, name: str) -> None:
        """A constant becomes an input: from here on its value is not known."""
        self.constants.pop(name)
        self.folded.discard(name)

    # constants -----------------------------------------------------------------------------------------------------

    def constant(self, array: np.ndarray, hint: str) -> str:
        """A constant with this value; one tensor for equal values."""
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._shared:
            self._shared[key] = super().constant(array, hint)
            self.folded.add(self._shared[key])
        return self._shared[key]

    def ints(self, values: Sequence[int], hint: str = "ints") -> str:
        """A rank-1 int64 constant: axes, a shape, bounds."""
        shown = "x".join(str(value) for value in values) if len(values) <= 8 else str(len(values))
        return self.constant(np.array(values, np.int64), f"{hint}.{shown}" if values else hint)

    # ops -----------------------------------------------------------------------------------------------------------

    def part_of(self, hint: str, part: str) -> str:
        """Constants are shared, and named after none of the ops that read them."""
        return part

    def _name(self, hint: str) -> str:
        return self.reserve(hint)

    def _emitted(
        self, op: Op, shapes: Sequence[Shape], dtypes: Sequence[DType], hints: Sequence[str]
    ) -> tuple[str, ...]:
        """Emits an op, or hands back the outputs of an equal one."""
        key = (op.domain, op.op_type, op.inputs, op.attributes)
        if key in self._memo and op.op_type not in DRAWING:
            return self._memo[key]
        scope = f"{self._scope}." if self._scope else ""
        names = super()._emitted(op, shapes, dtypes, [f"{scope}{hint}" for hint in hints])
        self._emitted_names.update(names)
        # Its name is settled with its output's, in ``finish``.
        self._append(replace(self.ops.pop(), name=""))
        self._memo[key] = names
        return names

    def _append(self, op: Op) -> None:
        self.ops.append(op)
        for name in op.outputs:
            if name:
                self._producer[name] = op

    def replay(self, op: Op) -> None:
        """Take over an op of the source, with its names."""
        for name in op.outputs:
            if name:
                self.tensors[name] = self.tensor(name)
        self._append(op)

    def define(self, output: str, tensor: str) -> None:
        """A tensor of the source is made by an emitted op.

        Raises:
            AssertionError: the tensor that was made has another shape or dtype, or is no fresh one.
        """
        expected = self.tensor(output)
        actual = self.tensors[tensor]
        assert actual.kind == expected.kind, f"{output} is {expected}, not {actual}"
        if tensor in self._emitted_names and tensor not in self._final:
            self._final[tensor] = output
        else:
            self._append(Op("", "Identity", (tensor,), (output,)))
        self.tensors[output] = expected

    # the graph -----------------------------------------------------------------------------------------------------

    def rewritten(self) -> Graph:
        """The graph that the builder is of in other ops: with its inputs, outputs, state and notes."""
        source = self._source
        return self.finish(
            inputs=source.inputs,
            outputs=source.outputs,
            state=source.state,
            initial=source.initial,
            opset=source.opset,
            notes=source.notes,
        )

    def finish(
        self,
        *,
        inputs: Sequence[str],
        outputs: Sequence[str],
        state: Sequence[StatePair],
        initial: Mapping[str, np.ndarray | None],
        opset: int,
        notes: Mapping[str, str],
    ) -> Graph:
        """The graph of the ops that lead to the outputs.

        Args:
            inputs: names, those of states included.
            outputs: names as ``rename`` and ``define`` settled them.
            state: pairs of such names.
            initial: values of inputs before the first step.
            opset: version of the default domain.
            notes: metadata.
        """
        live = live_ops([op.renamed(self._final) for op in self.ops], outputs)
        ops = tuple(self._with_name(op) for op in live)
        final = {self._final.get(name, name): tensor for name, tensor in self.tensors.items()}
        names = dict.fromkeys([*inputs, *(name for op in ops for name in (*op.inputs, *op.outputs) if name)])
        constants = {name: value for name, value in self.constants.items() if name in names}
        return Graph(
            name=self._source.name,
            tensors={name: Tensor(name, final[name].shape, final[name].dtype) for name in names},
            ops=ops,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            constants=constants,
            folded=frozenset(self.folded & constants.keys()),
            initial=dict(initial),
            state=tuple(state),
            opset=opset,
            notes=dict(notes),
        )

    def _with_name(self, op: Op) -> Op:
        if op.name:
            return op
        name = fresh_name(f"{op.op_type}.{next(filter(None, op.outputs))}", self._op_names)
        self._op_names.add(name)
        return Op(name, op.op_type, op.inputs, op.outputs, op.attributes, op.domain)
