"""New ops with names in one scope: what graph passes write bodies of standard operators with."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.graph.core.dependence import live_ops
from planner.graph.core.model import DType, Op, Shape, Tensor
from planner.graph.core.writer import Writer

_DTYPES: Mapping[str, DType] = {dtype.value: dtype for dtype in DType}


class Emitter(Writer):
    """Ops, tensors and constants under construction.

    Names are ``prefix + part``, numbered from the second of a part on: they depend on nothing outside of the scope.

    Args:
        prefix: begins every name; no tensor and no op of the graph begins with it.
        graph_tensors: tensors of the graph that may be read.
        values: of the graph's constants.
        opset: version of the default operator domain.
        workers: how many a plan is for; 1 where it is not known.
        block: channels that lie together in what the device's convolutions read fastest; 0 if none do.
    """

    def __init__(
        self,
        prefix: str,
        graph_tensors: Mapping[str, Tensor],
        values: Mapping[str, np.ndarray | None],
        opset: int,
        *,
        workers: int = 1,
        block: int = 0,
    ) -> None:
        self.prefix = prefix
        self.opset = opset
        self.workers = workers
        self.block = block
        self.tensors: dict[str, Tensor] = {}
        """What is new."""
        self.constants: dict[str, np.ndarray] = {}
        self.ops: list[Op] = []
        self._graph_tensors = graph_tensors
        self._values = values

    # tensors -------------------------------------------------------------------------------------------------------

    def tensor(self, name: str) -> Tensor:
        """A tensor of the graph or a new one."""
        return self.tensors[name] if name in self.tensors else self._graph_tensors[name]

    def value(self, name: str) -> np.ndarray | None:
        """The value of a constant; None if the tensor is none, or was not loaded."""
        return self.constants[name] if name in self.constants else self._values.get(name)

    def constant(self, array: np.ndarray, part: str) -> str:
        """A new constant."""
        name = self._name(part)
        array = np.ascontiguousarray(array).reshape(array.shape)
        array.flags.writeable = False
        self.tensors[name] = Tensor(name, array.shape, _DTYPES[array.dtype.name])
        self.constants[name] = array
        return name

    # ops -----------------------------------------------------------------------------------------------------------

    def _emitted(self, op: Op, shapes: Sequence[Shape], dtypes: Sequence[DType], hint: str) -> tuple[str, ...]:
        """Emits an op, which has its first output's name. A hint of several outputs is their hints."""
        parts = [hint or op.op_type.lower()] if len(shapes) == 1 else hint.split()
        names = tuple(map(self._name, parts))
        for name, shape, dtype in zip(names, shapes, dtypes, strict=True):
            self.tensors[name] = Tensor(name, tuple(shape), dtype)
        self.ops.append(replace(op, name=names[0], outputs=names))
        return names

    def part_of(self, hint: str, part: str) -> str:
        """Names are those of one op each."""
        return f"{hint}.{part}" if hint else part

    def standing_for(self, op: Op, results: Sequence[str]) -> tuple[Op, ...]:
        """The emitted ops that an op's outputs need, the last ones under the names of the outputs.

        Args:
            op: which they stand for.
            results: an emitted tensor for each output, in order; those of outputs that are absent do not matter.
        """
        outputs = {name: output for name, output in zip(results, op.outputs, strict=False) if output}
        return tuple(body_op.renamed(outputs) for body_op in live_ops(self.ops, outputs))

    def _name(self, part: str) -> str:
        name, number = f"{self.prefix}{part}", 2
        while name in self.tensors:
            name, number = f"{self.prefix}{part}.{number}", number + 1
        return name


def free_prefix(wanted: str, names: Sequence[str]) -> str:
    """``wanted``, or that with a number before its last letter, so that no name begins with it.

    Args:
        wanted: what the prefix should be.
        names: sorted.
    """
    prefix, number = wanted, 2
    while _begins_a_name(prefix, names):
        prefix = f"{wanted[:-1]}.{number}{wanted[-1]}"
        number += 1
    return prefix


def _begins_a_name(prefix: str, names: Sequence[str]) -> bool:
    position = bisect_left(names, prefix)
    return position < len(names) and names[position].startswith(prefix)
