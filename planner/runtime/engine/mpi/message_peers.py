"""Peers on other machines: a step of another worker is done, for this one, when what it sent has arrived.

``wait(other, count)`` returns when everything has passed that passes between the two up to that count: what the other
sends after at most so many of its steps is here, and what this worker sent for those steps has left. The second half is
for memory that is used again: a step that writes where another buffer lay waits for the steps on other workers that
read that buffer, and until they have it the send reads this worker's memory. A first try without it went wrong in
silence.

Arrived boxes lie in an inbox, each in a place of its own, from the beginning of an iteration to its end. A box is sent
straight from the arena where it is contiguous there; else it is packed into a place of its own first. What a GPU's
worker sends and receives lies in pinned memory (``cuda_messages.py``).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.artifacts.program import Fetch, Source, WorkerProgram
from planner.runtime.engine.core.backend import Backend
from planner.runtime.engine.core.peers import Peers
from planner.runtime.engine.core.transport import BoundFetch, Locate, Part, Transport, direct
from planner.runtime.engine.mpi.channel import Channel, Pending
from planner.runtime.engine.mpi.messages import Message, Post

FIRST_TAG: Final = 16
"""Of messages between workers; the tags below are the engine's own."""

Finish = Callable[[Pending, int], None]
"""Returns when a transfer is done; is told the worker on the other end."""


class Inbox:
    """Memory for the boxes that a worker receives in an iteration.

    Args:
        program: the worker's.
        post: its messages.
    """

    def __init__(self, program: WorkerProgram, post: Post) -> None:
        self.boxes: dict[tuple[int, int, int], np.ndarray] = {}
        """By step, piece and part, of the box's shape."""
        self.size_bytes = sum(message.size_bytes for message in post.received)
        for message in post.received:
            step = program.steps[message.before]
            assert isinstance(step, Fetch)
            dtype = program.buffers[step.target].dtype.array_dtype
            self.boxes[message.before, message.piece, message.part] = np.empty(message.region.shape, dtype)
        self.received = tuple(self.boxes.values())
        """In the order of the post."""


class InboxTransport(Transport):
    """Fetches that read what is another worker's from the inbox, and count what they read there."""

    def __init__(self, program: WorkerProgram, inbox: Inbox) -> None:
        self._number = {step.name: number for number, step in enumerate(program.steps) if isinstance(step, Fetch)}
        self._boxes = inbox.boxes

    def bind(self, fetch: Fetch, worker: int, locate: Locate) -> BoundFetch:
        """See ``Transport.bind``."""
        target = locate(Source(worker, fetch.target))
        pieces = []
        for number, piece in enumerate(fetch.pieces):
            parts = []
            for part, source in enumerate(piece.sources):
                if source.worker == worker:
                    tile = locate(source)
                    parts.append(Part(tile.array, piece.region.within(tile.region), is_remote=False))
                else:
                    box = self._boxes[self._number[fetch.name], number, part]
                    parts.append(Part(box, piece.region.within(piece.region), is_remote=True))
            pieces.append((target.array[piece.region.within(target.region)], tuple(parts)))
        return direct(pieces, fetch.reducer)


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The places of a post's boxes in this machine's memory, in the post's order."""

    sent: Sequence[np.ndarray]
    received: Sequence[np.ndarray]
    """Contiguous."""
    fill: Callable[[range], None] | None = None
    """Brings boxes that are to be sent, by their numbers, to their places, which nothing else writes; None: they lie in
    the worker's arena itself, and must have left before it is written again."""


class RankBackend(Backend):
    """The backend of a rank's worker, if boxes do not go by the host's own memory of its buffers."""

    places: Places


