"""An estimate laid out over time: which op computes, and which exchange goes on, from when to when.

The estimate adds things up one after the other (ICML'18, section 5.1, equation 1). So does this: an op begins when what
comes before it has ended on all workers, and the next thing begins when its slowest worker is done. What comes first is
told by the program: nothing stands before what it waits for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from planner.artifacts.program import Fetch, Program
from planner.cost.seconds.estimate import Timed
from planner.tdl.bind import BoundOp

Kind: TypeAlias = Literal["compute", "transfer", "synchronisation"]


@dataclass(frozen=True, slots=True)
class Span:
    """One op, or one exchange."""

    name: str
    """Of the op, or of the fetches that exchange."""
    kind: Kind
    """In which of the estimate's three sums it is."""
    start_seconds: float
    """From the beginning of the iteration."""
    seconds: float
    """Until the last worker is done."""
    worker_seconds: Mapping[int, float]
    """By worker that takes part, how long it is busy."""
    moved_bytes: int = 0
    """Over all workers."""


def laid_out(
    program: Program, ops: Sequence[BoundOp], parts: Timed, level: Sequence[Sequence[int]]
) -> tuple[Span, ...]:
    """What an estimate adds up, in an order in which it can happen.

    Args:
        program: of the plan.
        ops: of the graph, in its order.
        parts: that the estimate adds up.
        level: of every step of every worker (``planner.artifacts.waits.levels``).
    """
    op_level, exchange_level = _first_levels(program, level)
    made_at: dict[str, int] = {}
    spans: list[tuple[int, int, Span]] = []
    for number, bound in enumerate(ops):
        # An op that no segment has a part of (a delivery, a view that moves nothing) stands after what it reads.
        default = max((made_at.get(name, -1) for name in bound.op.inputs), default=-1)
        at = op_level.get(bound.op.name, default)
        made_at.update(dict.fromkeys(bound.op.outputs, at))
        seconds = {worker: float(one) for worker, one in enumerate(parts.op_seconds[bound.op.name]) if one > 0}
        if seconds:
            spans.append((at, number, Span(bound.op.name, "compute", 0.0, max(seconds.values()), seconds)))
    for number, (exchange, time) in enumerate(parts.exchanges):
        kind: Kind = "synchronisation" if exchange.tensor in parts.update else "transfer"
        busy = dict.fromkeys(exchange.receivers, time.seconds)
        moved = sum(exchange.moved.values())
        span = Span(exchange.name, kind, 0.0, time.seconds, busy, moved)
        spans.append((exchange_level[exchange.name, exchange.tensor], number, span))
    now, found = 0.0, []
    for _, _, span in sorted(spans, key=lambda one: one[:2]):
        found.append(Span(span.name, span.kind, now, span.seconds, span.worker_seconds, span.moved_bytes))
        now += span.seconds
    return tuple(found)


def _first_levels(
    program: Program, level: Sequence[Sequence[int]]
) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
    """The least level, over the workers, of each op and of each exchange: what waits for another has a higher one."""
    ops: dict[str, int] = {}
    exchanges: dict[tuple[str, str], int] = {}
    for worker in program.workers:
        for step, at in zip(worker.steps, level[worker.worker], strict=True):
            if isinstance(step, Fetch):
                key = (step.name, worker.buffers[step.target].tensor)
                exchanges[key] = min(at, exchanges.get(key, at))
            else:
                for name in step.ops:
                    ops[name] = min(at, ops.get(name, at))
    return ops, exchanges
