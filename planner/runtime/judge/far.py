"""Is the whole model a judge? Where it is far from float64, and rounding alone does not say why, it is none.

The stock runtime may compute another thing than the model says: ONNX Runtime 1.31.1 fuses a Transpose into a MatMul
with a vector, and the result has not a digit right. A split run that is right differs from that; a wrong one is
excused by it, for limits grow with the whole model's error; and a state that it hands on trains something else.

An error of a whole tensor counts, not that of a few elements: ``spread_error`` is what a tenth of them exceed. A Relu
on the other side of its kink, a rounding to the other side, changes few. Where it is more than a deep network's
rounding adds up to, right runs that round otherwise are looked at (``rounding``): the whole model's from nudged values,
which are as wrong as it is, but in what they differ from it; then samples of the reference. If none comes near, the
whole model is far, and of that tensor the reference is the judge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import ml_dtypes
import numpy as np

from planner.graph.core.model import Graph, Op
from planner.runtime.judge.compare import NOISE_ERROR, NOISE_FACTOR, STORED_EPS, WHOLE_EPS, FarTensor, change, largest

SPREAD: Final = 0.9
"""The share of elements whose errors are not looked at for being the largest."""
_OWN_EPS: Final = 4
"""Epsilons of 8-bit numbers on the way that are never far: each may be rounded to its neighbour."""
_BYTE_EPS: Final = 2.0**-6
"""Of a product of which the model says that its operands may be rounded to bytes."""
_MAY_ROUND: Final = 2
"""``accuracy_level`` of com.microsoft's products from which on they are not computed in float32 (4: in bytes)."""


def spread_error(y: np.ndarray, r: np.ndarray, scale: float | None = None) -> float:
    """The error |y - r| that a tenth of the errors exceed, over the scale; elements that are not finite in both do not
    count.

    Args:
        y: a result.
        r: what is right.
        scale: by what errors are divided; None: the largest element of what is right.
    """
    wide, right = y.astype(np.float64), r.astype(np.float64)
    finite = np.isfinite(wide) & np.isfinite(right)
    if not finite.any():
        return 0.0
    off = np.sort(np.abs(wide[finite] - right[finite]))
    return float(off[int(SPREAD * off.size)]) / (scale or largest(right) or 1.0)


def far_tensors(
    original: Mapping[str, np.ndarray],
    exact: Mapping[str, np.ndarray],
    suspicious_from: Mapping[str, float],
    changes: Mapping[str, np.ndarray],
    samples: Callable[[], Iterator[tuple[Mapping[str, np.ndarray], bool]]],
    far_before: Collection[str] = (),
) -> tuple[FarTensor, ...]:
    """The outputs of one step in which the whole model is far from float64.

    Args:
        original: what it made.
        exact: the float64 reference.
        suspicious_from: by floating-point output, the spread error from which on rounding must say why; see
            ``limits``.
        changes: by next state, the state that it takes the place of.
        samples: of right runs that round otherwise; and whether a sample is the reference's, or else the whole model's.
        far_before: outputs that were far before: of them no samples are looked at.
    """
    suspects: dict[str, float] = {}
    for name, limit in suspicious_from.items():
        error, share = spread_error(original[name], exact[name]), 1.0
        if name in changes:
            share = min(1.0, change(exact[name], changes[name]))
        stored = STORED_EPS * float(ml_dtypes.finfo(original[name].dtype).eps)  # type: ignore[no-untyped-call]
        if error > limit * share + (stored if share < 1 else 0):
            suspects[name] = error
    if not suspects:
        return ()
    unexplained = {name: error for name, error in suspects.items() if name not in far_before}
    certain = suspects.keys() - unexplained.keys()
    for sample, is_exact in samples() if unexplained else ():
        for name, error in tuple(unexplained.items()):
            scale = largest(exact[name]) or 1.0
            seen = spread_error(sample[name], exact[name] if is_exact else original[name], scale)
            if error <= NOISE_FACTOR * seen:
                del unexplained[name]
        if not unexplained:
            break
    return tuple(FarTensor(name, error) for name, error in suspects.items() if name in unexplained or name in certain)


def limits(graph: Graph, eps: Mapping[str, float]) -> dict[str, float]:
    """The spread error of each floating-point output above which it must be rounding, or the whole model is far.

    Args:
        graph: the whole model.
        eps: by output, of the coarsest precision on the way, 8-bit ones counted as bfloat16 (``coarsest_eps``).
    """
    coarse: dict[str, float] = {}
    for op in graph.ops:
        before = max((coarse.get(name, 0.0) for name in op.inputs), default=0.0)
        for name in (name for name in op.outputs if name):
            dtype = graph.tensors[name].dtype
            is_small = dtype.is_float and dtype.item_bytes == 1
            dtype_eps = float(ml_dtypes.finfo(dtype.array_dtype).eps) if is_small else 0.0  # type: ignore[no-untyped-call]
            coarse[name] = max(before, dtype_eps, _BYTE_EPS if may_round(op) else 0.0)
    return {name: max(far_from(epsilon), _OWN_EPS * coarse.get(name, 0.0)) for name, epsilon in eps.items()}


def far_from(epsilon: float) -> float:
    """The error from which on rounding to this epsilon must say why."""
    return min(WHOLE_EPS * epsilon, NOISE_ERROR)


def may_round(op: Op) -> bool:
    """Whether an op says that its operands may be rounded to bytes."""
    level = op.attribute("accuracy_level", 0)
    return isinstance(level, int) and level >= _MAY_ROUND