def sent_boxes(program: WorkerProgram, post: Post, arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """The boxes that a worker sends, where they lie in the memory of its buffers."""
    boxes = []
    for message in post.sent:
        region = program.buffers[message.buffer].region
        boxes.append(arrays[message.buffer].reshape(region.shape)[message.region.within(region)])
    return tuple(boxes)


class _Parcel:
    """A message that is sent in every iteration: where its bytes are."""

    def __init__(self, message: Message, box: np.ndarray) -> None:
        self.message = message
        self._box = box
        self._packed = None if box.flags.c_contiguous else np.empty(box.shape, box.dtype)

    @property
    def packed_bytes(self) -> int:
        return 0 if self._packed is None else self._packed.nbytes

    def content(self) -> np.ndarray:
        """The bytes to be sent, as they are now."""
        if self._packed is None:
            return _bytes_of(self._box)
        np.copyto(self._packed, self._box)
        return _bytes_of(self._packed)


class MessagePeers(Peers):
    """The other workers, each a rank of a channel.

    Args:
        post: the worker's messages.
        places: where their boxes lie.
        channel: to the others.
        ranks: the rank of each worker.
        finish: how a transfer is waited for.
    """

    def __init__(self, post: Post, places: Places, channel: Channel, ranks: Sequence[int], finish: Finish) -> None:
        self._channel, self._ranks, self._finish = channel, ranks, finish
        self._fill = places.fill
        self._tags = channel.highest_tag - FIRST_TAG + 1
        self._parcels: list[tuple[_Parcel, int]] = []
        self._places: list[tuple[Message, np.ndarray, int]] = []
        sent, received = dict.fromkeys(range(len(ranks)), 0), dict.fromkeys(range(len(ranks)), 0)
        for message, box in zip(post.sent, places.sent, strict=True):
            self._parcels.append((_Parcel(message, box), self._tag(sent[message.reader])))
            sent[message.reader] += 1
        for message, place in zip(post.received, places.received, strict=True):
            self._places.append((message, _bytes_of(place), self._tag(received[message.sender])))
            received[message.sender] += 1
        self.packed_bytes = sum(parcel.packed_bytes for parcel, _ in self._parcels)
        """What packed boxes take."""
        self._next = 0
        self._incoming: tuple[deque[tuple[int, Pending]], ...] = tuple(deque() for _ in ranks)
        """By sender: the sender's count after which each was sent, lowest first, and the transfer."""
        self._outgoing: tuple[list[tuple[int, int, Pending]], ...] = tuple([] for _ in ranks)
        """By reader, as a heap: the number of the reader's step that each is for, its own number, the transfer."""

    def begin(self) -> None:
        """See ``Peers.begin``: all that will come has a place, and what is there already is sent."""
        for message, place, tag in self._places:
            transfer = self._channel.receive(place, self._ranks[message.sender], tag)
            self._incoming[message.sender].append((message.after, transfer))
        self._next = 0
        self._send(0)

    def wait(self, peer: int, count: int) -> None:
        """See ``Peers.wait``, and the head of this file."""
        incoming = self._incoming[peer]
        while incoming and incoming[0][0] <= count:
            self._finish(incoming[0][1], peer)
            incoming.popleft()
        if self._fill is None:
            self._wait_for_sends(peer, count)

    def announce(self, count: int, *, is_awaited: bool) -> None:
        """See ``Peers.announce``: what is ready now is sent."""
        self._send(count)

    def end(self) -> None:
        """See ``Peers.end``: nothing is on its way any more, and the memory may be written."""
        for peer, outgoing in enumerate(self._outgoing):
            while outgoing:
                self._finish(outgoing[0][2], peer)
                heapq.heappop(outgoing)
            assert not self._incoming[peer], f"boxes of worker {peer} that no step has waited for"

    def _wait_for_sends(self, peer: int, count: int) -> None:
        outgoing = self._outgoing[peer]
        while outgoing and outgoing[0][0] < count:
            self._finish(outgoing[0][2], peer)
            heapq.heappop(outgoing)

    def _send(self, count: int) -> None:
        first = self._next
        while self._next < len(self._parcels) and self._parcels[self._next][0].message.after <= count:
            self._next += 1
        ready = range(first, self._next)
        if self._fill is not None and ready:
            self._fill(ready)
        for number in ready:
            parcel, tag = self._parcels[number]
            reader = parcel.message.reader
            transfer = self._channel.send(parcel.content(), self._ranks[reader], tag)
            heapq.heappush(self._outgoing[reader], (parcel.message.before, number, transfer))

    def _tag(self, number: int) -> int:
        """The tag of the nth message between two workers; both count alike, so that a tag may be used again."""
        return FIRST_TAG + number % self._tags


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
