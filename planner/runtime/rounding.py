"""How much of a result rounding alone can change: the reference computed with every result rounded at random.

One run in the model's own precision is one sample of its rounding, and on a network of Relus and maxima a poor one: of
a million activations some lie within rounding of 0, and a run in which one of them falls on the other side has another,
equally right, gradient in all layers before it. Monte Carlo arithmetic (Parker 1997) takes more samples: in each, every
result that an op rounds is multiplied by a number within one epsilon of 1, drawn anew.

That is the least that rounding does. A sum rounds its partial sums, too, which do not cancel when the whole sum does: a
convolution's result next to 0 is off by epsilons not of itself but of the other results. Where the first samples do not
tell why a tensor is off, more are taken in which sums are rounded so.
"""

from __future__ import annotations

from typing import Final

import numpy as np

RUNS: Final = 8
"""Samples of each kind at most; the largest error of any counts. In Adam's first step an element whose gradient is
within rounding of 0 goes one way or the other, so that few samples tell little of the largest error."""
_CHOOSING = "ArgMax ArgMin Clip Floor Ceil GlobalMaxPool Max MaxPool Min ReduceMax ReduceMin Relu Round Sign TopK Where"
_MOVING = (
    "Abs Compress Concat Constant ConstantOfShape DepthToSpace Dropout Expand EyeLike Flatten Gather GatherElements "
    "GatherND Identity MaxUnpool Neg Pad Reshape ReverseSequence Slice SpaceToDepth Split Squeeze Tile Transpose Trilu "
    "Unsqueeze"
)
EXACT: Final = frozenset(f"{_CHOOSING} {_MOVING}".split())
"""Ops that choose or move elements and round none: what they make must stay equal to what they read."""
_SUMMING = (
    "AveragePool BatchNormalization Conv ConvTranspose CumSum Einsum Gemm GlobalAveragePool GroupNormalization "
    "InstanceNormalization LayerNormalization MatMul ReduceL2 ReduceMean ReduceSum ReduceSumSquare "
    "FusedConv FusedGemm FusedMatMul MatMulNBits SimplifiedLayerNormalization SkipLayerNormalization "
    "SkipSimplifiedLayerNormalization"
)
SUMS: Final = frozenset(_SUMMING.split())
"""Ops whose results are sums of many terms."""
_PARTIAL_SUMS: Final = 8
"""Epsilons of a sum's typical result by which the roundings of its partial sums change it: n of them, one as likely up
as down, make sqrt(n), and the sums of a convolution or a matrix product have about 64 and more."""


class Rounding:
    """One sample.

    Args:
        seed: of what is drawn.
        has_partial_sums: sums are off by the rounding of their partial sums, and not only of their results.
    """

    def __init__(self, seed: int, *, has_partial_sums: bool = False) -> None:
        self._rng = np.random.default_rng(seed)
        self._has_partial_sums = has_partial_sums

    def of(self, op_type: str, array: np.ndarray, eps: float) -> np.ndarray:
        """A result in float64 as a run in a precision with this epsilon might have it."""
        if op_type in EXACT or array.dtype != np.float64 or not eps:
            return array
        drawn = 2 * self._rng.random(array.shape) - 1
        rounded = array * (1 + eps * drawn)
        if self._has_partial_sums and op_type in SUMS and array.size:
            typical = np.sqrt(np.mean(np.square(array), where=np.isfinite(array)))
            rounded += _PARTIAL_SUMS * eps * typical * drawn
        return np.asarray(rounded)
