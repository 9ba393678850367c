"""The verdict on a split run?

Sums taken in another order differ in their last bits, and elements near zero differ by any ratio. So errors are
measured against a float64 reference r, relative to its largest element:

    E(y) = max |y - r| / max |r|                accepted if  E(split) <= max(4 E(whole), 64 eps)

and the same with the median of |y - r| in place of the maximum, which a few large elements cannot hide behind; eps is
that of the coarsest precision on the way to the tensor. Where r is zero everywhere, errors are absolute.

A next state is mostly what the state was, so that a wrong update may hide in it: there, 64 eps are those of its largest
change, and ``STORED_EPS`` of itself are added, which is what storing the sum rounds.

Where the whole run itself has hardly a digit right, the tensor is rounding noise around a zero (a bias before a
normalisation and an attention's key bias have no gradient but that), and samples of noise are compared:
``NOISE_FACTOR`` takes the place of 4, for the error and for the largest element, which may be smaller still where
E(whole) is above ``NOISE_FACTOR``: r lies below the noise. As long as E(whole) is below 1, there
is something left to be right about, and the error must also be below max(1, ``PART_NOISE_FACTOR`` E(whole)).

One run is one sample of rounding. Where the split run fails by it, more of them say what rounding alone does to the
tensor (see ``rounding``): 4 times that error is accepted, but of more than half of the largest element only what was
seen to happen. A tensor of which they have hardly a digit in common, at the median, is noise, too.

Where r is zero everywhere, the tensor may be as large as ``NOISE_FACTOR`` times the largest element that rounding alone
was seen to make of it, and counts as noise.

Elements that are not finite in whole, split and reference alike are accepted and counted. Where whole and reference
do not agree on what is finite, the whole model overflows in its own precision, and there is nothing to judge by: such
a tensor is never accepted, nor is a step without one finite element. But where a tensor is computed from an input that
is not finite itself, that is no overflow: the reference cannot tell what an op makes of NaN (a maximum may pass it on
or pass it over), and of those elements the whole run is the judge.

Integers and booleans must be equal. Without a reference, the split run is held against the whole one, with
``WHOLE_EPS`` and ``WHOLE_MEDIAN_EPS`` in place of 64 and E(whole) = 0; what is noise, the samples tell.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple

import numpy as np

from planner.errors import DifferenceError
from planner.records import AnyFloat, Positive
from planner.runtime.judge.precision import eps_of, is_float

FACTOR: Final = 4
"""How much farther than the whole run the split one may be from the reference."""
NOISE_FACTOR: Final = 64
"""The same, where the whole run has hardly a digit right."""
PART_NOISE_FACTOR: Final = 8
"""The same, where E(whole) is below 1 and the limit above 1. On a BERT step, E(whole) = 0.35 meets E(split) = 1.6."""
NOISE_ERROR: Final = 2.0**-4
"""E(whole) from which on that is so: four bits of a float32's 24. A state that walks about zero by its noise comes to
1 / sqrt(steps)."""
SEEN_MOST: Final = 0.5
"""``FACTOR`` also applies to the error of rounding alone, but the limit that comes from it is at most this: a tensor of
zeros is never excused."""
SEEN_FACTOR: Final = 1.1
"""Above ``SEEN_MOST`` the limit is the error of rounding alone times this: an element on the other side of a kink has
the same error in every run."""
FLOOR_EPS: Final = 64
"""An error of so many epsilons of the coarsest dtype on the way is always accepted."""
STORED_EPS: Final = 4
"""Epsilons of a next state that are always accepted: what adding the update to the state, with decay, rounds."""
WHOLE_EPS: Final = 8192
"""Epsilons, where there is no reference: both runs are off by what a deep network's rounding adds up to."""
WHOLE_MEDIAN_EPS: Final = 1024

OVERFLOW: Final = "the whole model overflows in its own precision, so that there is nothing to judge by"
HOLLOW: Final = "nothing could be compared, no element of any tensor is finite"


