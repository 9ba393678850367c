"""Equal runs of calls become one function: the layers of a network, the time steps of a recurrence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_SHORTEST: Final = 5
"""Calls of a run that is worth a function."""
_MOST_BLOCKS: Final = 40


@dataclass(frozen=True, slots=True)
class Call:
    """A function, or an expression, applied to tensors."""

    form: str
    """Equal for calls of the same."""
    is_function: bool
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    """Of an expression: the names in it that stand for inputs."""


@dataclass(frozen=True, slots=True)
class Block:
    """A run of calls that there is several times."""

    name: str
    calls: tuple[Call, ...]
    """Those of the first."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    count: int


def folded(calls: Sequence[Call], kept: Sequence[str]) -> tuple[list[Call], list[Block]]:
    """The calls with equal runs of them replaced by calls of blocks; a block may call others.

    Args:
        calls: in order.
        kept: tensors that are needed at the end.
    """
    current, blocks = list(calls), list[Block]()
    while len(blocks) < _MOST_BLOCKS:
        found = _most_saving(current)
        if found is None:
            break
        starts, length = found
        name = f"block_{len(blocks) + 1}"
        made = [_outputs(current, start, length) for start in starts]
        used = _used_outside(current, starts, length, kept)
        positions = [number for number in range(len(made[0])) if any(outputs[number] in used for outputs in made)]
        replaced: list[Call] = []
        at = 0
        for start, outputs in zip(starts, made, strict=True):
            inputs = _inputs(current, start, length)
            chosen = tuple(outputs[number] for number in positions)
            if start == starts[0]:
                blocks.append(Block(name, tuple(current[start : start + length]), inputs, chosen, len(starts)))
            replaced += [*current[at:start], Call(name, True, inputs, chosen)]
            at = start + length
        current = replaced + current[at:]
    return current, blocks


def _most_saving(calls: Sequence[Call]) -> tuple[list[int], int] | None:
    """Where equal runs begin, and how long they are, so that the fewest calls are left; None if there are none."""
    makers = {name: number for number, call in enumerate(calls) for name in call.outputs}
    grams: dict[tuple[str, ...], list[int]] = {}
    for number in range(len(calls) - _SHORTEST + 1):
        grams.setdefault(tuple(call.form for call in calls[number : number + _SHORTEST]), []).append(number)
    best: tuple[int, list[int], int] | None = None
    ends: dict[int, int] = {}
    """By distance, up to where a pair of runs has been looked at."""
    for number in range(len(calls) - _SHORTEST + 1):
        gram = tuple(call.form for call in calls[number : number + _SHORTEST])
        places = grams[gram]
        following = next((place for place in places if place >= number + _SHORTEST), None)
        if following is None or ends.get(following - number, 0) > number:
            continue
        length = _common(calls, makers, number, following, following - number)
        ends[following - number] = number + max(length, 1)
        if length < _SHORTEST:
            continue
        starts = [number]
        for place in places:
            if place >= starts[-1] + length and _common(calls, makers, number, place, length) == length:
                starts.append(place)
        saved = (len(starts) - 1) * length
        if best is None or saved > best[0]:
            best = saved, starts, length
    return None if best is None else best[1:]


def _common(calls: Sequence[Call], makers: dict[str, int], first: int, second: int, most: int) -> int:
    """How many calls from two places on are the same, and tied to each other in the same way."""
    there: dict[str, str] = {}
    back: dict[str, str] = {}
    for offset in range(min(most, len(calls) - second)):
        one, other = calls[first + offset], calls[second + offset]
        if (one.form, len(one.outputs)) != (other.form, len(other.outputs)):
            return offset
        for mine, its in zip(one.inputs, other.inputs, strict=True):
            is_inner = makers.get(mine, -1) >= first
            if is_inner != (makers.get(its, -1) >= second):
                return offset
            if there.setdefault(mine, its) != its or back.setdefault(its, mine) != mine:
                return offset
        for mine, its in zip(one.outputs, other.outputs, strict=True):
            if there.setdefault(mine, its) != its or back.setdefault(its, mine) != mine:
                return offset
    return min(most, len(calls) - second)


def _outputs(calls: Sequence[Call], start: int, length: int) -> list[str]:
    return [name for call in calls[start : start + length] for name in call.outputs]


def _inputs(calls: Sequence[Call], start: int, length: int) -> tuple[str, ...]:
    inner = set(_outputs(calls, start, length))
    return tuple(
        dict.fromkeys(name for call in calls[start : start + length] for name in call.inputs if name not in inner)
    )


def _used_outside(calls: Sequence[Call], starts: Sequence[int], length: int, kept: Sequence[str]) -> set[str]:
    """What is made in a run and read outside of it."""
    run_of = {number: start for start in starts for number in range(start, start + length)}
    made_in = {name: run_of[number] for number in run_of for name in calls[number].outputs}

    def read() -> Iterator[str]:
        yield from kept
        for number, call in enumerate(calls):
            yield from (name for name in call.inputs if made_in.get(name) != run_of.get(number))

    return {name for name in read() if name in made_in}
