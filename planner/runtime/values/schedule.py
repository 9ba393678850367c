"""Learning rates by update: the values of the input ``learning_rate`` of a training graph.

As text, a number or one of these forms. An update is a step of the run, however many micro-batches it has. With t the
number of the update from 1, and s = (t - 1 - WARMUP) / STEPS, no less than 0 and no more than 1:

step:BASE,FACTOR,EVERY               BASE FACTOR^floor((t - 1) / EVERY)
linear:BASE,END,STEPS[,WARMUP]       BASE + (END - BASE) s
cosine:BASE,END,STEPS[,WARMUP]       END + (BASE - END) (1 + cos(pi s)) / 2
                                     (Loshchilov and Hutter, "SGDR", ICLR 2017, equation 5, one period)
wsd:BASE,END,STABLE,STEPS[,WARMUP]   BASE for STABLE updates, then linear over STEPS
                                     (Hu et al., "MiniCPM", 2024, section 4: warmup, stable, decay)

Warm-up comes first in each: BASE t / WARMUP, for t up to WARMUP.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from planner.errors import UsageError, did_you_mean

INPUT: Final = "learning_rate"
"""The input that a schedule feeds."""
Rates: TypeAlias = Callable[[int], float] | np.ndarray | Sequence[float]
"""A schedule in Python: a function from the number of the update, from 1, to its rate; or the rates in order."""


def _step(update: int, base: float, factor: float, every: float) -> float:
    return float(base * factor ** ((update - 1) // every))


def _linear(update: int, base: float, end: float, steps: float, warmup: float = 0) -> float:
    return _wsd(update, base, end, 0, steps, warmup)


def _cosine(update: int, base: float, end: float, steps: float, warmup: float = 0) -> float:
    share = _wsd(update, 1, 0, 0, steps, warmup)  # 1 - s
    return base * share if update <= warmup else end + (base - end) * (1 - math.cos(math.pi * share)) / 2


def _wsd(update: int, base: float, end: float, stable: float, steps: float, warmup: float = 0) -> float:
    if update <= warmup:
        return base * update / warmup
    return base + (end - base) * min(1.0, max(0.0, (update - 1 - warmup - stable) / steps))


_FORMS: Final[Mapping[str, tuple[str, Callable[..., float]]]] = {
    "step": ("BASE,FACTOR,EVERY", _step),
    "linear": ("BASE,END,STEPS[,WARMUP]", _linear),
    "cosine": ("BASE,END,STEPS[,WARMUP]", _cosine),
    "wsd": ("BASE,END,STABLE,STEPS[,WARMUP]", _wsd),
}
"""By name, the parameters as they are typed, and the rate of an update with them."""
_LEAST: Final = {"EVERY": 1, "STEPS": 1, "STABLE": 0, "WARMUP": 0}
"""The smallest value of the parameters that are counts of updates."""
_HINT: Final = f"write 0.05, {', '.join(f'{name}:{parameters}' for name, (parameters, _) in _FORMS.items())}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A learning rate for every update."""

    formula: Callable[[int], float]
    updates: float = math.inf
    """The number of updates that it has a rate for."""
    text: str = ""
    """As ``--lr`` writes it; "" for a function or a list of rates."""

    def rate(self, update: int) -> float:
        """The learning rate of an update, counted from 1.

        Raises:
            UsageError: it is no finite number from 0.
        """
        rate = float(self.formula(update))
        if not (math.isfinite(rate) and rate >= 0):
            raise UsageError(f"lr: the rate of update {update} is {rate}; it must be a finite number, at least 0")
        return rate

    def check(self, last: int) -> None:
        """Refuses a run of more updates than there are rates.

        Raises:
            UsageError: it is one.
        """
        if last > self.updates:
            raise UsageError(f"lr: {self.updates} rates for {last:,} updates", hint="give one rate for each update")


def schedule_of(rates: str | float | Rates) -> Schedule:
    """A schedule from its text, its number, its function or its rates; see the top of this file.

    Raises:
        UsageError: it cannot be read.
    """
    if callable(rates):
        return Schedule(rates)
    if isinstance(rates, str | float | int):
        return _parsed(str(rates))
    listed = np.asarray(rates, np.float64)
    if listed.ndim != 1:
        raise UsageError(f"lr: an array of shape {list(listed.shape)}", hint="give one rate for each update")
    schedule = Schedule(lambda update: listed[update - 1], listed.size)
    for update in range(1, listed.size + 1):
        schedule.rate(update)
    return schedule


def _parsed(text: str) -> Schedule:
    kind, colon, numbers = text.strip().partition(":")
    if colon and kind not in _FORMS:
        raise UsageError(f"--lr {text!r}: there is no schedule {kind!r}", hint=did_you_mean(kind, _FORMS) or _HINT)
    try:
        values = tuple(float(part) for part in (numbers if colon else kind).split(","))
    except ValueError:
        values = ()
    parameters, formula = _FORMS[kind] if colon else ("RATE", lambda _update, rate: rate)
    names = parameters.replace("[", "").replace("]", "").split(",")
    required = len(parameters.partition("[")[0].split(","))
    counts = [(name, value) for name, value in zip(names, values, strict=False) if name in _LEAST]
    if not values or not all(math.isfinite(value) and value >= 0 for value in values):
        fault = "wants finite numbers from 0"
    elif not required <= len(values) <= len(names):
        fault = f"wants {parameters}"
    elif wrong := [name for name, value in counts if value < _LEAST[name] or not value.is_integer()]:
        fault = f"{wrong[0]} is a number of updates, a whole number from {_LEAST[wrong[0]]}"
    else:
        return Schedule(lambda update: formula(update, *values), text=text)
    raise UsageError(f"--lr {text!r}: {fault}", hint=_HINT)