class Noise(NamedTuple):
    """The change of a tensor that rounding alone was seen to make."""

    largest: float
    """The largest error of any sample, relative to the largest element."""
    median: float
    """The largest of the samples' median errors."""


@dataclass(frozen=True, slots=True)
class TensorComparison:
    """One output of one step."""

    told: ClassVar = "name=tensor is_same is_noise error whole_error noise_error limit median_error median_limit remark"

    tensor: str
    is_same: bool
    """True if the tensor is accepted."""
    error: AnyFloat
    """E(split), or against the whole run where there is no reference; for integers the share of unequal elements."""
    limit: AnyFloat
    median_error: AnyFloat
    median_limit: AnyFloat
    has_reference: bool
    is_noise: bool = False
    """True if right runs have hardly a digit in common, or the exact value is zero, so that the error says little."""
    whole_error: AnyFloat | None = None
    """E(whole); None without a reference and for integers."""
    noise_error: AnyFloat | None = None
    """The error of rounding alone, where that was looked at."""
    strange_elements: int = 0
    """Elements that are not finite in the whole run."""
    untold_elements: int = 0
    """Elements that are finite in one of whole run and reference only, and were held against the whole run."""
    finite_elements: int | None = None
    """Elements that were compared; None for integers."""
    remark: str = ""
    """Why the tensor is not accepted, whatever its error; "" if the error alone decides."""

    def __str__(self) -> str:
        if self.remark:
            return f"{self.tensor}: {self.remark}"
        against = "reference" if self.has_reference else "whole run"
        return (
            f"{self.tensor}: {self.error:.2e} of the largest element off the {against} (limit {self.limit:.2e}), "
            f"median {self.median_error:.2e} (limit {self.median_limit:.2e})"
        )


@dataclass(frozen=True, slots=True)
class FarTensor:
    """An output that the whole model has not right."""

    tensor: str
    error: float
    """What a tenth of its elements are off the float64 reference at least, relative to the largest element."""


@dataclass(frozen=True, slots=True)
class StepComparison:
    """All outputs of one step."""

    told: ClassVar = (
        "step tensors=#tensors noise not_finite_elements=strange_elements untold_elements far worst different "
        "judged=tensors is_same"
    )

    step: Positive
    """Counted from 1."""
    tensors: tuple[TensorComparison, ...]
    far: tuple[FarTensor, ...] = ()
    """Outputs that the whole model has not right: of them the reference is the judge, and the next step starts from its
    state."""

    @property
    def is_same(self) -> bool:
        return all(tensor.is_same for tensor in self.tensors) and not self.is_hollow

    @property
    def is_hollow(self) -> bool:
        """True if there are floating-point tensors, and not one finite element in them: nothing was compared."""
        floats = [tensor.finite_elements for tensor in self.tensors if tensor.finite_elements is not None]
        return self.strange_elements > 0 and not any(floats)

    @property
    def remark(self) -> str:
        """The fault of the step as a whole; "" if nothing is."""
        return HOLLOW if self.is_hollow else ""

    @property
    def different(self) -> tuple[TensorComparison, ...]:
        """The comparisons that are not accepted."""
        return tuple(tensor for tensor in self.tensors if not tensor.is_same)

    @property
    def noise(self) -> int:
        """Number of tensors that were compared as noise only."""
        return sum(tensor.is_noise for tensor in self.tensors)

    @property
    def strange_elements(self) -> int:
        """Elements that are not finite in the whole run."""
        return sum(tensor.strange_elements for tensor in self.tensors)

    @property
    def untold_elements(self) -> int:
        """Elements of which the reference could not tell."""
        return sum(tensor.untold_elements for tensor in self.tensors)

    @property
    def worst(self) -> TensorComparison | None:
        """The tensor with the largest error; one that was accepted as noise does not count."""
        counted = (tensor for tensor in self.tensors if not (tensor.is_noise and tensor.is_same))
        return max(counted, key=_size_of_error, default=None)

    @property
    def max_error(self) -> float:
        """The largest error of any tensor that is more than noise."""
        return 0.0 if self.worst is None else self.worst.error


