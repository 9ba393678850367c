"""How much of a result rounding alone can change: the reference computed with every result rounded at random.

One run in the model's own precision is one sample of its rounding, and on a network of Relus and maxima a poor one: of
a million activations some lie within rounding of 0, and a run in which one of them falls on the other side has another,
equally right, gradient in all layers before it. Monte Carlo arithmetic (Parker 1997) takes more samples: in each, every
result that an op rounds is multiplied by a number within one epsilon of 1, drawn anew.
"""

from __future__ import annotations

from typing import Final

import numpy as np

RUNS: Final = 8
"""Samples at most; the largest error of any counts. In Adam's first step an element whose gradient is within rounding
of 0 goes one way or the other, so that few samples tell little of the largest error."""
_CHOOSING = "ArgMax ArgMin Clip Floor Ceil GlobalMaxPool Max MaxPool Min ReduceMax ReduceMin Relu Round Sign TopK Where"
_MOVING = (
    "Abs Compress Concat Constant ConstantOfShape DepthToSpace Dropout Expand EyeLike Flatten Gather GatherElements "
    "GatherND Identity MaxUnpool Neg Pad Reshape ReverseSequence Slice SpaceToDepth Split Squeeze Tile Transpose Trilu "
    "Unsqueeze"
)
EXACT: Final = frozenset(f"{_CHOOSING} {_MOVING}".split())
"""Ops that choose or move elements and round none: what they make must stay equal to what they read."""


class Rounding:
    """One sample.

    Args:
        seed: of what is drawn.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def of(self, op_type: str, array: np.ndarray, eps: float) -> np.ndarray:
        """A result in float64 as a run in a precision with this epsilon might have it."""
        if op_type in EXACT or array.dtype != np.float64 or not eps:
            return array
        drawn = self._rng.random(array.shape)
        return np.asarray(array * (1 + eps * (2 * drawn - 1)))
