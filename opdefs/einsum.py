"""Einsum: its equation is a description."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from planner.errors import DescriptionError
from planner.graph.model import DType
from planner.opdefs.parts import input_region, int64
from planner.tdl.builder import Ix, NodeView, Sum, TensorArg, Val, op, over
from planner.tdl.local import LocalNode, LocalOp, Part, same_op

ELLIPSIS = "..."
_OF_MATRICES = frozenset((DType.FLOAT16, DType.FLOAT32, DType.FLOAT64))
"""Dtypes of which the stock runtime has kernels of Gemm everywhere."""


@dataclass(frozen=True, slots=True)
class Equation:
    """Labels of each operand and of the output; dims under an ellipsis are called ``e0``, ``e1``, ..."""

    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]


def parse_equation(text: str, ranks: tuple[int, ...]) -> Equation:
    """Reads an equation, explicit (``ij,jk->ik``) or implicit (``ij,jk``: labels that stand once, in order).

    Raises:
        DescriptionError: it does not fit the operands.
    """
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise DescriptionError(f"equation {text!r} has {len(terms)} operands, not {len(ranks)}")
    broadcast = max(
        (rank - len(term.replace(ELLIPSIS, "")) for term, rank in zip(terms, ranks, strict=True) if ELLIPSIS in term),
        default=0,
    )
    operands = tuple(_labels(term, rank, broadcast) for term, rank in zip(terms, ranks, strict=True))
    if arrow:
        return Equation(operands, _labels(right, None, broadcast))
    letters = [label for term in terms for label in term.replace(ELLIPSIS, "")]
    alone = sorted(label for label in set(letters) if letters.count(label) == 1)
    return Equation(operands, (*(f"e{number}" for number in range(broadcast)), *alone))


def _labels(term: str, rank: int | None, broadcast: int) -> tuple[str, ...]:
    before, dots, after = term.partition(ELLIPSIS)
    count = len(before) + len(after)
    if rank is not None and (rank < count or (not dots and rank != count)):
        raise DescriptionError(f"operand {term!r} of an equation names {count} dims, and has {rank}")
    shared = 0 if not dots else broadcast if rank is None else rank - count
    return (*before, *(f"e{number}" for number in range(broadcast - shared, broadcast)), *after)


@dataclass(frozen=True, slots=True)
class _Matrices:
    """A product of two operands that is one of matrices: each side of these has one or several dims."""

    slots: tuple[int, int]
    """The operand with the result's rows, and the one with its columns."""
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    is_turned: tuple[bool, bool]


def _matrices(equation: Equation) -> _Matrices | None:
    """The matrices that an equation multiplies; None if it is not of two, or dims do not lie so."""
    if len(equation.operands) != 2 or any(len(set(own)) < len(own) for own in (*equation.operands, equation.output)):
        return None
    for slots in ((0, 1), (1, 0)):
        left, right = (equation.operands[slot] for slot in slots)
        summed = tuple(label for label in left if label in right)
        rows, columns = (tuple(label for label in own if label not in summed) for own in (left, right))
        is_plain = rows and columns and summed and equation.output == (*rows, *columns)
        if is_plain and left in (rows + summed, summed + rows) and right in (summed + columns, columns + summed):
            return _Matrices(slots, rows, columns, (left != rows + summed, right != summed + columns))
    return None


def einsum_local(node: NodeView, part: Part) -> LocalOp:
    """A product of matrices, whatever dims their sides have, is a Gemm: it has the faster kernel on GPUs."""
    equation = parse_equation(node.attribute("equation"), tuple(len(shape or ()) for shape in node.input_shapes))
    found, made = _matrices(equation), part.outputs[0]
    if found is None or made is None or node.output_dtypes[0] not in _OF_MATRICES:
        return same_op(node, part)
    sizes: dict[str, int] = {}
    for slot, labels in enumerate(equation.operands):
        for label, size in zip(labels, input_region(part, slot).shape, strict=True):
            if sizes.setdefault(label, size) != size:
                return same_op(node, part)  # one of them is repeated
    nodes: list[LocalNode] = []
    constants, operands = {}, []
    for slot, side in zip(found.slots, (found.rows, found.columns), strict=True):
        labels = equation.operands[slot]
        operands.append(f"in{slot}" if len(labels) == 2 else f"matrix{slot}")
        if len(labels) > 2:
            along = prod(sizes[label] for label in side)
            constants[f"shape{slot}"] = int64((along, -1) if labels[: len(side)] == side else (-1, along))
            nodes.append(LocalNode("Reshape", (f"in{slot}", f"shape{slot}"), (f"matrix{slot}",)))
    is_matrix = len(made.shape) == 2
    turned = {name: 1 for name, is_so in zip(("transA", "transB"), found.is_turned, strict=True) if is_so}
    nodes.append(LocalNode("Gemm", tuple(operands), ("out0" if is_matrix else "product",), turned))
    if not is_matrix:
        constants["shape"] = int64(made.shape)
        nodes.append(LocalNode("Reshape", ("product", "shape"), ("out0",)))
    return LocalOp(tuple(nodes), constants)


@op("Einsum", local=einsum_local, always_local=lambda node: True)
def einsum(node: NodeView, *inputs: TensorArg) -> object:
    """The sum of the operands' product over every label that the output has not; dims of size 1 broadcast."""
    equation = parse_equation(node.attribute("equation"), tuple(tensor.rank for tensor in inputs))
    places: dict[str, list[tuple[int, int]]] = {}
    for slot, labels in enumerate(equation.operands):
        for dim, label in enumerate(labels):
            places.setdefault(label, []).append((slot, dim))
    broadcast = {
        (slot, dim)
        for found in places.values()
        if len(found) > 1 and not all(node.is_single(slot, dim) for slot, dim in found)
        for slot, dim in found
        if node.is_single(slot, dim)
    }
    summed = tuple(sorted(set(places) - set(equation.output)))
    prefixed = tuple(
        f"i_{label}" if not label.startswith("e") or len(label) == 1 else label for label in equation.output
    )

    def value(*i: Ix) -> Val:
        def product(*r: Ix) -> Val:
            index = {**dict(zip(equation.output, i, strict=True)), **dict(zip(summed, r, strict=True))}
            total: Val | None = None
            for slot, labels in enumerate(equation.operands):
                where = tuple(0 if (slot, dim) in broadcast else index[label] for dim, label in enumerate(labels))
                total = inputs[slot][where] if total is None else total * inputs[slot][where]
            assert total is not None, "an equation has an operand"
            return total

        return Sum(over([f"r_{label}" for label in summed], product))

    return over(prefixed, value)