def compare_tensor(
    name: str,
    split: np.ndarray,
    original: np.ndarray,
    exact: np.ndarray | None,
    eps: float | None = None,
    noise: Noise | None = None,
    before: np.ndarray | None = None,
    is_fed_strange: bool = False,
) -> TensorComparison:
    """Judges one output by the rule above.

    Args:
        name: of the tensor.
        split: what the workers made.
        original: what the unpartitioned model made from the same state.
        exact: the float64 reference, if there is one.
        eps: of the coarsest precision on the way to the tensor (see ``coarsest_eps``); None: of its own dtype.
        noise: of samples of rounding; None: not looked at.
        before: of a next state, the state that it takes the place of.
        is_fed_strange: it is computed from an input that is not finite everywhere.
    """
    assert split.shape == original.shape, f"{name}: {split.shape} and {original.shape}"
    if not is_float(original):
        share = float(np.count_nonzero(split != original)) / max(1, original.size)
        return TensorComparison(name, share == 0, share, 0.0, share, 0.0, has_reference=False)
    if eps is None:
        eps = eps_of(original.dtype.name)
    wide = original.astype(np.float64)
    finite = np.isfinite(wide)
    strange = original.size - int(np.count_nonzero(finite))
    untold = 0 if exact is None else int(np.count_nonzero(finite != np.isfinite(exact)))
    # What is infinite or no number counts as in the whole run: NaN and infinity depend on the order of a sum.
    right = wide if exact is None else np.where(finite & np.isfinite(exact), exact, wide)
    error, median = errors(split, right)
    of_whole, median_of_whole = errors(original, right)
    floor, median_floor = (FLOOR_EPS, FLOOR_EPS) if exact is not None else (WHOLE_EPS, WHOLE_MEDIAN_EPS)
    share = 1.0 if before is None else change(right, before)
    rounding, median_rounding = noise or (0.0, 0.0)
    verdict = TensorComparison(
        name,
        False,
        error,
        max(FACTOR * of_whole, _floor(floor, share) * eps, _seen(rounding)),
        median,
        max(FACTOR * median_of_whole, _floor(median_floor, share) * eps, _seen(median_rounding)),
        has_reference=exact is not None,
        is_noise=of_whole >= NOISE_ERROR or median_rounding >= NOISE_ERROR,
        whole_error=None if exact is None else of_whole,
        noise_error=None if noise is None else noise[0],
        strange_elements=strange,
        untold_elements=untold,
        finite_elements=original.size - strange,
    )
    if untold and not is_fed_strange:
        return replace(verdict, error=float("inf"), whole_error=float("inf"), is_noise=False, remark=OVERFLOW)
    if not strange and not np.any(right):
        # Errors are absolute.
        limit = NOISE_FACTOR * max(of_whole, rounding)
        is_noise = max(error, of_whole) > 0
        return replace(verdict, is_same=error <= limit, is_noise=is_noise, limit=limit, median_limit=limit)
    if verdict.is_noise:
        level = Noise(max(of_whole, rounding), max(median_of_whole, median_rounding))
        return _as_noise(verdict, level, largest(split), largest(original))
    return replace(verdict, is_same=error <= verdict.limit and median <= verdict.median_limit)


def change(right: np.ndarray, before: np.ndarray) -> float:
    """The largest change of a state, as a share of the next state's largest element."""
    with np.errstate(invalid="ignore", over="ignore"):
        changed = largest(right - before.astype(np.float64))
    return changed / (largest(right) or 1.0)


def _floor(epsilons: int, share: float) -> float:
    """The epsilons that are always accepted of a tensor of which this share is computed anew."""
    return min(epsilons, epsilons * share + STORED_EPS) if share < 1 else epsilons


def _seen(rounding: float) -> float:
    """The limit of an error, by the error of rounding alone."""
    return max(min(FACTOR * rounding, SEEN_MOST), SEEN_FACTOR * rounding)


