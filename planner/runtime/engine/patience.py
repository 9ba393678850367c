"""Waiting for the workers, as long as something happens among them; and who waits for whom when nothing does."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from typing import IO, Final

from planner.artifacts.program import WorkerProgram
from planner.artifacts.waits import joined_waits
from planner.errors import WorkerError
from planner.runtime.engine.check import describe
from planner.runtime.engine.exchange import IDLE

PATIENCE_SECONDS: Final = 300.0
"""How long workers may take for a step, if nobody says otherwise."""
_MOST_READ_BYTES: Final = 1 << 20


class StallError(Exception):
    """Nothing has happened for as long as one was ready to wait."""


class PatientLines:
    """The lines of a pipe.

    Args:
        pipe: unbuffered, to be read by nobody else.
        patience_seconds: how long to wait while nothing happens.
    """

    def __init__(self, pipe: IO[bytes], patience_seconds: float) -> None:
        self._descriptor = pipe.fileno()
        self._patience_seconds = patience_seconds
        self._rest = b""

    def line(self, sign: Callable[[], object]) -> bytes:
        """The next line, with its end; what there is of one where the pipe ends.

        Args:
            sign: something is going on as long as this gives another value from time to time.

        Raises:
            StallError: it has given the same value for too long.
        """
        tick_seconds = min(1.0, self._patience_seconds / 10)
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        last, waited_seconds, then = sign(), 0.0, time.monotonic()
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            if poll.poll(1000 * tick_seconds):
                parts.append(os.read(self._descriptor, _MOST_READ_BYTES))
                if not parts[-1]:
                    break
            seen, now = sign(), time.monotonic()
            # Time that passed while this very process was stopped, or the machine asleep, is nobody's fault.
            waited_seconds = waited_seconds + min(now - then, 2 * tick_seconds) if seen == last else 0.0
            last, then = seen, now
            if waited_seconds >= self._patience_seconds:
                raise StallError
        line, end, self._rest = b"".join(parts).partition(b"\n")
        return line + end


def stall(
    programs: Sequence[WorkerProgram], whereabouts: Sequence[int], patience_seconds: float, *, is_stopped: bool
) -> WorkerError:
    """What to say of workers of whom none finishes a step.

    Args:
        programs: of all workers.
        whereabouts: the number of the step that each is in, or IDLE.
        patience_seconds: how long nothing has happened.
        is_stopped: the system has stopped their process.
    """
    waits = joined_waits(programs)
    done = [
        len(program.steps) if number == IDLE else number for program, number in zip(programs, whereabouts, strict=True)
    ]
    busy: dict[int, str] = {}
    facts = []
    for program, number in zip(programs, whereabouts, strict=True):
        if not 0 <= number < len(program.steps):
            continue
        place = describe(program.steps[number])
        missing = [other for other, count in waits[program.worker][number].items() if done[other] < count]
        if missing:
            names = " and ".join(f"worker {other}" for other in missing)
            facts.append(f"worker {program.worker} waits for {names} in {place}")
        else:
            busy[program.worker] = place
            facts.append(f"worker {program.worker} is in {place}")
    time_said = f"for {patience_seconds:g} s"
    if is_stopped:
        what = f"the workers' process is stopped, and has done no step {time_said}"
    elif len(busy) == 1:
        ((worker, place),) = busy.items()
        what = f"worker {worker} does not end {place}: no worker has finished a step {time_said}"
    else:
        what = f"no worker has finished a step {time_said}"
    return WorkerError(what, facts=tuple(facts), hint="if steps may take that long, give more time: --patience SECONDS")
