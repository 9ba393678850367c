"""Einsum: its equation is a description."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from planner.errors import DescriptionError
from planner.graph.rewriting.products import EINSUM_DTYPES
from planner.opdefs.parts import input_region, int64, output_region
from planner.tdl.builder import Ix, NodeView, Sum, TensorArg, Val, op, over
from planner.tdl.local import LocalNode, LocalOp, Part, same_op

ELLIPSIS = "..."


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
    inputs, arrow, output = text.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        raise DescriptionError(f"equation {text!r} has {len(terms)} operands, not {len(ranks)}")
    broadcast = max(
        (rank - len(term.replace(ELLIPSIS, "")) for term, rank in zip(terms, ranks, strict=True) if ELLIPSIS in term),
        default=0,
    )
    operands = tuple(_labels(term, rank, broadcast) for term, rank in zip(terms, ranks, strict=True))
    if arrow:
        return Equation(operands, _labels(output, None, broadcast))
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


def einsum_local(node: NodeView, part: Part) -> LocalOp:
    """A product of matrices that sums over several dims is a Gemm: kernels of Einsum turn such operands first."""
    equation = parse_equation(node.attribute("equation"), tuple(len(shape or ()) for shape in node.input_shapes))
    shapes, output = [input_region(part, slot).shape for slot in range(len(equation.operands))], output_region(part)
    for slots in ((0, 1), (1, 0)) if len(shapes) == 2 and node.output_dtypes[0] in EINSUM_DTYPES else ():
        a, b = (equation.operands[slot] for slot in slots)
        a_sizes, b_sizes = (dict(zip(equation.operands[slot], shapes[slot], strict=True)) for slot in slots)
        summed = tuple(label for label in a if label in b)
        rows, columns = (tuple(label for label in labels if label not in summed) for labels in (a, b))
        # One summed label, a batch, or another order of the output: the Einsum kernel takes these as they are.
        if len(summed) < 2 or not rows or not columns or equation.output != (*rows, *columns):
            continue
        if a not in (rows + summed, summed + rows) or b not in (summed + columns, columns + summed):
            continue
        if len(a_sizes) < len(a) or len(b_sizes) < len(b) or any(a_sizes[label] != b_sizes[label] for label in summed):
            continue
        k, turned = prod(a_sizes[label] for label in summed), (a != rows + summed, b != summed + columns)
        targets = [(k, -1) if is_first else (-1, k) for is_first in (turned[0], not turned[1])]
        constants = {f"shape{slot}": int64(target) for slot, target in zip(slots, targets, strict=True)}
        nodes = [LocalNode("Reshape", (f"in{slot}", f"shape{slot}"), (f"matrix{slot}",)) for slot in slots]
        attributes = {name: 1 for name, is_so in zip(("transA", "transB"), turned, strict=True) if is_so}
        result = "out0" if len(output.shape) == 2 else "product"
        nodes.append(LocalNode("Gemm", tuple(f"matrix{slot}" for slot in slots), (result,), attributes))
        if result != "out0":
            constants["shape"] = int64(output.shape)
            nodes.append(LocalNode("Reshape", (result, "shape"), ("out0",)))
        return LocalOp(tuple(nodes), constants)
    return same_op(node, part)


@op("Einsum", local=einsum_local, always_local=lambda node: True)
def einsum(node: NodeView, *inputs: TensorArg) -> object:
    """The sum of the operands' product over every label that the output has not; dims of size 1 broadcast."""
    equation = parse_equation(node.attribute("equation"), tuple(tensor.rank for tensor in inputs))
    places: dict[str, list[tuple[int, int]]] = {}
    for slot, labels in enumerate(equation.operands):
        for dim, label in enumerate(labels):
            places.setdefault(label, []).append((slot, dim))
    # A dim of size 1 broadcasts only where its label has another size elsewhere. It is then read at 0.
    broadcast = {
        (slot, dim)
        for positions in places.values()
        if len(positions) > 1 and not all(node.is_single(slot, dim) for slot, dim in positions)
        for slot, dim in positions
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
