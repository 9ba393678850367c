"""Tracks of the samples in a tensor, and the questions and changes that a rule of ``batch_rules`` may make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from planner.errors import UnsupportedError
from planner.graph.core.attributes import refuse
from planner.graph.core.model import Op, Shape, Tensor


@dataclass(frozen=True, slots=True)
class Track:
    """The samples' place in a tensor: index ``(i*batch + sample)*inner + j`` of one dim, i below outer, j below inner.

    A batch merged with what follows it, [batch*16, ...], has inner 16; merged with what precedes it, outer 16.
    """

    dim: int
    outer: int = 1
    inner: int = 1

    def size(self, batch: int) -> int:
        """Of the dim, with so many samples."""
        return self.outer * batch * self.inner

    def resized(self, shape: Shape, batch: int) -> Shape:
        """A shape with another number of samples."""
        return (*shape[: self.dim], self.size(batch), *shape[self.dim + 1 :])

    def at(self, dim: int) -> Track:
        """The same in another dim."""
        return Track(dim, self.outer, self.inner)


@dataclass(slots=True)
class Site:
    """One op, as a rule sees it."""

    op: Op
    tensors: Mapping[str, Tensor]
    """At the old batch."""
    constants: Mapping[str, np.ndarray | None]
    tracks: Mapping[str, Track]
    trained: frozenset[str]
    """Constants that are parameters, and may not be changed."""
    old: int
    batch: int
    """How many samples there are in place of ``old``."""
    make: Callable[[np.ndarray, str], str]
    """Makes a new constant in the place of another, and says its name."""
    regrow: Callable[[str, Track, Site], str | None]
    """Makes a tensor that depends on no sample, but has one value for each, anew; None if that is not known how."""
    inputs: list[str] = field(init=False)
    """The op's operands at the new batch; rules replace constants in it."""

    def __post_init__(self) -> None:
        self.inputs = list(self.op.inputs)

    def refuse(self, reason: str) -> UnsupportedError:
        """The error for this op."""
        return refuse(self.op, reason)

    def has(self, position: int) -> bool:
        """Whether an optional operand is there."""
        return self.op.has_input(position)

    def shape(self, position: int) -> Shape:
        """Of an operand, at the old batch."""
        return self.tensors[self.op.inputs[position]].shape

    def rank(self, position: int) -> int:
        """Of an operand."""
        return len(self.shape(position))

    @property
    def output_shape(self) -> Shape:
        """Of the first output, at the old batch."""
        return self.tensors[self.op.outputs[0]].shape

    def track(self, position: int) -> Track | None:
        """Where an operand has the samples; None if it has none."""
        return self.tracks.get(self.op.inputs[position]) if self.has(position) else None

    def only(self, *allowed: int) -> None:
        """Refuse samples in any operand but these."""
        for position, name in enumerate(self.op.inputs):
            if position not in allowed and name in self.tracks:
                raise self.refuse(f"its operand {name!r} depends on the samples")

    def lone_track(self) -> Track:
        """Where operand 0 has the samples; samples in any other are refused."""
        self.only(0)
        track = self.track(0)
        assert track is not None, "some operand has the samples"
        return track

    def integers(self, position: int, role: str) -> tuple[int, ...]:
        """The integers of a constant operand."""
        value = self.constants.get(self.op.inputs[position])
        if value is None:
            raise self.refuse(f"its {role} are not a known constant")
        return tuple(int(item) for item in value.reshape(-1))

    def replace(self, position: int, values: list[int]) -> None:
        """Put other integers in the place of a constant operand."""
        name = self.op.inputs[position]
        self.inputs[position] = self.make(np.array(values, np.int64), name)

    def repeat(self, position: int, track: Track) -> None:
        """Give a constant operand, which has a value for each sample at ``track``, as many as there are samples now.

        Raises:
            UnsupportedError: it is no constant with a known value, or differs between samples.
        """
        name = self.op.inputs[position]
        value = self.constants.get(name)
        if name in self.trained:
            raise self.refuse(f"its parameter {name!r} has a value for each sample")
        if value is not None:
            self.inputs[position] = self.make(self.repeated(value, name, track), name)
            return
        regrown = self.regrow(name, track, self)
        if regrown is None:
            raise self.refuse(f"its operand {name!r} has the size of the batch, but is no known constant")
        self.inputs[position] = regrown

    def repeated(self, value: np.ndarray, name: str, track: Track) -> np.ndarray:
        """A constant with as many samples as there are now.

        Raises:
            UnsupportedError: it differs between samples.
        """
        before, after = value.shape[: track.dim], value.shape[track.dim + 1 :]
        split = value.reshape(*before, track.outer, self.old, track.inner, *after)
        along = len(before) + 1
        sample = np.take(split, [0], axis=along)
        if not np.array_equal(np.broadcast_to(sample, split.shape), split, equal_nan=value.dtype.kind == "f"):
            raise self.refuse(f"its constant {name!r} differs between samples")
        return np.repeat(sample, self.batch, axis=along).reshape(*before, track.size(self.batch), *after)
