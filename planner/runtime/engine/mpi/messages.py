"""Messages of workers that share no memory: from the programs alone, and so the same on every machine.

A fetch reads boxes of other workers' buffers. Each such box is one message: it is sent when the step that writes the
buffer is done, and is there before the fetch runs. Two fetches that read one box get it twice, as the plan predicts and
as workers that share memory copy it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.algebra.region import Region
from planner.artifacts.program import Fetch, WorkerProgram
from planner.artifacts.waits import Waits, writers


@dataclass(frozen=True, slots=True)
class Message:
    """A box of a buffer, on its way from one worker to another."""

    sender: int
    buffer: str
    """On the sender."""
    region: Region
    """The box, in the tensor's index space."""
    after: int
    """It may be sent when the sender has done so many of its steps."""
    reader: int
    before: int
    """The number of the reader's step that reads it, from 0."""
    piece: int
    """The number of the fetch's piece that it is for, from 0."""
    part: int
    """The number of the piece's source that it is, from 0."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Post:
    """All messages of one worker, each list in the order in which they are sent.

    Of two workers both have those that pass between them in the same order, so that the first that one sends is the
    first that the other awaits.
    """

    sent: tuple[Message, ...]
    received: tuple[Message, ...]


def messages(programs: Sequence[WorkerProgram]) -> tuple[Post, ...]:
    """The messages that each worker sends and receives in an iteration.

    Args:
        programs: of all workers, in order; ones that ``check_programs`` accepts.
    """
    ready = [writers(program) for program in programs]
    all_messages = [
        Message(
            sender=source.worker,
            buffer=source.buffer,
            region=piece.region,
            after=ready[source.worker][source.buffer],
            reader=program.worker,
            before=before,
            piece=number,
            part=part,
            size_bytes=piece.region.elements * program.buffers[step.target].dtype.item_bytes,
        )
        for program in programs
        for before, step in enumerate(program.steps)
        if isinstance(step, Fetch)
        for number, piece in enumerate(step.pieces)
        for part, source in enumerate(piece.sources)
        if source.worker != program.worker
    ]
    # Sender and reader number the messages between them in this order, which alone matches a send with its receive.
    all_messages.sort(key=lambda message: (message.after, message.before, message.reader, message.piece, message.part))
    sent: list[list[Message]] = [[] for _ in programs]
    received: list[list[Message]] = [[] for _ in programs]
    for message in all_messages:
        sent[message.sender].append(message)
        received[message.reader].append(message)
    return tuple(Post(tuple(outgoing), tuple(incoming)) for outgoing, incoming in zip(sent, received, strict=True))


def with_arrivals(waits: Waits, post: Post) -> Waits:
    """A worker's waits where nothing is shared: also for what lay ready on others before the iteration began.

    Args:
        waits: of the worker's steps (``joined_waits``).
        post: of the worker.
    """
    early = {(message.before, message.sender) for message in post.received if message.after == 0}
    seen: set[int] = set()
    by_step = []
    for number, wanted in enumerate(waits):
        arrivals = {sender: 0 for step, sender in sorted(early) if step == number and sender not in {*wanted, *seen}}
        by_step.append({**wanted, **arrivals})
        seen.update(wanted, arrivals)
    return tuple(by_step)
