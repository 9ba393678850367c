"""Change the number of samples of a forward model, soundly or not at all.

Sound means: cut the new batch into chunks of the old size, and the new model gives for each chunk what the old one
gave. So it is followed op by op where the samples lie in each tensor; an op that mixes samples, or through which they
cannot be followed, is refused by name. ``batch_rules`` has the rules.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.errors import UnsupportedError, UsageError
from planner.graph.core.attributes import axis_of, integers, label
from planner.graph.core.check import check_graph
from planner.graph.core.dependence import live_ops
from planner.graph.core.model import Graph, Op, Tensor, dtype_of_array
from planner.graph.core.traits import RECURRENT
from planner.graph.core.wellformed import fresh_name
from planner.training.batch.rules import ELEMENTWISE, RULES, recurrent_slots
from planner.training.batch.tracks import Site, Track


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
    """By input that recurrent ops read, as it is or in another form of as many dims: the dim of its samples."""
    dim_by_input: dict[str, int] = {}
    for op in forward.ops:
        if op.domain or op.op_type not in RECURRENT:
            continue
        for position, dim in recurrent_slots(op).items():
            if op.has_input(position):
                name, dim = _source(forward, op.inputs[position], dim)
                if name in forward.inputs:
                    dim_by_input.setdefault(name, dim)
    return dim_by_input


def _source(forward: Graph, name: str, dim: int) -> tuple[str, int]:
    """Where a tensor's dim comes from through element-wise ops of one operand, Transposes and embeddings."""
    while (op := forward.producer.get(name)) is not None and not op.domain:
        if op.op_type == "Transpose":
            rank = len(forward.tensors[name].shape)
            dim = integers(op, "perm", tuple(reversed(range(rank))))[dim]
        elif op.op_type == "Gather" and axis_of(op, len(forward.tensors[op.inputs[0]].shape), 0) == 0:
            if dim >= len(forward.tensors[op.inputs[1]].shape):
                break
            name = op.inputs[1]
            continue
        elif op.op_type not in ELEMENTWISE or len(op.inputs) > 1:
            break
        name = op.inputs[0]
    return name, dim


class _Follower:
    def __init__(self, graph: Graph, batch: int, trained: frozenset[str]) -> None:
        self.graph = graph
        self.old, self.tracks = samples_of_inputs(graph)
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
        site = Site(
            op, self.graph.tensors, self.constants, self.tracks, self.trained, self.old, self.batch, self._constant,
            self._regrow,
        )  # fmt: skip
        rule = None if op.domain else RULES.get(op.op_type)
        try:
            if rule is None:
                raise site.refuse("samples cannot be followed through this operator")
            tracks = rule(site)
        except UnsupportedError as error:
            self.refusals.append(error.what)
            self.lost.update(name for name in op.outputs if name)
            return op
        for name, track in zip(op.outputs, tracks, strict=False):
            if name:
                size = self.graph.tensors[name].shape[track.dim]
                assert size == track.size(self.old), f"{label(op)}: {track} does not fit size {size} of {name}"
                self.tracks[name] = track
        return replace(op, inputs=tuple(site.inputs))

    def _regrow(self, name: str, track: Track, site: Site) -> str | None:
        """An op of constants that has one value for each sample, for other samples; None if it is not known how.

        A Gather by known indices (token types, positions) gets others, an Expand (a class token) another shape.
        """
        op = self.graph.producer.get(name)
        constant = self.constants.get(op.inputs[1]) if op is not None and op.op_type in ("Gather", "Expand") else None
        if op is None or constant is None:
            return None
        shape = self.graph.tensors[op.inputs[0]].shape
        if op.op_type == "Expand":
            dim = track.dim - len(self.graph.tensors[name].shape) + len(shape)
            # An operand that has a value for each sample already has none for further ones.
            if dim >= 0 and shape[dim] != 1:
                return None
            resized = track.resized(self.graph.tensors[name].shape, self.batch)
            fresh = self._constant(np.array(resized, np.int64), op.inputs[1])
        else:
            axis = axis_of(op, len(shape), 0)
            if not axis <= track.dim < axis + constant.ndim:
                return None
            fresh = self._constant(site.repeated(constant, op.inputs[1], track.at(track.dim - axis)), op.inputs[1])
        output = fresh_name(f"{name}.batch{self.batch}", self.graph.tensors.keys() | self.additions.keys())
        tensor = self.graph.tensors[name]
        self.additions[output] = Tensor(output, track.resized(tensor.shape, self.batch), tensor.dtype)
        op_names = {peer.name for peer in (*self.graph.ops, *self.regrown)}
        self.regrown.append(
            replace(
                op,
                name=fresh_name(f"{op.name}.batch{self.batch}", op_names),
                inputs=(op.inputs[0], fresh),
                outputs=(output,),
            )
        )
        return output

    def _constant(self, value: np.ndarray, original: str) -> str:
        """A new constant that stands for constant ``original`` at the new batch."""
        name = fresh_name(f"{original}.batch{self.batch}", self.graph.tensors.keys() | self.additions.keys())
        self.additions[name] = Tensor(name, value.shape, dtype_of_array(value))
        self.constants[name] = value
        return name
