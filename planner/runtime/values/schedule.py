"""Learning rates by step, as text: what feeds the input ``learning_rate`` of a training graph.

0.05                        the same in every step
step:0.1,0.5,1000           0.1 at first, and half of it after every 1000 steps
cosine:0.1,0.001,5000       from 0.1 down to 0.001 along half a cosine over 5000 steps, and there it stays
                            (Loshchilov and Hutter, "SGDR", ICLR 2017, equation 5, one period)
cosine:0.1,0.001,5000,200   the same after 200 steps in which it rises from nearly 0, linearly
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from planner.errors import UsageError, did_you_mean

INPUT: Final = "learning_rate"
"""The input that a schedule feeds."""
_FORMS: Final = ("step", "cosine")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A learning rate for every step."""

    kind: str
    """``constant``, ``step`` or ``cosine``."""
    numbers: tuple[float, ...]
    """As in the text."""

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 1."""
        if self.kind == "constant":
            return self.numbers[0]
        if self.kind == "step":
            base, factor, every = self.numbers
            return float(base * factor ** ((step - 1) // every))
        base, end, steps, *optional = self.numbers
        warmup = optional[0] if optional else 0.0
        if step <= warmup:
            return base * step / warmup
        done = min(1.0, (step - 1 - warmup) / steps)
        return end + (base - end) * (1 + math.cos(math.pi * done)) / 2


def parse_schedule(text: str) -> Schedule:
    """A schedule from its text; see the top of this file.

    Raises:
        UsageError: it cannot be read.
    """
    kind, colon, listed = text.strip().partition(":")
    if not colon:
        kind, listed = "constant", kind
    elif kind not in _FORMS:
        hint = did_you_mean(kind, _FORMS) or "write a number, step:BASE,FACTOR,EVERY or cosine:BASE,END,STEPS[,WARMUP]"
        raise UsageError(f"--lr {text!r}: there is no schedule {kind!r}", hint=hint)
    try:
        numbers = tuple(float(part) for part in listed.split(","))
    except ValueError:
        numbers = ()
    fault = _fault(kind, numbers)
    if fault:
        hint = "write 0.05, step:BASE,FACTOR,EVERY or cosine:BASE,END,STEPS[,WARMUP]"
        raise UsageError(f"--lr {text!r}: {fault}", hint=hint)
    return Schedule(kind, numbers)


def _fault(kind: str, numbers: tuple[float, ...]) -> str:
    if not numbers or not all(math.isfinite(number) and number >= 0 for number in numbers):
        return "wants finite numbers from 0"
    if kind == "constant":
        return "" if len(numbers) == 1 else "wants one number"
    if kind == "step":
        fits = len(numbers) == 3 and numbers[2] >= 1 and numbers[2].is_integer()
        return "" if fits else "wants BASE,FACTOR,EVERY, and EVERY a whole number from 1"
    fits = len(numbers) in (3, 4) and numbers[2] >= 1 and all(number.is_integer() for number in numbers[2:])
    return "" if fits else "wants BASE,END,STEPS or BASE,END,STEPS,WARMUP, and whole numbers of steps"
