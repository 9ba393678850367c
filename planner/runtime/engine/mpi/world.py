"""All ranks of a run, as one of them meets them: small things that are said to all, waiting, and how all end.

Nothing here blocks inside of the library: every wait asks, sleeps a little longer each time, up to a millisecond, and
asks again. So a rank that waits costs no processor, hears of another's failure, and knows how long it has waited.

Of a failure, one message is told. A rank other than 0 sends what it has to say to rank 0, which prints it and ends all;
if that takes too long, since rank 0 is stopped or deep in a kernel, the rank does so itself.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Final, NoReturn

import numpy as np

from planner.errors import TofuError, WorkerError, out_of_memory
from planner.runtime.engine.mpi.channel import ANYBODY, Channel, Pending

_LENGTH, _TEXT, _REPORT = 0, 1, 2
"""Tags."""
TILES: Final = 3
"""The tag of tiles that go to rank 0 or come from it."""
_REPORT_BYTES: Final = 1 << 15
_EAGER: Final = 50
"""How often a transfer is asked for before the first sleep."""
_SHORTEST_SECONDS, _LONGEST_SECONDS = 2e-5, 1e-3
_GATHERING_SECONDS: Final = 0.7
"""How long rank 0 gathers who waits for whom, before it says so."""
_DEFERENCE_SECONDS: Final = 1.5
"""How long another rank leaves it to rank 0 to tell of a failure; each next one a little longer."""
_EACH_SECONDS: Final = 0.25
_MOST_TOLD: Final = 6000
"""Characters of a message that rank 0 prints for another rank."""
_EXIT_BUG, _EXIT_INTERRUPTED = 4, 130


@dataclass(frozen=True, slots=True)
class Wait:
    """The waiting rank and the one that it waits for, for messages."""

    worker: int
    place: str
    """Where, in words: "in" a step, or what it waits "for"."""
    peer: int
    """The worker that it waits for."""


class World:
    """The ranks of a run; a context that ends all of them when it is left by an exception.

    Args:
        channel: to the others.
        host: the name of this machine.
        patience_seconds: how long a worker may wait for another.
        say: prints a message, whatever stderr is by now.
        notice: tells what the user should know while waiting.
    """

    def __init__(
        self,
        channel: Channel,
        host: str,
        patience_seconds: float,
        say: Callable[[str], None],
        notice: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.channel, self.host = channel, host
        self.rank, self.size = channel.rank, channel.size
        self.hosts: tuple[str, ...] = (host,) * channel.size
        """By rank; known once ``meet`` has been called."""
        self.ranks: tuple[int, ...] = tuple(range(channel.size))
        """The rank of each worker; known once the plan is."""
        self.place: Callable[[], str] = lambda: ""
        """Where this rank's worker is: "in" a step, in words."""
        self._patience_seconds = patience_seconds
        self._say, self._notice = say, notice
        self._report = np.zeros(_REPORT_BYTES, np.uint8)
        self._reports: Pending | None = self._await_report()
        """On rank 0 the next failure of another; on others, rank 0's question for whom this rank waits."""
        self._answers: list[Pending] = []
        self._stalled: dict[int, Wait] = {}
        self._waiting: Wait | None = None
        """What this rank waits for now, if it has for some time."""

    @property
    def worker(self) -> int:
        """The worker of this rank."""
        return self.ranks.index(self.rank) if self.rank in self.ranks else self.rank

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.barrier("to end")
            self._take_leave()
        elif isinstance(error, TofuError):
            self.fail(error)
        elif isinstance(error, MemoryError):
            self.fail(out_of_memory(error))
        elif not isinstance(error, Exception):
            self.channel.abort(_EXIT_INTERRUPTED)
        else:
            lines = tuple(line for part in traceback.format_exception(error) for line in part.splitlines())
            bug = TofuError(f"a bug in tofu: {type(error).__name__}: {error}", facts=lines[-15:])
            self._tell(f"error: {self._placed(bug)}\n", _EXIT_BUG)

    def named(self, worker: int) -> str:
        """A worker with its rank and host, for messages."""
        rank = self.ranks[worker]
        return f"worker {worker} (rank {rank} on {self.hosts[rank]})"

    def _take_leave(self) -> None:
        """An empty report from rank 0 to all, itself included, so that nobody leaves a transfer unfinished."""
        reports, self._reports = self._reports, None
        if self.rank == 0:
            empty = np.zeros(_REPORT_BYTES, np.uint8)
            for transfer in [self.channel.send(empty, rank, _REPORT) for rank in range(self.size)]:
                self._wait(transfer, 0, "to end")
        if reports is not None:
            self._wait(reports, 0, "to end")

    # What all ranks do together, in the same order.

    def meet(self) -> None:
        """All ranks learn each other's hosts."""
        self.hosts = tuple(self.spread(self.gather(self.host, "to start"), "to start"))

    def gather(self, value: Any, purpose: str, *, is_patient: bool = False) -> list[Any] | None:
        """Rank 0 gets from every rank a value that JSON has; None elsewhere. Others do not wait.

        Args:
            value: of this rank.
            purpose: what for, in words, for those who wait.
            is_patient: rank 0 waits only as long as the patience says.
        """
        if self.rank:
            for transfer in self._send_value(value, 0):
                self._wait(transfer, 0, purpose)
            return None
        return [value, *(self._receive_value(rank, purpose, is_patient) for rank in range(1, self.size))]

    def spread(self, value: Any, purpose: str, *, is_patient: bool = False) -> Any:
        """Every rank gets the value of rank 0, however long that one works on it; or as long as the patience says."""
        if self.rank:
            return self._receive_value(0, purpose, is_patient)
        transfers = [(rank, transfer) for rank in range(1, self.size) for transfer in self._send_value(value, rank)]
        for rank, transfer in transfers:
            self._wait(transfer, rank, purpose)
        return value

    def barrier(self, purpose: str) -> None:
        """Nobody goes on before all are here."""
        self.gather(None, purpose)
        self.spread(None, purpose)

    def send(self, content: np.ndarray, to: int, purpose: str) -> None:
        """Sends an array; the other one receives it by ``receive``."""
        packed = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        self._wait(self.channel.send(packed, to, TILES), to, purpose)

    def receive(self, content: np.ndarray, source: int, purpose: str, *, is_patient: bool = False) -> None:
        """Fills a contiguous array with what another rank sends."""
        transfer = self.channel.receive(content.reshape(-1).view(np.uint8), source, TILES)
        self._wait(transfer, source, purpose, is_patient=is_patient)

    def _send_value(self, value: Any, to: int) -> tuple[Pending, Pending]:
        text = np.frombuffer(json.dumps(value).encode(), np.uint8)
        length = np.array([text.size], np.int64).view(np.uint8)
        return self.channel.send(length, to, _LENGTH), self.channel.send(text, to, _TEXT)

    def _receive_value(self, source: int, purpose: str, is_patient: bool = False) -> Any:
        length = np.zeros(1, np.int64)
        transfer = self.channel.receive(length.view(np.uint8), source, _LENGTH)
        self._wait(transfer, source, purpose, is_patient=is_patient)
        text = np.zeros(int(length[0]), np.uint8)
        self._wait(self.channel.receive(text, source, _TEXT), source, purpose, is_patient=is_patient)
        return json.loads(text.tobytes())

    # Waiting.

    def finish(self, transfer: Pending, peer: int) -> None:
        """Waits for a transfer from or to another worker in an iteration; after the patience, all ranks end."""
        if not transfer():
            wait = Wait(self.worker, self.place(), peer)
            self._poll(transfer, wait, lambda: self._stall(wait))

    def _wait(self, transfer: Pending, rank: int, purpose: str, *, is_patient: bool = False) -> None:
        """Waits for a transfer from or to a rank.

        Without patience it waits as long as it takes, since another rank may read, judge or write for hours; now and
        then it says for whom.
        """
        if transfer():
            return

        wait = Wait(self.worker, purpose, self.ranks.index(rank) if rank in self.ranks else rank)

        def impatient() -> None:
            if is_patient:
                self._stall(wait)
            self._notice(f"waiting for rank {rank} on {self.hosts[rank]} {purpose}")

        while not self._poll(transfer, wait, impatient):
            pass

    def _poll(self, transfer: Pending, wait: Wait, impatient: Callable[[], None]) -> bool:
        """Asks until a transfer is done; False, after ``impatient``, where it is not within the patience."""
        for _ in range(_EAGER):
            time.sleep(0)
            if transfer():
                return True
        self._waiting = wait
        pause, waited_seconds, then = _SHORTEST_SECONDS, 0.0, time.monotonic()
        while not transfer():
            if waited_seconds >= self._patience_seconds:
                impatient()
                return False
            self.attend()
            time.sleep(pause)
            pause, instant = min(2 * pause, _LONGEST_SECONDS), time.monotonic()
            # Time in which this very process was stopped, or the machine asleep, is nobody's fault.
            waited_seconds, then = waited_seconds + min(instant - then, 0.1), instant
        self._waiting = None
        return True

    # How all end.

    def attend(self) -> None:
        """Rank 0 looks whether another rank has failed; others, whether it asks them for whom they wait."""
        if self._reports is None or not self._reports():
            return
        if self.rank == 0:
            self._heard()
            self._conclude()
        elif self._report[0]:
            self._reports = self._await_report()
            if self._waiting is not None:
                self._answers.append(self.channel.send(_packed(asdict(self._waiting)), 0, _REPORT))
        else:
            self._reports = None  # all are about to leave

    def fail(self, error: TofuError) -> NoReturn:
        """Tells of an error of this rank, once, and ends all ranks with its exit code."""
        self._tell(f"error: {self._placed(error)}\n", error.exit_code)

    def _placed(self, error: TofuError) -> TofuError:
        """An error with the rank where it was raised; what rank 0 refuses, all refuse."""
        if self.rank == 0 and not isinstance(error, WorkerError):
            return error
        return TofuError(
            error.what, facts=(f"on rank {self.rank}, host {self.host}", *error.shown_facts), hint=error.hint
        )

    def _tell(self, text: str, code: int) -> NoReturn:
        if self.rank:
            self._send_report({"text": text[:_MOST_TOLD], "code": code})
        self._say(text)
        self.channel.abort(code)

    def _send_report(self, report: dict[str, Any]) -> None:
        """Leaves a report to rank 0; returns only if that one does not end all."""
        transfer = self.channel.send(_packed(report), 0, _REPORT)
        deadline = time.monotonic() + _DEFERENCE_SECONDS + _EACH_SECONDS * self.rank
        while time.monotonic() < deadline:
            transfer()
            time.sleep(_LONGEST_SECONDS)

    def _stall(self, mine: Wait) -> NoReturn:
        self._stalled[self.worker] = mine
        if self.rank == 0:
            self._conclude()
        self._send_report(asdict(mine))
        self._conclude_alone()

    def _await_report(self) -> Pending:
        self._report[:] = 0
        return self.channel.receive(self._report, 0 if self.rank else ANYBODY, _REPORT)

    def _heard(self) -> None:
        """Rank 0 takes a report, and awaits the next."""
        report = json.loads(self._report.tobytes().rstrip(b"\0"))
        self._reports = self._await_report()
        if "text" in report:
            self._say(str(report["text"]))
            self.channel.abort(int(report["code"]))
        wait = Wait(int(report["worker"]), str(report["place"]), int(report["peer"]))
        self._stalled[wait.worker] = wait

    def _conclude(self) -> NoReturn:
        """Rank 0 knows of a wait without end: it asks all others for whom they wait, hears them, and ends all."""
        assert self._reports is not None
        for rank in range(1, self.size):
            self._answers.append(self.channel.send(_packed({}), rank, _REPORT))
        deadline = time.monotonic() + _GATHERING_SECONDS
        while time.monotonic() < deadline:
            if self._reports():
                self._heard()
            time.sleep(_LONGEST_SECONDS)
        self._conclude_alone()

    def _conclude_alone(self) -> NoReturn:
        if self._waiting is not None:
            self._stalled.setdefault(self.worker, self._waiting)
        waits = [self._stalled[worker] for worker in sorted(self._stalled)]
        self._say(f"error: {stalled(waits, self.named, self._patience_seconds)}\n")
        self.channel.abort(WorkerError.exit_code)


def _packed(report: dict[str, Any]) -> np.ndarray:
    """A report as the bytes that are sent."""
    content = np.zeros(_REPORT_BYTES, np.uint8)
    text = json.dumps(report, ensure_ascii=False).encode()
    content[: len(text)] = np.frombuffer(text, np.uint8)
    return content


def stalled(waits: Sequence[Wait], named: Callable[[int], str], patience_seconds: float) -> WorkerError:
    """The message about workers that have waited too long.

    Args:
        waits: of those that said so.
        named: a worker in words.
        patience_seconds: how long.
    """
    silent = sorted({wait.peer for wait in waits} - {wait.worker for wait in waits})
    time_said = f"for {patience_seconds:g} s"
    if len(silent) == 1:
        text = f"nothing has been heard of {named(silent[0])} {time_said}"
    else:
        text = f"workers have waited {time_said}"
    return WorkerError(
        text,
        facts=tuple(f"{named(wait.worker)} waits for worker {wait.peer} {wait.place}" for wait in waits),
        hint="if steps may take that long, give more time: --patience SECONDS",
    )
