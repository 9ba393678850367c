"""What ``tofu explain --memory`` prints: what a worker holds over the steps of its program, as a drawing in letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TextIO

from planner.graph.purposes import Purpose
from planner.partition.occupancy import Held, Occupancy
from planner.printing.console import ReportConsole
from planner.printing.facts import counted, memory_needed
from planner.printing.planned import and_more
from planner.printing.stretches import fullest_moments
from planner.results import MemoryResult
from planner.units import binary

LETTERS: Final[Mapping[Purpose, str]] = MappingProxyType(
    {
        Purpose.PARAMETERS: "p",
        Purpose.OPTIMIZER_STATE: "o",
        Purpose.CARRIED_STATE: "c",
        Purpose.NEXT_STATE: "n",
        Purpose.DATA: "d",
        Purpose.CONSTANTS: "k",
        Purpose.ACTIVATIONS: "a",
        Purpose.AGAIN: "A",
        Purpose.GRADIENTS: "g",
        Purpose.RESULTS: "r",
        Purpose.FETCHED: "f",
        Purpose.INSIDE: "i",
        Purpose.GAPS: ".",
    }
)
SAID: Final[Mapping[Purpose, str]] = MappingProxyType(
    {
        Purpose.FETCHED: "parts of tensors fetched for an op, and partial results that are not joined yet",
        Purpose.INSIDE: "tensors that one segment alone sees: reserved throughout, as much as the largest needs",
        Purpose.GAPS: "what the arena is larger than its buffers at their most, alignment included",
    }
)
"""Of purposes that do not say it by their names."""
_ROWS = 12
_SHOWN = 8
"""Groups of buffers."""


def print_memory(result: MemoryResult, file: TextIO) -> None:
    """Prints what a worker holds over the steps of its program, and what it holds when it is fullest."""
    console = ReportConsole(file)
    found = result.occupancy
    last = len(found.held_bytes) - 1
    console.print_paragraphs(
        [
            ("model", result.plan.model),
            ("worker", _worker(result)),
            ("holds", f"{binary(found.total_bytes)} of tensors at most, in {_moment(found.fullest, last)}"),
            *(
                []
                if result.plan.has_program
                else [("stated", f"{memory_needed(result.plan)}; here its program was made")]
            ),
            *([] if result.limit_bytes is None else [("limit", _limit(result.limit_bytes, found.total_bytes))]),
        ]
    )
    console.print()
    for line in drawn(found, result.begins, console.columns):
        console.print_line(line)
    console.print()
    running = f", while {and_more(result.running)} runs" if result.running else ""
    console.print_text(f"what it is in {_moment(found.fullest, last)}{running}:")
    amounts = sorted(found.amounts(found.fullest).items(), key=lambda item: -item[1])
    console.print_items(
        [
            (_share(size, found), f"{LETTERS[purpose]}  {purpose.value}", SAID.get(purpose, ""))
            for purpose, size in amounts
        ]
    )
    groups = found.alike_at(found.fullest)
    console.print()
    more = f"; {_SHOWN} of {len(groups):,} kinds of buffers" if len(groups) > _SHOWN else ""
    console.print_text(f"what takes most then{more}:")
    console.print_items([_group(group, found, last) for group in groups[:_SHOWN]])


def _worker(result: MemoryResult) -> str:
    worker, peaks = result.occupancy.worker, result.peak_bytes
    if len(peaks) == 1:
        return "the only one"
    if min(peaks) == max(peaks):
        return f"{worker} of {len(peaks)}, which all need as much"
    if binary(min(peaks)) == binary(max(peaks)):
        return f"{worker} of {len(peaks)}, which all need about as much"
    most, least = peaks.index(max(peaks)), peaks.index(min(peaks))
    others = [
        f"worker {other} needs {what}, {binary(peaks[other])}"
        for other, what in ((most, "most"), (least, "least"))
        if other != worker
    ]
    own = "; it needs most" if peaks[worker] == max(peaks) else ""
    return f"{worker} of {len(peaks)}{own}; {'; '.join(others)}"


def _limit(limit: int, total: int) -> str:
    if total > limit:
        return f"{binary(limit)}, which is {binary(total - limit)} too little"
    return f"{binary(limit)}, of which {binary(limit - total)} are left"


def _moment(moment: int, last: int) -> str:
    return f"step {moment:,} of {last:,}" if moment < last else f"the end, after {counted(last, 'step')}"


def _share(size: int, found: Occupancy) -> tuple[str, str]:
    return binary(size), f"{100 * size / found.total_bytes:.1f}%"


def _group(group: Sequence[Held], found: Occupancy, last: int) -> tuple[tuple[str, str], str, str]:
    first = group[0]
    made = f" made by {first.op_type}" if first.op_type else ""
    each = f", {binary(first.size_bytes)} each" if len(group) > 1 else ""
    since = f"from step {first.first:,}" if first.first else "from the beginning"
    until = f"to step {first.last:,}" if first.last < last else "to the end"
    held = f"held {since} {until}" if first.first or first.last < last else "held all the time"
    said = f"{first.purpose.value}{made}{each}; {'the first ' * (len(group) > 1)}{held}"
    return _share(len(group) * first.size_bytes, found), and_more([one.buffer for one in group]), said


def drawn(found: Occupancy, begins: Mapping[str, int], columns: int) -> list[str]:
    """Lines that show what is held over the steps: in each column the fullest of some steps, by purpose a letter.

    Args:
        found: what is held.
        begins: by part of an iteration the step in which it begins.
        columns: how wide lines may be.
    """
    total, count = found.total_bytes, len(found.held_bytes)
    labels = [binary(total), *[""] * (_ROWS // 2 - 1), binary(total // 2), *[""] * (_ROWS // 2 - 1), "0 B"]
    side = max(map(len, labels))
    width = max(20, columns - side - 2)
    moments = fullest_moments(found.held_bytes, width)
    bars = [_bar(found, moments[column * len(moments) // width]) for column in range(width)]
    lines = [
        f"{labels[row]:>{side}} |" + "".join(bar[_ROWS - 1 - row] for bar in bars).rstrip() for row in range(_ROWS)
    ]
    marks = [(width * moment // count, f"{part} {moment:,}") for part, moment in begins.items()]
    axis = "".join("|" if column in dict(marks) else "-" for column in range(width))
    lines.append(f"{labels[-1]:>{side}} +{axis}")
    texts = [(0, "step 0"), (width, f"{count - 1:,}"), *marks]
    return [*lines, *(" " * (side + 2) + line for line in _labels(texts, width))]


def _bar(found: Occupancy, moment: int) -> str:
    """A column of a drawing, from the bottom up: at each row the letter of what lies at its middle."""
    bar, below = "", 0
    for purpose, amounts in found.by_purpose.items():
        below += int(amounts[moment])
        # The middle of row n lies at (2n + 1) of 2 * _ROWS parts of the total.
        upto = (2 * _ROWS * below + found.total_bytes) // (2 * found.total_bytes)
        bar += LETTERS[purpose] * (upto - len(bar))
    return f"{bar:<{_ROWS}}"


def _labels(texts: Sequence[tuple[int, str]], width: int) -> list[str]:
    """Texts below the columns in which they begin, in as many lines as they need.

    >>> _labels([(0, "step 0"), (20, "99"), (8, "backward 40"), (9, "update 45")], 20)
    ['step 0            99', '        backward 40', '         update 45']
    """
    lines: list[str] = []
    for column, text in texts:
        start = min(column, width - len(text))
        line = next(
            (at for at, its in enumerate(lines) if not its[max(0, start - 1) : start + len(text) + 1].strip()), None
        )
        if line is None:
            line = len(lines)
            lines.append("")
        its = f"{lines[line]:<{width}}"
        lines[line] = (its[:start] + text + its[start + len(text) :]).rstrip()
    return lines
