"""Readers of a constant, and its use by them.

A constant is often not read where it works: a weight is transposed first, a class token expanded, a kernel normalised
by its own norm. So a constant is followed through every op whose other operands depend on no input, and through those
that only lay elements out anew, to the ops at which it meets data. Each such op says what the constant is to it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from planner.graph.core.dependence import computed_from, sources
from planner.graph.core.model import Graph, Op, Shape, of_types
from planner.graph.core.traits import ANGLES, COMPARISONS, CONVOLUTIONS, COPYING, MOVING, NORMS, RECURRENT, STATISTICS


class Use(enum.Enum):
    """The use of a constant by an op that reads it."""

    PRODUCT = "product"
    """An operand of a product: MatMul, Gemm, Einsum."""
    KERNEL = "convolution"
    """The kernel of a convolution, the weights of a recurrent network."""
    NORM = "norm"
    """Scale or bias of a normalisation."""
    TABLE = "table"
    """What is looked up in."""
    BIAS = "bias"
    """Added to data."""
    SCALE = "scale"
    """Multiplied with data, element by element."""
    INPUT_SCALE = "input scale"
    """Added to an input of the model or multiplied with it, before any layer: a normalisation of data, perhaps."""
    PART = "part"
    """Put beside data: a class token."""
    STATISTIC = "statistic"
    """A running mean or variance."""
    FIXED = "fixed"
    """Read by what no layer reads its parameters by: Where, Cast to integers, sines, sizes, operators without body."""
    UNCLEAR = "unclear"
    """Read by an op that tells nothing: Sub, Div, Pow."""


LEARNED: Final = frozenset({Use.PRODUCT, Use.KERNEL, Use.NORM, Use.TABLE, Use.BIAS, Use.SCALE, Use.PART})
"""Uses by which layers read their parameters."""


@dataclass(frozen=True, slots=True)
class Reader:
    """An op at which a constant meets data."""

    use: Use
    op_type: str
    op: str
    """Its name."""
    shape: Shape
    """Of what the op reads: the constant, or what is made of it."""


_LAYOUT: Final = COPYING | MOVING | {"Dropout"}
"""Operators that hand on their first operand's elements, laid out anew or some of them left out."""


def _at(use: Use, *positions: int) -> dict[int, Use]:
    return dict.fromkeys(positions, use)


_USES: Final[Mapping[str, Mapping[int, Use]]] = MappingProxyType(
    {
        "MatMul": _at(Use.PRODUCT, 0, 1),
        "Gemm": _at(Use.PRODUCT, 0, 1) | _at(Use.BIAS, 2),
        "Einsum": _at(Use.PRODUCT, *range(16)),
        **dict.fromkeys(CONVOLUTIONS, _at(Use.KERNEL, 1) | _at(Use.BIAS, 2)),
        "DeformConv": _at(Use.KERNEL, 1) | _at(Use.BIAS, 3),
        **dict.fromkeys(RECURRENT, _at(Use.KERNEL, 1, 2) | _at(Use.BIAS, 3, 5, 6) | _at(Use.SCALE, 7)),
        **dict.fromkeys(NORMS, _at(Use.NORM, 1, 2)),
        **{name: _at(Use.NORM, 1, 2) | _at(Use.STATISTIC, *slots.values()) for name, slots in STATISTICS.items()},
        "RMSNormalization": _at(Use.NORM, 1),
        "PRelu": _at(Use.SCALE, 1),
        **dict.fromkeys(("Gather", "GatherElements", "GatherND"), _at(Use.TABLE, 0)),
        **dict.fromkeys(("Add", "Sum"), _at(Use.BIAS, *range(64))),
        "Mul": _at(Use.SCALE, 0, 1),
        "Concat": _at(Use.PART, *range(64)),
        "Attention": _at(Use.PRODUCT, 0, 1, 2) | _at(Use.FIXED, 3, 4, 5, 6),
        "Where": _at(Use.FIXED, 0, 1, 2),
        "Resize": _at(Use.FIXED, 1, 2),
        "RotaryEmbedding": _at(Use.FIXED, 1, 2),
        "Clip": _at(Use.FIXED, 1, 2),
        "STFT": _at(Use.FIXED, 2),
        **dict.fromkeys(("MaxRoiPool", "RoiAlign"), _at(Use.FIXED, 1)),
        **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _at(Use.FIXED, 1)),
        **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _at(Use.FIXED, 2)),
        **dict.fromkeys(ANGLES, _at(Use.FIXED, 0)),
        **dict.fromkeys(COMPARISONS, _at(Use.FIXED, 0, 1)),
    }
)
"""What a constant is to an operator that also reads data, by the constant's position."""


