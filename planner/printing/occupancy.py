"""The output of ``tofu explain --view memory``: a worker's memory over its steps, drawn in letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TextIO

from planner.graph.step.purposes import Purpose
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
    """Prints a worker's memory over the steps of its program, and its contents when it is fullest."""
    console = ReportConsole(file)
    occupancy = result.occupancy
    last = len(occupancy.held_bytes) - 1
    console.print_paragraphs(
        [
            ("model", result.plan.model),
            ("worker", _worker(result)),
            ("holds", f"{binary(occupancy.total_bytes)} of tensors at most, in {_moment(occupancy.fullest, last)}"),
            *(
                []
                if result.plan.has_program
                else [("stated", f"{memory_needed(result.plan)}; here its program was made")]
            ),
            *([] if result.limit_bytes is None else [("limit", _limit(result.limit_bytes, occupancy.total_bytes))]),
        ]
    )
    console.print()
    for line in drawn(occupancy, result.begins, console.columns):
        console.print_line(line)
    console.print()
    running = f", while {and_more(result.running)} runs" if result.running else ""
    console.print_text(f"what it is in {_moment(occupancy.fullest, last)}{running}:")
    amounts = sorted(occupancy.amounts(occupancy.fullest).items(), key=lambda item: -item[1])
    console.print_items(
        [
            (_share(size, occupancy), f"{LETTERS[purpose]}  {purpose.value}", SAID.get(purpose, ""))
            for purpose, size in amounts
        ]
    )
    # A model of many layers holds hundreds of equal buffers then: only as groups do they fit a screen.
    groups = occupancy.alike_at(occupancy.fullest)
    console.print()
    suffix = f"; {_SHOWN} of {len(groups):,} kinds of buffers" if len(groups) > _SHOWN else ""
    console.print_text(f"what takes most then{suffix}:")
    console.print_items([_group(group, occupancy, last) for group in groups[:_SHOWN]])


def _worker(result: MemoryResult) -> str:
    worker, peaks = result.occupancy.worker, result.peak_bytes
    if len(peaks) == 1:
        return "the only one"
    if min(peaks) == max(peaks):
        return f"{worker} of {len(peaks)}, which all need as much"
    if binary(min(peaks)) == binary(max(peaks)):
        return f"{worker} of {len(peaks)}, which all need about as much"
    fullest, emptiest = peaks.index(max(peaks)), peaks.index(min(peaks))
    extremes = [
        f"worker {peer} needs {degree}, {binary(peaks[peer])}"
        for peer, degree in ((fullest, "most"), (emptiest, "least"))
        if peer != worker
    ]
    remark = "; it needs most" if peaks[worker] == max(peaks) else ""
    return f"{worker} of {len(peaks)}{remark}; {'; '.join(extremes)}"


def _limit(limit: int, total: int) -> str:
    if total > limit:
        return f"{binary(limit)}, which is {binary(total - limit)} too little"
    return f"{binary(limit)}, of which {binary(limit - total)} are left"


def _moment(moment: int, last: int) -> str:
    return f"step {moment:,} of {last:,}" if moment < last else f"the end, after {counted(last, 'step')}"


def _share(size: int, occupancy: Occupancy) -> tuple[str, str]:
    return binary(size), f"{100 * size / occupancy.total_bytes:.1f}%"


def _group(group: Sequence[Held], occupancy: Occupancy, last: int) -> tuple[tuple[str, str], str, str]:
    first = group[0]
    maker = f" made by {first.op_type}" if first.op_type else ""
    size = f", {binary(first.size_bytes)} each" if len(group) > 1 else ""
    since = f"from step {first.first:,}" if first.first else "from the beginning"
    until = f"to step {first.last:,}" if first.last < last else "to the end"
    held = f"held {since} {until}" if first.first or first.last < last else "held all the time"
    text = f"{first.purpose.value}{maker}{size}; {'the first ' * (len(group) > 1)}{held}"
    return _share(len(group) * first.size_bytes, occupancy), and_more([buffer.buffer for buffer in group]), text


def drawn(occupancy: Occupancy, begins: Mapping[str, int], columns: int) -> list[str]:
    """Lines that show what is held over the steps: in each column the fullest of some steps, by purpose a letter.

    Args:
        occupancy: what is held.
        begins: by part of an iteration the step in which it begins.
        columns: how wide lines may be.
    """
    total, count = occupancy.total_bytes, len(occupancy.held_bytes)
    labels = [binary(total), *[""] * (_ROWS // 2 - 1), binary(total // 2), *[""] * (_ROWS // 2 - 1), "0 B"]
    side = max(map(len, labels))
    width = max(20, columns - side - 2)
    moments = fullest_moments(occupancy.held_bytes, width)
    bars = [_bar(occupancy, moments[column * len(moments) // width]) for column in range(width)]
    lines = [
        f"{labels[row]:>{side}} |" + "".join(bar[_ROWS - 1 - row] for bar in bars).rstrip() for row in range(_ROWS)
    ]
    marks = [(width * moment // count, f"{part} {moment:,}") for part, moment in begins.items()]
    axis = "".join("|" if column in dict(marks) else "-" for column in range(width))
    lines.append(f"{labels[-1]:>{side}} +{axis}")
    texts = [(0, "step 0"), (width, f"{count - 1:,}"), *marks]
    return [*lines, *(" " * (side + 2) + line for line in _labels(texts, width))]


def _bar(occupancy: Occupancy, moment: int) -> str:
    """A column of a drawing, from the bottom up: at each row the letter of what lies at its middle."""
    bar, below = "", 0
    for purpose, amounts in occupancy.by_purpose.items():
        below += int(amounts[moment])
        # The middle of row n lies at (2n + 1) of 2 * _ROWS parts of the total.
        upto = (2 * _ROWS * below + occupancy.total_bytes) // (2 * occupancy.total_bytes)
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
            (at for at, row in enumerate(lines) if not row[max(0, start - 1) : start + len(text) + 1].strip()), None
        )
        if line is None:
            line = len(lines)
            lines.append("")
        row = f"{lines[line]:<{width}}"
        lines[line] = (row[:start] + text + row[start + len(text) :]).rstrip()
    return lines
