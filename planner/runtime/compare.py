"""When is a split run right?

Sums taken in another order differ in their last bits, and elements near zero differ by any ratio. So errors are
measured against a float64 reference r, relative to its largest element:

    E(y) = max |y - r| / max |r|                accepted if  E(split) <= max(4 E(whole), 64 eps)

and the same with the median of |y - r| in place of the maximum, which a few large elements cannot hide behind. Where
r is zero everywhere, errors are absolute. Where the whole run itself has hardly a digit right, the tensor is rounding
noise around a zero (a bias before a normalisation and an attention's key bias have no gradient but that), and samples
of noise are compared: ``NOISE_FACTOR`` takes the place of 4. A mistake is larger than noise by far more.

Integers and booleans must be equal. Without a reference, the split run is held against the whole one, with
``WHOLE_EPS`` and ``WHOLE_MEDIAN_EPS`` in place of the right-hand side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.errors import DifferenceError

FACTOR: Final = 4
"""How much farther than the whole run the split one may be from the reference."""
NOISE_FACTOR: Final = 64
"""The same, where the whole run has hardly a digit right."""
NOISE_ERROR: Final = 2.0**-4
"""E(whole) from which on that is so: four bits of a float32's 24. A state that walks about zero by its noise comes to
1 / sqrt(steps)."""
FLOOR_EPS: Final = 64
"""An error of so many epsilons of the dtype is always accepted."""
WHOLE_EPS: Final = 8192
"""Epsilons, where there is no reference: both runs are off by what a deep network's rounding adds up to."""
WHOLE_MEDIAN_EPS: Final = 1024

_BFLOAT16_EPS: Final = 2.0**-7


@dataclass(frozen=True, slots=True)
class TensorComparison:
    """One output of one step."""

    tensor: str
    is_same: bool
    """True if the tensor is accepted."""
    error: float
    """E(split), or against the whole run where there is no reference; for integers the share of unequal elements."""
    limit: float
    median_error: float
    median_limit: float
    has_reference: bool
    is_noise: bool = False
    """True if the whole run, too, has hardly a digit right, so that the error says nothing."""

    def __str__(self) -> str:
        against = "reference" if self.has_reference else "whole run"
        return (
            f"{self.tensor}: {self.error:.2e} of the largest element off the {against} (limit {self.limit:.2e}), "
            f"median {self.median_error:.2e} (limit {self.median_limit:.2e})"
        )


@dataclass(frozen=True, slots=True)
class StepComparison:
    """All outputs of one step."""

    step: int
    """Counted from 1."""
    tensors: tuple[TensorComparison, ...]

    @property
    def is_same(self) -> bool:
        return all(tensor.is_same for tensor in self.tensors)

    @property
    def max_error(self) -> float:
        """The largest error of any tensor that is more than noise."""
        return max((tensor.error for tensor in self.tensors if not tensor.is_noise), default=0.0)


def compare_tensor(name: str, split: np.ndarray, whole: np.ndarray, exact: np.ndarray | None) -> TensorComparison:
    """Judges one output by the rule above.

    Args:
        name: of the tensor.
        split: what the workers made.
        whole: what the unpartitioned model made from the same state.
        exact: the float64 reference, if there is one.
    """
    assert split.shape == whole.shape, f"{name}: {split.shape} and {whole.shape}"
    if not _is_float(whole):
        share = float(np.count_nonzero(split != whole)) / max(1, whole.size)
        return TensorComparison(name, share == 0, share, 0.0, share, 0.0, has_reference=False)
    is_noise = False
    eps = _BFLOAT16_EPS if whole.dtype.name == "bfloat16" else float(np.finfo(whole.dtype).eps)
    if exact is None:
        error, median = errors(split, whole)
        limit, median_limit = WHOLE_EPS * eps, WHOLE_MEDIAN_EPS * eps
    else:
        error, median = errors(split, exact)
        of_whole, median_of_whole = errors(whole, exact)
        is_noise = of_whole >= NOISE_ERROR
        factor = NOISE_FACTOR if is_noise else FACTOR
        limit, median_limit = max(factor * of_whole, FLOOR_EPS * eps), max(factor * median_of_whole, FLOOR_EPS * eps)
    is_same = error <= limit and median <= median_limit
    return TensorComparison(name, is_same, error, limit, median, median_limit, exact is not None, is_noise)


def errors(y: np.ndarray, r: np.ndarray) -> tuple[float, float]:
    """The largest and the median |y - r|, over the largest finite |r|; infinite where only one of them is finite."""
    if y.size == 0:
        return 0.0, 0.0
    wide, right = y.astype(np.float64), r.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(wide - right)
    strange = ~np.isfinite(wide) | ~np.isfinite(right)
    if strange.any():
        alike = (wide == right) | (np.isnan(wide) & np.isnan(right))
        off = np.where(strange, np.where(alike, 0.0, np.inf), off)
        right = np.where(strange, 0.0, right)
    scale = float(np.abs(right).max()) or 1.0
    return float(off.max()) / scale, float(np.median(off)) / scale


def compare_step(
    step: int,
    split: Mapping[str, np.ndarray],
    whole: Mapping[str, np.ndarray],
    exact: Mapping[str, np.ndarray] | None,
) -> StepComparison:
    """Judges every output of one step, in the order of the whole run's."""
    return StepComparison(
        step,
        tuple(
            compare_tensor(name, split[name], array, None if exact is None else exact[name])
            for name, array in whole.items()
        ),
    )


def difference(comparisons: tuple[StepComparison, ...]) -> DifferenceError | None:
    """What to raise about comparisons; None if all of them are accepted."""
    facts = [
        f"step {comparison.step}, {tensor}"
        for comparison in comparisons
        for tensor in comparison.tensors
        if not tensor.is_same
    ]
    if not facts:
        return None
    return DifferenceError("the split run differs from the whole model", facts=tuple(facts))


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def worst(comparisons: tuple[StepComparison, ...]) -> float:
    """The largest error of all steps; 0 where there are none."""
    return max((comparison.max_error for comparison in comparisons), default=0.0)
