"""Numbers of GPUs and batches to try: texts such as ``1..64``."""

from __future__ import annotations

import re
from typing import Final

from planner.errors import UsageError
from planner.machine.routes import level_ways
from planner.machine.topology_file import Machine

MOST_BY_DEFAULT: Final = 64
"""GPUs, where no topology says how many there are."""
BATCHES_BY_DEFAULT: Final = (1, 512)
_RANGE: Final = re.compile(r"([1-9][0-9]{0,8})\.\.([1-9][0-9]{0,8})")
_LIST: Final = re.compile(r"[1-9][0-9]{0,8}(?:,[1-9][0-9]{0,8})*")


def range_of(text: str, option: str) -> tuple[int, int] | None:
    """The ends of a range; None where the text is none.

    >>> range_of("1..64", "--gpus"), range_of("8", "--gpus")
    ((1, 64), None)

    Raises:
        UsageError: it ends before it begins.
    """
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        return None
    low, high = int(match[1]), int(match[2])
    if low > high:
        raise UsageError(f"{option}: {text!r} ends before it begins", hint=f"write {option} {high}..{low}")
    return low, high


def counts_of(text: str | None, machine: Machine | None) -> tuple[int, ...]:
    """Numbers of GPUs, ascending: those of a list, or of a range its ends, the powers of two and what levels join.

    >>> counts_of("1..12", None), counts_of("2,3,6", None), counts_of(None, None)
    ((1, 2, 4, 8, 12), (2, 3, 6), (1, 2, 4, 8, 16, 32, 64))

    Args:
        text: a range or a list; None: from 1 to all of the machine's, or to 64.
        machine: has at least so many devices, of a range so many as it has are taken; None: there is none.

    Raises:
        UsageError: the text is neither, or a list asks for more than there are.
    """
    limit = MOST_BY_DEFAULT if machine is None else machine.device_count
    ends = (1, limit) if text is None else range_of(text, "--gpus")
    if ends is None:
        return _listed(text or "", machine)
    low, high = ends if machine is None else (ends[0], min(ends[1], limit))
    if low > high:
        raise UsageError(f"--gpus {text}: the topology has {limit} devices", hint=f"write --gpus 1..{limit}")
    counts, joined = {low, high, *(1 << power for power in range(high.bit_length()))}, 1
    for ways in reversed(() if machine is None else level_ways(machine)):
        joined *= ways
        counts.add(joined)
    return tuple(sorted(count for count in counts if low <= count <= high))


def _listed(text: str, machine: Machine | None) -> tuple[int, ...]:
    if not _LIST.fullmatch(text.strip()):
        raise UsageError(f"--gpus: {text!r} is no number of GPUs", hint="write a range such as 1..64, or 2,4,8")
    counts = tuple(sorted({int(count) for count in text.split(",")}))
    if machine is not None and counts[-1] > machine.device_count:
        raise UsageError(
            f"--gpus: {counts[-1]} are asked for, and the topology {machine.name} has {machine.device_count} devices",
            hint=f"write --gpus 1..{machine.device_count}",
        )
    return counts


def batches_of(text: str | None) -> tuple[tuple[int, int], int | None]:
    """The batches among which the largest is looked for, and the batch that plans are for; None: that of the model.

    >>> batches_of(None), batches_of("1..64"), batches_of("32")
    (((1, 512), None), ((1, 64), None), ((32, 32), 32))

    Raises:
        UsageError: the text is neither a number nor a range.
    """
    if text is None:
        return BATCHES_BY_DEFAULT, None
    ends = range_of(text, "--batch")
    if ends is not None:
        return ends, None
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text.strip()):
        raise UsageError(f"--batch: {text!r} is no number of samples", hint="write a number, or a range such as 1..512")
    return (int(text), int(text)), int(text)
