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
from planner.runtime.engine.core.check import describe
from planner.runtime.engine.core.exchange import IDLE

PATIENCE_SECONDS: Final = 300.0
"""How long workers may take for a step, if nobody says otherwise."""
_MOST_READ_BYTES: Final = 1 << 20


class StallError(Exception):
    """Nothing has happened for as long as one was ready to wait."""


class PatientLines:
    """The lines of pipes, as they come.

    Args:
        pipes: unbuffered, to be read by nobody else.
        patience_seconds: how long to wait while nothing happens.
    """

    def __init__(self, pipes: Sequence[IO[bytes]], patience_seconds: float) -> None:
        self._places = {pipe.fileno(): place for place, pipe in enumerate(pipes)}
        self._patience_seconds = patience_seconds
        self._parts: dict[int, list[bytes]] = {descriptor: [b""] for descriptor in self._places}
        self._poll = select.poll()
        for descriptor in self._places:
            self._poll.register(descriptor, select.POLLIN)

    def line(self, sign: Callable[[], object]) -> tuple[int, bytes]:
        """The next line of any of the pipes.

        Args:
            sign: something is going on as long as this gives another value from time to time.

        Returns:
            Which pipe, and the line with its end; or what there is of one where the pipe ends.

        Raises:
            StallError: it has given the same value for too long.
        """
        tick_seconds = min(1.0, self._patience_seconds / 10)
        last, waited_seconds, then = sign(), 0.0, time.monotonic()
        while True:
            for descriptor, place in self._places.items():
                if b"\n" in self._parts[descriptor][-1]:
                    line, end, tail = b"".join(self._parts[descriptor]).partition(b"\n")
                    self._parts[descriptor] = [tail]
                    return place, line + end
            for descriptor, _ in self._poll.poll(1000 * tick_seconds):
                read = os.read(descriptor, _MOST_READ_BYTES)
                if not read:
                    return self._places[descriptor], b"".join(self._parts[descriptor])
                self._parts[descriptor].append(read)
            seen, instant = sign(), time.monotonic()
            # Time that passed while this very process was stopped, or the machine asleep, is nobody's fault.
            waited_seconds = waited_seconds + min(instant - then, 2 * tick_seconds) if seen == last else 0.0
            last, then = seen, instant
            if waited_seconds >= self._patience_seconds:
                raise StallError


def stall(
    programs: Sequence[WorkerProgram], whereabouts: Sequence[int], patience_seconds: float, *, stopped: str
) -> WorkerError:
    """The message about workers of whom none finishes a step.

    Args:
        programs: of all workers.
        whereabouts: the number of the step that each is in, or IDLE.
        patience_seconds: how long nothing has happened.
        stopped: the process that the system has stopped, in words; "" if it has stopped none.
    """
    waits = joined_waits(programs)
    done = [
        len(program.steps) if number == IDLE else number for program, number in zip(programs, whereabouts, strict=True)
    ]
    busy: dict[int, str] = {}
    facts = []
    for program, number in zip(programs, whereabouts, strict=True):
        if not 0 <= number < len(program.steps):
            # A worker between iterations is not what the others hang on.
            continue
        place = describe(program.steps[number])
        missing = [peer for peer, count in waits[program.worker][number].items() if done[peer] < count]
        if missing:
            names = " and ".join(f"worker {peer}" for peer in missing)
            facts.append(f"worker {program.worker} waits for {names} in {place}")
        else:
            busy[program.worker] = place
            facts.append(f"worker {program.worker} is in {place}")
    time_said = f"for {patience_seconds:g} s"
    if stopped:
        text = f"{stopped} is stopped, and has done no step {time_said}"
    elif len(busy) == 1:
        ((worker, place),) = busy.items()
        text = f"worker {worker} does not end {place}: no worker has finished a step {time_said}"
    else:
        text = f"no worker has finished a step {time_said}"
    return WorkerError(text, facts=tuple(facts), hint="if steps may take that long, give more time: --patience SECONDS")
