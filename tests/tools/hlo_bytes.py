"""What the collectives of a compiled XLA program move, counted as tofu counts: from one device to another, in all.

It reads the text of the compiled module. For a group of g devices and S bytes of the whole: an all-gather, a
reduce-scatter and an all-to-all move (g-1) S (the last of S bytes on all devices together, each keeping its own
share), an all-reduce 2 (g-1) S of S bytes on each device, a collective-permute its bytes for each pair that differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4} | {
    "s64": 8, "u64": 8, "f64": 8,
}  # fmt: skip
_CALL = re.compile(
    r"= (?P<made>\([^)]*\)|\S+) (?P<kind>all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)"
    r"(?P<start>-start)?\("
)
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_LISTED = re.compile(r"replica_groups=\{(\{[\d,{} ]*\})\}")
_COUNTED = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_PAIRS = re.compile(r"source_target_pairs=\{([\d,{} ]*)\}")


@dataclass(frozen=True, slots=True)
class Moved:
    """One collective."""

    kind: str
    bytes: int


def collectives(text: str, devices: int) -> Iterator[Moved]:
    """The collectives of a compiled module, with what each moves.

    Args:
        text: of the module.
        devices: how many execute it.
    """
    for line in text.splitlines():
        call = _CALL.search(line)
        if call is None:
            continue
        kind = call["kind"]
        made = sum(_array_bytes(*array) for array in _ARRAY.findall(call["made"]))
        assert not call["start"], f"an asynchronous collective: {line}"
        if kind == "collective-permute":
            pairs = re.findall(r"\{(\d+),(\d+)\}", "{" + _PAIRS.search(line)[1] + "}")
            yield Moved(kind, made * sum(one != other for one, other in pairs))
            continue
        for size in _group_sizes(line, devices):
            if kind == "all-reduce":
                yield Moved(kind, 2 * (size - 1) * made)
            elif kind == "all-gather":
                yield Moved(kind, (size - 1) * made)
            elif kind == "reduce-scatter":
                yield Moved(kind, (size - 1) * made * size)
            else:
                yield Moved(kind, (size - 1) * made)


def _array_bytes(dtype: str, dims: str) -> int:
    return _BYTES[dtype] * prod(int(dim) for dim in dims.split(",") if dim)


def _group_sizes(line: str, devices: int) -> list[int]:
    counted = _COUNTED.search(line)
    if counted is not None:
        groups, size = (int(part) for part in counted[1].split(","))
        assert groups * size == int(np.prod([int(part) for part in counted[2].split(",")]))
        return [size] * groups
    listed = _LISTED.search(line)
    if listed is None:
        return [devices]
    return [len(group.split(",")) for group in re.findall(r"\{([\d, ]+)\}", listed[1])]
