"""Change the number of samples of a forward model, soundly or not at all.

Sound means: cut the new batch into chunks of the old size, and the new model gives for each chunk what the old one
gave. So it is followed op by op where the samples lie in each tensor (``planner.tdl.flow``); an op that mixes samples,
or through which they cannot be followed, is refused by name. ``rules`` has what constants say of samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from planner.errors import UnsupportedError, UsageError
from planner.graph.core.attributes import integer, refuse
from planner.graph.core.check import check_graph
from planner.graph.core.dependence import live_ops
from planner.graph.core.model import Graph, Op, Tensor, dtype_of_array
from planner.graph.core.traits import RECURRENT
from planner.graph.core.wellformed import fresh_name
from planner.tdl.flow import Passage, Track
from planner.training.batch.rules import SampleFlow, counting, restated


def with_batch(forward: Graph, batch: int, trained: frozenset[str] = frozenset()) -> Graph:
    """The same model for another number of samples.

    ``samples_of_inputs`` says where inputs have the samples. Constants that repeat one value for each sample are
    repeated more or less often, and constant targets of Reshape, Expand and Slice are rewritten; a constant that
    differs between samples is refused.

    Args:
        forward: a model without state.
        batch: the new number of samples, at least 1.
        trained: constants that may not be changed, for they are parameters.

    Returns:
        The model itself where it has this batch already.

    Raises:
        UsageError: ``batch`` is below 1.
        UnsupportedError: no input has dims; ops that stand in the way: all that can be found at once.
    """
    if batch < 1:
        raise UsageError(f"the batch is {batch}; it must be at least 1")
    old, _ = samples_of_inputs(forward)
    if not old:
        raise UnsupportedError("no input of the model has dims, so it has no batch")
    if old == batch:
        return forward
    return _Follower(forward, batch, trained).run()


def samples_of_inputs(forward: Graph) -> tuple[int, dict[str, Track]]:
    """The number of samples, and where the inputs that have them have them; 0 and none where no input has dims.

    They lie in dim 0, but for what recurrent ops have them in another dim of (a sequence before its samples). The first
    input that such an op reads, or else the first that has dims, says how many there are.
    """
    shapes = {name: forward.tensors[name].shape for name in forward.inputs if forward.tensors[name].shape}
    placed = _placed_by_recurrence(forward)
    deciding = next((name for name in shapes if name in placed), next(iter(shapes), None))
    if deciding is None:
        return 0, {}
    count = shapes[deciding][placed.get(deciding, 0)]
    tracks = {name: Track(placed.get(name, 0)) for name in shapes}
    return count, {name: track for name, track in tracks.items() if shapes[name][track.dim] == count}


def _placed_by_recurrence(forward: Graph) -> dict[str, int]:
    """By input that recurrent ops read, as it is or in another form: the dim of its samples."""
    recurrent = forward.ops_of(*RECURRENT)
    dim_by_input: dict[str, int] = {}
    for name in forward.inputs if recurrent else ():
        for dim, size in enumerate(forward.tensors[name].shape[:2]):
            tracks, _ = SampleFlow(forward, size).follow({name: Track(dim)})
            # X and first states have samples in dim 1, or all in dim 0; the lengths have no other dim.
            placed = [
                tracks.get(op.inputs[slot]) == Track(0 if slot == 4 or integer(op, "layout", 0) else 1)
                for op in recurrent
                for slot in (0, 4, 5, 6)
                if op.has_input(slot)
            ]
            if any(placed):
                dim_by_input.setdefault(name, dim)
    return dim_by_input


class _Follower:
    def __init__(self, graph: Graph, batch: int, trained: frozenset[str]) -> None:
        self.graph = graph
        self.old, self.tracks = samples_of_inputs(graph)
        self.flow = SampleFlow(graph, self.old)
        self.batch = batch
        self.trained = trained
        self.lost: set[str] = set()
        """Tensors made by ops that are refused, and what depends on them."""
        self.refusals: list[str] = []
        self.constants = dict(graph.constants)
        self.additions: dict[str, Tensor] = {}
        """New constants, and what is made from them."""
        self.regrown: list[Op] = []
        """Ops that make a tensor anew, to stand before the op that reads it."""
        self.regrown_names: dict[tuple[str, Track], str] = {}
        """The new tensor, by the old one and the samples' place in it."""

    def run(self) -> Graph:
        ops: list[Op] = []
        for op in self.graph.ops:
            followed = self._follow(op)
            ops += [*self.regrown, followed]
            self.regrown.clear()
        if self.refusals:
            raise UnsupportedError(
                f"the batch cannot be changed from {self.old} to {self.batch}",
                facts=tuple(self.refusals),
                hint="export the model with the batch that is wanted",
            )
        ops = list(live_ops(ops, self.graph.outputs))  # the original of what was made anew may be unread
        used = {name for op in ops for name in (*op.inputs, *op.outputs)} | set(self.graph.inputs)
        dropped = {name for name in (*self.graph.tensors, *self.constants) if name not in used}
        tensors = {
            name: self._resized(tensor)
            for name, tensor in {**self.graph.tensors, **self.additions}.items()
            if name not in dropped
        }
        constants = {name: value for name, value in self.constants.items() if name not in dropped}
        folded = (self.graph.folded | self.additions.keys()) & constants.keys()
        # A first value that has samples is of the old batch, and dropped.
        initial = {name: value for name, value in self.graph.initial.items() if name not in self.tracks}
        changed = replace(
            self.graph, tensors=tensors, ops=tuple(ops), constants=constants, folded=frozenset(folded), initial=initial
        )
        check_graph(changed)
        return changed

    def _resized(self, tensor: Tensor) -> Tensor:
        track = self.tracks.get(tensor.name)
        return tensor if track is None else replace(tensor, shape=track.resized(tensor.shape, self.batch))

    def _follow(self, op: Op) -> Op:
        """The op at the new batch; notes where its outputs have the samples."""
        if any(name in self.lost for name in op.inputs):
            self.lost.update(name for name in op.outputs if name)
            return op
        if not any(name in self.tracks for name in op.inputs):
            return op
        try:
            way = self.flow.through(op, self.tracks)
            inputs = self._operands(op, way, {})
        except UnsupportedError as error:
            self.refusals.append(error.what)
            self.lost.update(name for name in op.outputs if name)
            return op
        self.tracks.update(way.after(op))
        return replace(op, inputs=inputs)

    def _operands(self, op: Op, way: Passage, starts: Mapping[int, Track]) -> tuple[str, ...]:
        """The operands of an op at the new batch.

        Args:
            op: at the old one.
            way: the way of the samples through it.
            starts: further operands that have an element for each sample.
        """
        inputs = list(op.inputs)
        for slot, track in {**starts, **way.own}.items():
            inputs[slot] = self._repeat(op, slot, track, counts=way.digit is None)
        name, track = next(iter(way.after(op).items()))
        target = restated(self.graph, op, track, track.resized(self.graph.tensors[name].shape, self.batch))
        if target is not None:
            inputs[target[0]] = self._constant(target[1], op.inputs[target[0]])
        return tuple(inputs)

    def _repeat(self, op: Op, slot: int, track: Track, *, counts: bool) -> str:
        """An operand that has an element for each sample at ``track``, with as many as there are samples now.

        Args:
            op: that reads it.
            slot: its position.
            track: the samples' place in it.
            counts: True of index tuples that begin with the sample's number.

        Raises:
            UnsupportedError: it is a parameter, no constant with a known value, or differs between samples.
        """
        name = op.inputs[slot]
        if self.graph.tensors[name].shape[track.dim] != track.size(self.old):
            raise refuse(op, f"its operand {name!r} has another size than the batch")
        if name in self.trained:
            raise refuse(op, f"its parameter {name!r} has a value for each sample")
        value = self.constants.get(name)
        if value is None:
            regrown = self._regrow(name, track)
            if regrown is None:
                raise refuse(op, f"its operand {name!r} has the size of the batch, but is no known constant")
            return regrown
        if counts:
            changed = self._repeated(op, name, value[..., 1:], track)
            first = counting(changed.shape[:-1], track.dim)[..., None]
            return self._constant(np.concatenate([first, changed], axis=-1).astype(np.int64), name)
        return self._constant(self._repeated(op, name, value, track), name)

    def _repeated(self, op: Op, name: str, value: np.ndarray, track: Track) -> np.ndarray:
        """A constant with as many samples as there are now.

        Raises:
            UnsupportedError: it differs between samples.
        """
        before, after = value.shape[: track.dim], value.shape[track.dim + 1 :]
        split = value.reshape(*before, track.outer, self.old, track.inner, *after)
        along = len(before) + 1
        sample = np.take(split, [0], axis=along)
        if not np.array_equal(np.broadcast_to(sample, split.shape), split, equal_nan=value.dtype.kind == "f"):
            raise refuse(op, f"its constant {name!r} differs between samples")
        return np.repeat(sample, self.batch, axis=along).reshape(track.resized(value.shape, self.batch))

    def _regrow(self, name: str, track: Track) -> str | None:
        """A tensor of constants that has one value for each sample, for other samples; None if it is not known how.

        Of what a Gather looks up (token types, positions), the indices are repeated; an Expand (a class token) has
        another target.
        """
        if (name, track) in self.regrown_names:
            return self.regrown_names[name, track]
        op = self.graph.producer.get(name)
        inputs = None if op is None or len(op.outputs) > 1 else self._regrown_operands(op, name, track)
        if op is None or inputs is None:
            return None
        output = fresh_name(f"{name}.batch{self.batch}", self.graph.tensors.keys() | self.additions.keys())
        tensor = self.graph.tensors[name]
        self.regrown_names[name, track] = output
        self.additions[output] = Tensor(output, track.resized(tensor.shape, self.batch), tensor.dtype)
        op_names = {peer.name for peer in (*self.graph.ops, *self.regrown)}
        self.regrown.append(
            replace(
                op,
                name=fresh_name(f"{op.name}.batch{self.batch}", op_names),
                inputs=inputs,
                outputs=(output,),
            )
        )
        return output

    def _regrown_operands(self, op: Op, name: str, track: Track) -> tuple[str, ...] | None:
        if op.op_type == "Expand":
            dim = track.dim - len(self.graph.tensors[name].shape)
            shape = self.graph.tensors[op.inputs[0]].shape
            if -dim > len(shape) or shape[dim] == 1:
                return self._operands(op, Passage((track,), {}), {})  # which repeats nothing
        for slot, operand in enumerate(op.inputs):
            for dim, size in enumerate(self.graph.tensors[operand].shape if operand else ()):
                for start in dict.fromkeys((replace(track, dim=dim), Track(dim, 1, size // self.old))):
                    if size != start.size(self.old):
                        continue
                    try:
                        way = self.flow.through(op, {operand: start})
                    except UnsupportedError:
                        continue
                    if way.after(op)[name] == track:
                        return self._operands(op, way, {slot: start})
        return None

    def _constant(self, value: np.ndarray, original: str) -> str:
        """A new constant that stands for constant ``original`` at the new batch."""
        name = fresh_name(f"{original}.batch{self.batch}", self.graph.tensors.keys() | self.additions.keys())
        self.additions[name] = Tensor(name, value.shape, dtype_of_array(value))
        self.constants[name] = value
        return name
