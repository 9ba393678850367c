"""Equal blocks of a strip, folded: ``in mid out, in mid out, ...`` becomes ``in mid out`` times 36.

What repeats is found in the row of columns alone: two columns are equal if they are the same kind of op on tensors of
the same shapes, planned in the same way, and as much moves because of them. Where a row repeats, it may be read from
several places on (``out in mid`` as well); names tell which reading is meant: a block's names have most in common.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from planner.graph.compare.repeats import Stretches, most_saving, numbered

_LONGEST_BLOCK = 64
"""Columns."""
_SEPARATOR = re.compile(r"[./_:\-]+$")


@dataclass(frozen=True, slots=True)
class Block:
    """Columns that follow each other, and how often they do."""

    first: int
    """Number of the first column."""
    length: int
    """Columns of one repetition."""
    times: int

    @property
    def end(self) -> int:
        """Number of the column after the last one."""
        return self.first + self.length * self.times

    def starts(self) -> range:
        """Numbers of the first columns of all repetitions."""
        return range(self.first, self.end, self.length)


def folded(kinds: Sequence[Hashable], names: Sequence[str]) -> tuple[Block, ...]:
    """The row as blocks, in order, each column in one of them.

    >>> folded("abcbcbcd", ["stem", "1.b", "1.c", "2.b", "2.c", "3.b", "3.c", "fc"])
    (Block(first=0, length=1, times=1), Block(first=1, length=2, times=3), Block(first=7, length=1, times=1))

    Args:
        kinds: of the columns; equal for equal columns.
        names: of the columns.
    """
    row = numbered(kinds)
    blocks: list[Block] = []
    waiting = [(0, len(row))]
    while waiting:
        start, end = waiting.pop()
        equal = most_saving(row[start:end], longest=_LONGEST_BLOCK)
        if equal is None:
            blocks += _single(names, start, end)
            continue
        block = _as_named(names, start, equal)
        waiting += [(block.end, end), (start, block.first)]
        blocks.append(block)
    return tuple(sorted(blocks, key=lambda block: block.first))


def _as_named(names: Sequence[str], first: int, equal: Stretches) -> Block:
    """Equal stretches behind a column, read from where the names of a block have the most in common."""
    times = len(equal.starts)
    readings = [
        Block(first + equal.starts[0] + later, equal.length, times - (later > equal.begun))
        for later in range(equal.length)
    ]
    return max(
        (block for block in readings if block.times > 1), key=lambda block: (_common(names, block), -block.first)
    )


def _common(names: Sequence[str], block: Block) -> int:
    """How many characters the names of each repetition have in common, at least over the repetitions."""
    return min(len(_prefix(names[start : start + block.length])) for start in block.starts())


def _prefix(names: Sequence[str]) -> str:
    """The characters with which all names begin."""
    first, last = min(names), max(names)
    length = next((at for at, (char, peer) in enumerate(zip(first, last, strict=False)) if char != peer), len(first))
    return first[:length]


def _single(names: Sequence[str], start: int, end: int) -> list[Block]:
    """Columns that repeat nothing, as blocks: those beside each other with a name in common."""
    blocks: list[Block] = []
    for at in range(start, end):
        if blocks and block_name(names[blocks[-1].first : at]) == block_name(names[at : at + 1]):
            blocks[-1] = Block(blocks[-1].first, blocks[-1].length + 1, 1)
        else:
            blocks.append(Block(at, 1, 1))
    return blocks


def block_name(names: Sequence[str]) -> str:
    """What a block is called: what the names of its columns have in common, up to and with the last number.

    >>> block_name(["group1.block2.in.weight", "group1.block2.mid.weight"]), block_name(["stem.conv.weight"])
    ('group1.block2', 'stem.conv.weight')
    """
    common = _prefix(names)
    up_to_number = re.match(r".*\d", common, re.DOTALL)
    return up_to_number[0] if up_to_number is not None else _SEPARATOR.sub("", common) or names[0]
