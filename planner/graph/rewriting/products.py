"""Matrix products in one form: MatMul, Gemm and Einsum that compute the same are the same op.

A product is known by its *labels*: a number for every dim of its operands and of its result, equal where the product
multiplies along them. ``A B`` is (0, 2) (2, 1) -> (0, 1). Turning an operand exchanges its labels, and nothing else.
The form is the first of these that says it, each of which ONNX Runtime has kernels of for CPUs and for GPUs:

- MatMul, two matrices or stacks of them that lie as numpy.matmul wants them;
- Gemm, two matrices of which one or both are turned, and all that is scaled or has something added to it;
- Einsum, stacks of which some are turned, and all else. FusedMatMul would say the first, too, but is no operator of
  ONNX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from string import ascii_letters
from typing import Final, TypeAlias

import numpy as np

from planner.graph.core.attributes import number
from planner.graph.core.model import Attribute, DType, Op, Shape, Tensor, of_types
from planner.graph.core.traits import PRODUCTS

Labels: TypeAlias = tuple[int, ...]

EINSUM_DTYPES: Final = frozenset((DType.FLOAT16, DType.FLOAT32, DType.FLOAT64))
_GEMM_DTYPES: Final = EINSUM_DTYPES | {DType.BFLOAT16}
"""The dtypes of which the stock runtime has kernels on every device."""


@dataclass(frozen=True, slots=True)
class Product:
    """The tensors and dims that an op multiplies."""

    op: Op
    """MatMul, Gemm or Einsum."""
    dtype: DType
    operands: tuple[str, ...]
    """Names of the factors."""
    labels: tuple[Labels, ...]
    """Of each factor."""
    result: Labels
    """Of the output. A label that is not in it is summed over."""
    added: tuple[str, ...] = ()
    """The tensor that is added to it, where one is: it is broadcast to the output."""
    scales: tuple[float, float] = (1.0, 1.0)
    """The factors of the product and of what is added."""

    def with_operand(self, turned: str, source: str, perm: Sequence[int]) -> Product:
        """The product that reads ``source`` in the place of ``turned``, which is its Transpose by ``perm``."""
        labels = tuple(
            tuple(term[perm.index(dim)] for dim in range(len(term))) if name == turned else term
            for name, term in zip(self.operands, self.labels, strict=True)
        )
        operands = tuple(source if name == turned else name for name in self.operands)
        return replace(self, operands=operands, labels=labels)

    def with_result(self, output: str, perm: Sequence[int]) -> Product:
        """The product that makes the Transpose by ``perm`` of what it made."""
        turned = tuple(self.result[dim] for dim in perm)
        return replace(self, op=replace(self.op, outputs=(output,)), result=turned)


def product_of(op: Op, tensors: Mapping[str, Tensor]) -> Product | None:
    """An op as a product; None if it is none, or one of a kind that stays as it is.

    These are products with vectors, with operands that are repeated along a dim, and with diagonals; equations that
    leave dims out.
    """
    if not of_types(op, PRODUCTS):
        return None
    factors, added, scales = op.inputs, tuple[str, ...](), (1.0, 1.0)
    shapes = [tensors[name].shape for name in op.inputs if name]
    match op.op_type:
        case "MatMul":
            form = _of_stacks(shapes)
        case "Gemm":
            factors, added = op.inputs[:2], tuple(filter(None, op.inputs[2:]))
            scales = number(op, "alpha", 1.0), number(op, "beta", 1.0)
            form = _of_matrices(
                is_left_turned=bool(op.attribute("transA", 0)), is_right_turned=bool(op.attribute("transB", 0))
            )
        case _:
            form = _of_equation(str(op.attribute("equation", "")), shapes)
    if form is None:
        return None
    labels, result = form
    sizes: dict[int, int] = {}
    for term, shape in zip(labels, shapes, strict=False):  # what is added has no labels
        for label, size in zip(term, shape, strict=True):
            if sizes.setdefault(label, size) != size:
                return None
    return Product(op, tensors[op.outputs[0]].dtype, factors, labels, result, added, scales)


_Labelled: TypeAlias = tuple[tuple[Labels, ...], Labels]
"""Labels of the factors, and of the result."""


def _of_matrices(*, is_left_turned: bool, is_right_turned: bool) -> _Labelled:
    return ((2, 0) if is_left_turned else (0, 2), (1, 2) if is_right_turned else (2, 1)), (0, 1)


def _of_stacks(shapes: Sequence[Shape]) -> _Labelled | None:
    rank_a, rank_b = (len(shape) for shape in shapes)
    if min(rank_a, rank_b) < 2:
        return None
    rank = max(rank_a, rank_b)
    m, n, k = rank - 2, rank - 1, rank
    stack = tuple(range(rank - 2))
    return ((*stack[rank - rank_a :], m, k), (*stack[rank - rank_b :], k, n)), (*stack, m, n)


def _of_equation(equation: str, shapes: Sequence[Shape]) -> _Labelled | None:
    operands, arrow, result = equation.replace(" ", "").partition("->")
    terms = operands.split(",")
    # Without an arrow or with dots some labels are not written.
    if not arrow or len(terms) != len(shapes) or any(len(set(term)) < len(term) for term in (*terms, result)):
        return None
    if "." in equation or any(len(term) != len(shape) for term, shape in zip(terms, shapes, strict=True)):
        return None
    number = {letter: index for index, letter in enumerate(dict.fromkeys((*result, *operands.replace(",", ""))))}
    return tuple(tuple(number[letter] for letter in term) for term in terms), tuple(number[letter] for letter in result)


def written(product: Product) -> Op | None:
    """The op of a product's one form; None if there is none of the product's dtype.

    Another order of factors is another spelling: the first is the one that has the result's first dim of its own.
    """
    if len(product.operands) != 2 or product.added:
        return _as_gemm(product) or _as_einsum(product)
    swapped = replace(product, operands=product.operands[::-1], labels=product.labels[::-1])
    first, second = (product, swapped) if _is_in_order(product) else (swapped, product)
    return _as_matmul(first) or _as_matmul(second) or _as_gemm(first) or _as_einsum(first)


def without_identity(op: Op, tensors: Mapping[str, Tensor], value_of: Callable[[str], np.ndarray | None]) -> Op | None:
    """A product with a known identity is its other factor, perhaps turned; None of another op."""
    product = product_of(op, tensors)
    if product is None or len(product.operands) != 2 or product.added or product.scales[0] != 1.0:
        return None
    for (ends, name), (term, source) in permutations(zip(product.labels, product.operands, strict=True)):
        value, labels = value_of(name), [sum(ends) - label if label in ends else label for label in term]
        is_passed = len({*ends}.intersection(term)) == 1 and sorted(labels) == sorted(product.result)
        is_one = value is not None and value.shape[1:] == value.shape[:1] and (value[:1, :1] == 1).all()
        if value is not None and is_one and is_passed and np.array_equal(value, np.identity(len(value))):
            perm = (("perm", tuple(map(labels.index, product.result))),)
            kind, stated = ("Identity", ()) if labels == [*product.result] else ("Transpose", perm)
            return replace(op, op_type=kind, inputs=(source,), attributes=stated)
    return None


def _is_in_order(product: Product) -> bool:
    lhs, rhs = product.labels
    return next((label in lhs for label in product.result if (label in lhs) != (label in rhs)), True)


def _as_matmul(product: Product) -> Op | None:
    lhs, rhs = product.labels
    if min(len(lhs), len(rhs), len(product.result)) < 2 or product.scales[0] != 1.0:
        return None
    *stack, m, n = product.result
    *of_left, rows, k = lhs
    *of_right, also_k, columns = rhs
    is_product = (rows, columns) == (m, n) and k == also_k and k not in product.result
    is_stacked = max((of_left, of_right), key=len) == stack and all(
        batch == stack[len(stack) - len(batch) :] for batch in (of_left, of_right)
    )
    if not is_product or not is_stacked:
        return None
    return replace(product.op, op_type="MatMul", inputs=product.operands, attributes=())


def _as_gemm(product: Product) -> Op | None:
    if [len(term) for term in (*product.labels, product.result)] != [2, 2, 2] or product.dtype not in _GEMM_DTYPES:
        return None
    (lhs, rhs), (m, n) = product.labels, product.result
    shared = set(lhs) & set(rhs)
    if m not in lhs or n not in rhs or len(shared) != 1 or not shared.isdisjoint((m, n)):
        return None
    scales = zip(("alpha", "beta") if product.added else ("alpha",), product.scales, strict=False)
    stated: dict[str, Attribute] = {name: scale for name, scale in scales if scale != 1.0}
    stated |= {name: 1 for name, turned in (("transA", lhs[0] != m), ("transB", rhs[1] != n)) if turned}
    return replace(
        product.op, op_type="Gemm", inputs=(*product.operands, *product.added), attributes=tuple(sorted(stated.items()))
    )


def _as_einsum(product: Product) -> Op | None:
    labels = tuple(dict.fromkeys(label for term in (product.result, *product.labels) for label in term))
    is_plain = not product.added and product.scales[0] == 1.0
    if not is_plain or product.dtype not in EINSUM_DTYPES or len(labels) > len(ascii_letters):
        return None
    letter = dict(zip(labels, ascii_letters, strict=False))
    terms = ",".join("".join(letter[label] for label in term) for term in product.labels)
    equation = f"{terms}->{''.join(letter[label] for label in product.result)}"
    return replace(product.op, op_type="Einsum", inputs=product.operands, attributes=(("equation", equation),))
