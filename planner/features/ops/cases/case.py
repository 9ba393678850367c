"""A case of an operator: one op with its operands, bound or executed.

Random inputs are of mixed sign, so that a wrong reducer shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from planner.features.ops.execute import NoKernelError, execute
from planner.graph.core.model import Attribute, Graph, Op, Shape, Tensor, dtype_of_array
from planner.graph.core.model import qualified as qualified
from planner.graph.folding.foreign import foreign_outputs
from planner.tdl.bind import BoundOp
from planner.tdl.descriptions import Descriptions
from planner.tdl.local import LocalNode, LocalOp

OPSET: Final = 21
"""The opset of a case that states none."""


@dataclass(frozen=True, slots=True)
class Given:
    """An input that the graph computes, with random values."""

    shape: Shape
    dtype: str = "float32"
    low: float = -2.0
    high: float = 3.0
    """Of mixed sign, and more on one side: partial sums that are joined by a wrong reducer show."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A constant input, or one whose values matter: lookup positions."""

    array: np.ndarray
    constant: bool = True


Operand: TypeAlias = Given | Known | None


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One op to be verified."""

    op_type: str
    operands: tuple[Operand, ...]
    """By position; None where an optional input is absent."""
    attributes: tuple[tuple[str, Attribute], ...] = ()
    outputs: int = 1
    opset: int = OPSET
    domain: str = ""
    absent: tuple[int, ...] = ()
    """Positions of outputs that are not wanted."""

    def __str__(self) -> str:
        parts = []
        for operand in self.operands:
            match operand:
                case None:
                    parts.append("-")
                case Given(shape, dtype):
                    parts.append("x".join(map(str, shape)) + ("" if dtype == "float32" else f":{dtype}"))
                case Known(array):
                    values = str(array.tolist()).replace(" ", "")
                    parts.append(values if array.size < 9 else "x".join(map(str, array.shape)))
        stated = ",".join(f"{name}={value}" for name, value in self.attributes).replace(" ", "")
        return f"{self.op_type}({','.join(parts)}{';' if stated else ''}{stated})"


def make(
    op_type: str,
    *operands: Operand | Shape,
    outputs: int = 1,
    opset: int = OPSET,
    domain: str = "",
    absent: tuple[int, ...] = (),
    **attributes: Attribute,
) -> Case:
    """A case; a bare shape is a random float32 input, what is not named among these an attribute of the op."""
    inputs = tuple(Given(operand) if isinstance(operand, tuple) else operand for operand in operands)
    return Case(op_type, inputs, tuple(sorted(attributes.items())), outputs, opset, domain, absent)


def ints(*values: int) -> Known:
    """A constant input of integers: axes, a shape."""
    return Known(np.array(values, dtype=np.int64))


def execute_case(
    case: Case, seed: int = 0, descriptions: Descriptions | None = None
) -> tuple[Graph, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The case as a one-op graph; its inputs, drawn from the seed; and what the op makes of them, by output.

    The results are {} for an operator without a kernel and a reference, whose description implies their shapes.

    Raises:
        ExecutionError: the case cannot be executed.
    """
    generator = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    constants: dict[str, np.ndarray] = {}
    names = []
    for slot, operand in enumerate(case.operands):
        names.append("" if operand is None else f"x{slot}")
        if isinstance(operand, Given):
            arrays[names[-1]] = _random(operand, generator)
        elif operand is not None:
            (constants if operand.constant else arrays)[names[-1]] = operand.array
    outputs = tuple("" if position in case.absent else f"y{position}" for position in range(case.outputs))
    produced = tuple(filter(None, outputs))
    feeds = {**arrays, **constants}
    node = LocalNode(case.op_type, tuple(names), outputs, dict(case.attributes), case.domain)
    op = Op(str(case), case.op_type, tuple(names), outputs, case.attributes, case.domain)
    tensors = {name: Tensor(name, array.shape, dtype_of_array(array)) for name, array in feeds.items()}
    results: dict[str, np.ndarray] = {}
    description = None if descriptions is None else descriptions.description(case.domain, case.op_type)
    try:
        results = execute(LocalOp((node,)), feeds, produced, case.opset, description)
        tensors |= {name: Tensor(name, array.shape, dtype_of_array(array)) for name, array in results.items()}
    except NoKernelError:
        # Nothing executes the op; the shapes that its description implies do to bind it and to show it.
        implied = descriptions.implied_outputs(op, tensors, constants, case.opset) if descriptions else (None,)
        if None in implied:
            raise
        tensors |= {name: tensor for name, tensor in foreign_outputs(op, tensors, implied, {}).items() if tensor}
    graph = Graph("case", tensors, (op,), tuple(arrays), produced, constants, opset=case.opset)
    return graph, arrays, results


def bind_case(
    case: Case, descriptions: Descriptions, seed: int = 0
) -> tuple[BoundOp, dict[str, np.ndarray], dict[int, np.ndarray]]:
    """The case as a one-op graph, bound; its inputs; and what the whole op makes of them, by output position.

    Without a kernel and a reference, it makes {}.
    """
    graph, arrays, results = execute_case(case, seed, descriptions)
    (op,) = graph.ops
    expected = {position: results[name] for position, name in enumerate(op.outputs) if name in results}
    return descriptions.bind(op, graph), arrays, expected


def _random(operand: Given, generator: np.random.Generator) -> np.ndarray:
    dtype = np.dtype(operand.dtype)
    if dtype == np.bool_:
        return generator.random(operand.shape) < 0.5
    if np.issubdtype(dtype, np.integer):
        return generator.integers(int(operand.low), int(operand.high) + 1, operand.shape).astype(dtype)
    return generator.uniform(operand.low, operand.high, operand.shape).astype(dtype)


def find_operator(name: str, described: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    """(domain, op type) of an operator that is named with its domain, or without where only one has the name."""
    operators = sorted(described)
    exact = [key for key in operators if qualified(*key) == name]
    return next(iter(exact or [key for key in operators if key[1] == name]), None)


def by_type(cases: tuple[Case, ...]) -> Mapping[str, tuple[Case, ...]]:
    """The cases of each operator, by its qualified name."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(qualified(case.domain, case.op_type), []).append(case)
    return {name: tuple(group) for name, group in groups.items()}
