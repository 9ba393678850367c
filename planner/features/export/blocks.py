"""Equal runs of calls become one function: the layers of a network, the time steps of a recurrence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from planner.graph.compare.repeats import most_saving, numbered

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


def folded(calls: Sequence[Call], results: Sequence[str]) -> tuple[list[Call], list[Block]]:
    """The calls with equal runs of them replaced by calls of blocks; a block may call others.

    Args:
        calls: in order.
        results: tensors that are needed at the end.
    """
    current, blocks = list(calls), list[Block]()
    while len(blocks) < _MOST_BLOCKS:
        # An expression's form may be that of a function: both say how many tensors they take and give.
        repeat = most_saving(
            numbered((call.form, len(call.inputs), len(call.outputs)) for call in current),
            [(*call.inputs, *call.outputs) for call in current],
            shortest=_SHORTEST,
        )
        if repeat is None:
            break
        starts, length = repeat.starts, repeat.length
        name = f"block_{len(blocks) + 1}"
        runs = [_outputs(current, start, length) for start in starts]
        used = _used_outside(current, starts, length, results)
        positions = [number for number in range(len(runs[0])) if any(outputs[number] in used for outputs in runs)]
        replaced: list[Call] = []
        at = 0
        for start, outputs in zip(starts, runs, strict=True):
            inputs = _inputs(current, start, length)
            chosen = tuple(outputs[number] for number in positions)
            if start == starts[0]:
                blocks.append(Block(name, tuple(current[start : start + length]), inputs, chosen, len(starts)))
            replaced += [*current[at:start], Call(name, True, inputs, chosen)]
            at = start + length
        current = replaced + current[at:]
    return current, blocks


def _outputs(calls: Sequence[Call], start: int, length: int) -> list[str]:
    return [name for call in calls[start : start + length] for name in call.outputs]


def _inputs(calls: Sequence[Call], start: int, length: int) -> tuple[str, ...]:
    inner = set(_outputs(calls, start, length))
    return tuple(
        dict.fromkeys(name for call in calls[start : start + length] for name in call.inputs if name not in inner)
    )


def _used_outside(calls: Sequence[Call], starts: Sequence[int], length: int, results: Sequence[str]) -> set[str]:
    """What is made in a run and read outside of it."""
    run_of = {number: start for start in starts for number in range(start, start + length)}
    made_in = {name: run_of[number] for number in run_of for name in calls[number].outputs}

    def read() -> Iterator[str]:
        yield from results
        for number, call in enumerate(calls):
            yield from (name for name in call.inputs if made_in.get(name) != run_of.get(number))

    return {name for name in read() if name in made_in}