def _as_noise(verdict: TensorComparison, level: Noise, split_largest: float, whole_largest: float) -> TensorComparison:
    """Judges a tensor of which right runs have hardly a digit right."""
    limit, median_limit = NOISE_FACTOR * level.largest, max(NOISE_FACTOR * level.median, verdict.median_limit)
    is_part = level.largest < 1
    if is_part:
        limit = min(limit, max(1.0, PART_NOISE_FACTOR * level.largest))
    verdict = replace(verdict, limit=max(limit, verdict.limit), median_limit=median_limit)
    # A single element of noise may come close to zero by chance; many do not all. Where the exact value lies far below
    # the noise of a right run, a smaller one is only nearer to it.
    is_below = verdict.has_reference and level.largest > NOISE_FACTOR
    must_be_large = is_part or ((verdict.finite_elements or 0) > 1 and not is_below)
    is_small = must_be_large and split_largest * NOISE_FACTOR < whole_largest
    if is_small or split_largest > whole_largest * NOISE_FACTOR:
        return replace(
            verdict,
            remark=f"its largest element is {split_largest:.2e}, and the whole run's {whole_largest:.2e}, where only "
            f"noise is left (E of a right run {level.largest:.2e})",
        )
    is_close = verdict.error < verdict.limit if is_part else verdict.error <= verdict.limit
    return replace(verdict, is_same=is_close and verdict.median_error <= verdict.median_limit)


def largest(array: np.ndarray) -> float:
    """The largest finite absolute value; 0 without any."""
    wide = np.abs(array.astype(np.float64))
    return float(np.max(wide, initial=0.0, where=np.isfinite(wide)))


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
    original: Mapping[str, np.ndarray],
    exact: Mapping[str, np.ndarray] | None,
    eps: Mapping[str, float] | None = None,
    noise: Mapping[str, Noise] | None = None,
    before: Mapping[str, np.ndarray] | None = None,
    fed_strange: Collection[str] = (),
) -> StepComparison:
    """Judges every output of one step, in the order of the whole run's.

    Args:
        step: its number.
        split: what the workers made, by output.
        original: what the unpartitioned model made.
        exact: the float64 reference, if there is one.
        eps: by floating-point output, of the coarsest precision on the way; None: of its own dtype.
        noise: by output, the error of rounding alone, where that was looked at.
        before: by next state, the state that it takes the place of.
        fed_strange: outputs that are computed from an input that is not finite everywhere.
    """
    return StepComparison(
        step,
        tuple(
            compare_tensor(
                name,
                split[name],
                array,
                None if exact is None else exact[name],
                None if eps is None else eps.get(name),
                None if noise is None else noise.get(name),
                None if before is None else before.get(name),
                name in fed_strange,
            )
            for name, array in original.items()
        ),
    )


def difference(comparisons: tuple[StepComparison, ...]) -> DifferenceError | None:
    """The error for comparisons that are not accepted; None if all of them are accepted."""
    facts = [
        f"step {comparison.step}, {tensor}"
        for comparison in comparisons
        for tensor in comparison.tensors
        if not tensor.is_same
    ]
    facts += [f"step {comparison.step}: {comparison.remark}" for comparison in comparisons if comparison.is_hollow]
    if not facts:
        return None
    return DifferenceError("the split run differs from the whole model", facts=tuple(facts))


def worst(comparisons: tuple[StepComparison, ...]) -> float:
    """The largest error of all steps; 0 where there are none."""
    return max((comparison.max_error for comparison in comparisons), default=0.0)


def worst_tensor(comparisons: tuple[StepComparison, ...]) -> tuple[int, TensorComparison] | None:
    """The tensor with the largest error of all steps, and its step; None where there are none but noise."""
    worst_by_step = [(comparison.step, comparison.worst) for comparison in comparisons]
    counted = [(step, tensor) for step, tensor in worst_by_step if tensor is not None]
    return max(counted, key=lambda item: _size_of_error(item[1]), default=None)


def _size_of_error(tensor: TensorComparison) -> tuple[bool, float]:
    return not tensor.is_same, tensor.error