def statistic_slots(graph: Graph, constant: str) -> frozenset[int | None]:
    """The slots of running statistics by which ops read a constant; None stands for all others."""
    return frozenset(
        slot if slot in STATISTICS.get(op.op_type, {}).values() else None
        for op in graph.consumers[constant]
        for slot in op.slots(constant)
    )


class Readers:
    """The readers of a forward graph's constants."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def _data(self) -> frozenset[str]:
        """Tensors that depend on an input, or are drawn."""
        drawn = [name for op in self.graph.ops if not any(op.inputs) for name in op.outputs]
        return computed_from(self.graph, (*self.graph.inputs, *drawn))

    @cached_property
    def _counted(self) -> frozenset[str]:
        """Tensors that depend on inputs of integers alone, and on no table that these look up in: positions, times."""
        tensors = self.graph.tensors
        names = {name for name in self.graph.inputs if not tensors[name].dtype.is_float}
        for op in self.graph.ops:
            dynamic = [name for name in op.inputs if name in self._data]
            looks_up = op.op_type.startswith("Gather") and tensors[op.inputs[0]].dtype.is_float
            if dynamic and not looks_up and all(name in names for name in dynamic):
                names.update(op.outputs)
        return frozenset(names)

    def of(self, constant: str) -> tuple[Reader, ...]:
        """The ops at which a constant meets data, in execution order; () where it goes to outputs alone, or nowhere."""
        readers: dict[tuple[str, Use], Reader] = {}
        seen, pending = {constant}, [constant]
        while pending:
            name = pending.pop()
            for op in self.graph.consumers[name]:
                uses = {use for slot in op.slots(name) if (use := self._use(op, slot)) is not None}
                for use in sorted(uses, key=lambda use: use.value):
                    shape = self.graph.tensors[name].shape
                    readers.setdefault((op.name, use), Reader(use, op.op_type, op.name, shape))
                if uses:
                    continue
                following = [output for output in op.outputs if output and output not in seen]
                seen.update(following)
                pending += following
        order = {op.name: index for index, op in enumerate(self.graph.ops)} if len(readers) > 1 else {}
        return tuple(sorted(readers.values(), key=lambda reader: order.get(reader.op, 0)))

    def _use(self, op: Op, position: int) -> Use | None:
        """What a tensor, made of constants alone, is to an op; None where its results are followed instead."""
        # No gradient passes an operator that ONNX does not define.
        use = Use.FIXED if op.domain else _USES.get(op.op_type, {}).get(position, Use.UNCLEAR)
        if use is Use.FIXED:
            return use
        if of_types(op, _LAYOUT) and position == 0:
            return None if self._is_float(op.outputs) else Use.FIXED
        data = [name for name in op.inputs if name in self._data]
        if not data:
            return None if self._is_float(op.outputs) else Use.FIXED
        if use in (Use.PRODUCT, Use.BIAS, Use.SCALE) and self._is_angle(op, use, data):
            return Use.FIXED
        if use in (Use.BIAS, Use.SCALE) and len(op.inputs) == 2 and self._is_input(data[0]):
            return Use.INPUT_SCALE
        return use

    def _is_input(self, name: str) -> bool:
        """Whether a tensor is an input of the model, at most laid out anew."""
        return sources(self.graph, name, _LAYOUT)[-1] in self.graph.inputs

    def _is_float(self, names: Iterable[str]) -> bool:
        return any(self.graph.tensors[name].dtype.is_float for name in names if name)

    def _is_angle(self, op: Op, use: Use, data: Iterable[str]) -> bool:
        """Whether an op makes angles: what only sines and cosines read.

        A product with data is a layer all the same (a network of sines); one with counted positions is none.
        """
        if use is Use.PRODUCT and not all(name in self._counted for name in data):
            return False
        return self._leads_to_sines(op)

    def _leads_to_sines(self, op: Op) -> bool:
        pending, is_read = [op], False
        while pending:
            for name in pending.pop().outputs:
                if name in self.graph.outputs:
                    return False
                for reader in self.graph.consumers.get(name, ()):
                    if reader.op_type in ("Sin", "Cos"):
                        is_read = True
                    elif reader.op_type in _LAYOUT | {"Add", "Concat", "Mul"}:
                        pending.append(reader)
                    else:
                        return False
        return is_read
