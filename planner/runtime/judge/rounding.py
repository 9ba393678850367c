"""The change of a result that rounding alone makes: the reference computed with every result rounded at
random.

One run in the model's own precision is one sample of its rounding, and on a network of Relus and maxima a poor one: of
a million activations some lie within rounding of 0, and a run in which one of them falls on the other side has another,
equally right, gradient in all layers before it. Monte Carlo arithmetic (Parker 1997) takes more samples: in each, every
result that an op rounds is multiplied by a number within one epsilon of 1, drawn anew.

That is the least that rounding does. A sum rounds its partial sums, too, which do not cancel when the whole sum does: a
convolution's result next to 0 is off by epsilons not of itself but of its terms. Where the first samples do not tell
why a tensor is off, more are taken in which sums are rounded so: of n terms, by sqrt(n) epsilons of what the operands'
sizes say that such a sum comes to.

Both need a reference. What needs none, and is taken first because it costs least: another run of the whole model, from
values that are a few epsilons off (``nudged``). It is as right as the first one, rounds otherwise everywhere, and
decides otherwise where a decision hangs on rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

import ml_dtypes
import numpy as np

from planner.graph.core.model import Shape
from planner.graph.core.traits import CONVOLUTIONS, LOOKUPS, MATRIX_PRODUCTS, MOVING, NORMS, named

RUNS: Final = 8
"""Samples of each kind at most; the largest error of any counts. In Adam's first step an element whose gradient is
within rounding of 0 goes one way or the other, so that few samples tell little of the largest error."""
EXACT: Final = MOVING | LOOKUPS | named(
    "Abs ArgMax ArgMin Ceil Clip Concat Constant ConstantOfShape Dropout EyeLike Floor GlobalMaxPool Identity Max "
    "MaxPool MaxUnpool Min Neg ReduceMax ReduceMin Relu Round Sign TopK Where"
)  # fmt: skip
"""Ops that choose or move elements and round none: what they make must stay equal to what they read."""
SUMS: Final = CONVOLUTIONS | MATRIX_PRODUCTS | NORMS | named(
    "AveragePool CumSum Einsum GlobalAveragePool ReduceL2 ReduceMean ReduceSum ReduceSumSquare MatMulNBits "
    "SimplifiedLayerNormalization"
)  # fmt: skip
"""Ops whose results are sums of many terms."""
_PARTIAL_SUMS: Final = 8
"""Epsilons of a sum's typical result by which the roundings of its partial sums change it, at least: n of them, one as
likely up as down, make sqrt(n), and the sums of a convolution or a matrix product have about 64 and more."""
_NUDGE: Final = 8
"""Epsilons by which the numbers of a nudged run are off: what a sum of 64 terms is."""


class Rounding:
    """One sample.

    Args:
        seed: of what is drawn.
        has_partial_sums: sums are off by the rounding of their partial sums, and not only of their results.
    """

    def __init__(self, seed: int, *, has_partial_sums: bool = False) -> None:
        self._rng = np.random.default_rng(seed)
        self._has_partial_sums = has_partial_sums

    def of(self, op_type: str, array: np.ndarray, eps: float, operands: Sequence[np.ndarray | None] = ()) -> np.ndarray:
        """A result in float64 as a run in a precision with this epsilon might have it.

        Args:
            op_type: what made it.
            array: the result.
            eps: of the precision.
            operands: what it was made from; () if nobody knows.
        """
        if op_type in EXACT or array.dtype != np.float64 or not eps:
            return array
        drawn = 2 * self._rng.random(array.shape) - 1
        rounded = array * (1 + eps * drawn)
        if self._has_partial_sums and op_type in SUMS and array.size:
            terms, size = sum_of(op_type, array, operands)
            typical = np.hypot(_rms(array), size)
            rounded += max(_PARTIAL_SUMS, np.sqrt(terms)) * eps * typical * drawn
        return np.asarray(rounded)


def sum_of(op_type: str, array: np.ndarray, operands: Sequence[np.ndarray | None]) -> tuple[float, float]:
    """The number of terms in a result of an op, and the size of such sums if their signs are random."""
    floats = [operand for operand in operands if operand is not None and operand.dtype == np.float64 and operand.size]
    match op_type, floats:
        case "Conv" | "ConvTranspose" | "MatMul" | "Gemm", [a, b, *_]:
            terms = terms_of_product(op_type, a.shape, b.shape, array.size)
        case "CumSum", [x]:
            terms = float(x.shape[-1])
        case "ReduceSum" | "ReduceMean", [x, *_]:
            terms = x.size / array.size
        case _:
            return 1.0, 0.0
    size = terms**0.5 * prod(map(_rms, floats[:2]))
    return terms, size / terms if op_type == "ReduceMean" else size


def terms_of_product(op_type: str, a: Shape, b: Shape, elements: int) -> float:
    """The number of products that one element of a matrix product's or a convolution's result sums.

    Args:
        op_type: the operator.
        a: shape of the first factor.
        b: shape of the second factor.
        elements: of the result.
    """
    match op_type:
        case "Conv":
            return float(prod(b[1:]))
        case "ConvTranspose":
            return prod(a) * prod(b[1:]) / elements
        case "MatMul":
            return float(a[-1])
    return float((prod(a) * prod(b) / elements) ** 0.5)  # two matrices, perhaps turned


def _rms(array: np.ndarray) -> float:
    """The root of the mean square of what is finite."""
    finite = np.isfinite(array)
    return float(np.sqrt(np.mean(np.square(array), where=finite))) if finite.any() else 0.0


def nudged(values: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Values that differ from the given ones by a few epsilons of their precision, at random.

    Whole numbers are left as they are, be they floating-point or not: they may be counts, masks or places.
    """
    rng = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    for name, array in values.items():
        if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
            eps = float(ml_dtypes.finfo(array.dtype).eps)  # type: ignore[no-untyped-call]
            wide = array.astype(np.float64)
            # Sums in 16 bits are summed in more.
            drawn = (_NUDGE if array.dtype.itemsize > 2 else 1) * eps * (2 * rng.random(array.shape) - 1)
            with np.errstate(invalid="ignore", over="ignore"):
                array = np.where(wide == np.round(wide), wide, wide * (1 + drawn)).astype(array.dtype)
        arrays[name] = array
    return arrays
