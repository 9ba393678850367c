"""Rules by which the samples of a batch pass each operator: where its outputs have them, given where its operands do.

A rule refuses what mixes samples (a sum over them, a softmax along them) and what it cannot follow. It may rewrite
constant operands that state the batch's size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from planner.graph.core.attributes import axis_of, integer, integers, reduced_dims
from planner.graph.core.model import Op, Shape
from planner.graph.core.traits import CONVOLUTIONS, ELEMENT_WISE, RECURRENT, REDUCTIONS
from planner.training.batch.tracks import Site, Track

BatchRule: TypeAlias = Callable[[Site], Sequence[Track]]
"""From an op to the track of each of its outputs. Raises UnsupportedError."""

_INT64_MAX = 2**63 - 1


def _elementwise(site: Site) -> Sequence[Track]:
    """Operands are broadcast; all that have samples must have them at the same place of the output."""
    track = _broadcast_track(site, range(len(site.op.inputs)), site.output_shape)
    return [track] * len(site.op.outputs)


def _broadcast_track(site: Site, positions: Sequence[int], out: Shape) -> Track:
    tracks = {
        track.at(track.dim + len(out) - site.rank(position))
        for position in positions
        if (track := site.track(position)) is not None
    }
    if len(tracks) > 1:
        raise site.refuse("its operands have the samples at different places")
    (track,) = tracks
    if out[track.dim] != track.size(site.old):
        raise site.refuse("it repeats the single sample along the batch")
    for position in positions:
        if site.has(position) and site.track(position) is None:
            dim = track.dim - len(out) + site.rank(position)
            if dim >= 0 and site.shape(position)[dim] != 1:
                site.repeat(position, track.at(dim))
    return track


def _samples_first(site: Site) -> Sequence[Track]:
    """Convolutions, pooling and the like: what lies in dim 0 is treated one by one."""
    track = site.lone_track()
    if track.dim != 0:
        raise site.refuse(f"its operand has the samples in dim {track.dim}, not 0")
    return [track] * len(site.op.outputs)


def _batch_normalization(site: Site) -> Sequence[Track]:
    if integer(site.op, "training_mode", 0):
        raise site.refuse("it normalises over the samples (training_mode is 1)")
    return _samples_first(site)[:1]


def _matmul(site: Site) -> Sequence[Track]:
    a, b = site.track(0), site.track(1)
    rank_a, rank_b = site.rank(0), site.rank(1)
    if rank_a == 1 or rank_b == 1:
        site.only(0)
        if a is None or rank_a == 1 or a.dim == rank_a - 1 or rank_b != 1:
            raise site.refuse("it sums over the samples, or multiplies them by a vector")
        return [a]
    rank = max(rank_a, rank_b)
    if (a and a.dim == rank_a - 1) or (b and b.dim == rank_b - 2):
        raise site.refuse("it sums over the samples")
    placed = {track.at(track.dim + rank - dims) for track, dims in ((a, rank_a), (b, rank_b)) if track is not None}
    if len(placed) > 1:
        raise site.refuse("its operands have the samples at different places")
    (track,) = placed
    if track.dim < rank - 2:
        return [_broadcast_track(site, range(2), (*site.output_shape[:-2], 0, 0))]
    if a and b:
        raise site.refuse("it multiplies samples by samples")
    return [track]


def _gemm(site: Site) -> Sequence[Track]:
    site.only(0, 2)
    track = site.track(0)
    rows = 1 if integer(site.op, "transA", 0) else 0
    if track is None or track.dim != rows:
        raise site.refuse("it sums over the samples")
    result = track.at(0)
    if site.has(2):
        c_track = site.track(2)
        offset = 2 - site.rank(2)
        if c_track is not None and c_track.at(c_track.dim + offset) != result:
            raise site.refuse("its operands have the samples at different places")
        if c_track is None and offset == 0 and site.shape(2)[0] != 1:
            site.repeat(2, result)
    return [result]


def _along_axis(default: int) -> BatchRule:
    """Softmax and the like: every line along ``axis`` is treated by itself."""

    def rule(site: Site) -> Sequence[Track]:
        track = site.lone_track()
        if track.dim == axis_of(site.op, site.rank(0), default):
            raise site.refuse("it mixes samples along its axis")
        return [track] * len(site.op.outputs)

    return rule


def _layer_normalization(site: Site) -> Sequence[Track]:
    track = site.lone_track()
    if track.dim >= axis_of(site.op, site.rank(0), -1):
        raise site.refuse("it normalises over the samples")
    return [track] * len(site.op.outputs)


def _reduce(site: Site) -> Sequence[Track]:
    track, rank = site.lone_track(), site.rank(0)
    axes = reduced_dims(site.op, rank, lambda _: np.array(site.integers(1, "axes")))
    if site.op.op_type in ("ArgMax", "ArgMin"):
        axes = (axis_of(site.op, rank, 0),)
    assert axes is not None, "they are known"
    if track.dim in axes:
        raise site.refuse("it reduces over the samples")
    if integer(site.op, "keepdims", 1):
        return [track]
    return [track.at(track.dim - sum(axis < track.dim for axis in axes))]


def _reshape(site: Site) -> Sequence[Track]:
    track = _reshaped(site, site.output_shape)
    site.replace(1, list(track.resized(site.output_shape, site.batch)))
    return [track]


def _flatten(site: Site) -> Sequence[Track]:
    return [_reshaped(site, site.output_shape)]


def _reshaped(site: Site, target: Shape) -> Track:
    """The dim of the target in which the samples lie whole: their distance from one to the next stays what it was."""
    track = site.lone_track()
    distance = track.inner * math.prod(site.shape(0)[track.dim + 1 :])
    places: list[Track] = []
    for dim, size in enumerate(target):
        step = math.prod(target[dim + 1 :])
        inner = distance // step if step else 0
        if inner and distance % step == 0 and size % (site.old * inner) == 0:
            places.append(Track(dim, size // (site.old * inner), inner))
    if not places:
        raise site.refuse(f"it tears the batch apart: {list(site.shape(0))} to {list(target)}")
    # A batch of 1 fits in several places; where it is a dim of its own nothing needs to be merged.
    return min(places, key=lambda place: (place.outer * place.inner, place.dim))


def _transpose(site: Site) -> Sequence[Track]:
    track, rank = site.lone_track(), site.rank(0)
    perm = integers(site.op, "perm", tuple(reversed(range(rank))))
    return [track.at(perm.index(track.dim))]


def _squeeze(site: Site) -> Sequence[Track]:
    track, rank = site.lone_track(), site.rank(0)
    if site.has(1):
        axes = tuple(axis % rank for axis in site.integers(1, "axes"))
    else:
        axes = tuple(dim for dim, size in enumerate(site.shape(0)) if size == 1)
        if track.size(site.batch) == 1:
            raise site.refuse("it would drop a batch of 1: it states no axes")
    if track.dim in axes:
        raise site.refuse("it drops the batch of 1")
    return [track.at(track.dim - sum(axis < track.dim for axis in axes))]


def _unsqueeze(site: Site) -> Sequence[Track]:
    track = site.lone_track()
    rank = len(site.output_shape)
    added = {axis % rank for axis in site.integers(1, "axes")}
    input_dims = [dim for dim in range(rank) if dim not in added]
    return [track.at(input_dims[track.dim])]


def _concat(site: Site) -> Sequence[Track]:
    rank = len(site.output_shape)
    axis = axis_of(site.op, rank, 0)
    tracks = {track for position in range(len(site.op.inputs)) if (track := site.track(position)) is not None}
    if len(tracks) > 1:
        raise site.refuse("its operands have the samples at different places")
    (track,) = tracks
    if track.dim == axis:
        raise site.refuse("it puts other elements beside the samples, along the batch")
    for position in range(len(site.op.inputs)):
        if site.track(position) is None:
            site.repeat(position, track)
    return [track]


def _slice(site: Site) -> Sequence[Track]:
    track, rank = site.lone_track(), site.rank(0)
    starts, ends = site.integers(1, "starts"), list(site.integers(2, "ends"))
    axes = site.integers(3, "axes") if site.has(3) else tuple(range(len(starts)))
    steps = site.integers(4, "steps") if site.has(4) else (1,) * len(starts)
    for index, axis in enumerate(axes):
        if axis % rank != track.dim:
            continue
        size = site.shape(0)[track.dim]
        if (starts[index] not in (0, -size)) or steps[index] != 1 or ends[index] < size:
            raise site.refuse("it takes some of the samples")
        ends[index] = _INT64_MAX
        site.replace(2, ends)
    return [track]


def _expand(site: Site) -> Sequence[Track]:
    site.only(0)
    out = site.output_shape
    track = _broadcast_track(site, [0], out)
    site.replace(1, list(track.resized(out, site.batch)))
    return [track]


def _pad(site: Site) -> Sequence[Track]:
    track, rank = site.lone_track(), site.rank(0)
    pads = site.integers(1, "pads")
    axes = site.integers(3, "axes") if site.has(3) else tuple(range(rank))
    for index, axis in enumerate(axes):
        if axis % rank == track.dim and (pads[index] or pads[len(axes) + index]):
            raise site.refuse("it pads the batch")
    return [track]


def _gather(site: Site) -> Sequence[Track]:
    data, indices = site.track(0), site.track(1)
    axis = axis_of(site.op, site.rank(0), 0)
    if data is not None and indices is not None:
        raise site.refuse("its data and its indices have samples")
    if indices is not None:
        return [indices.at(axis + indices.dim)]
    assert data is not None
    if data.dim == axis:
        raise site.refuse("it picks among the samples")
    return [data if data.dim < axis else data.at(data.dim + site.rank(1) - 1)]


def _gather_elements(site: Site) -> Sequence[Track]:
    data, indices = site.track(0), site.track(1)
    if data is None or data.dim == axis_of(site.op, site.rank(0), 0):
        raise site.refuse("it picks among the samples, or from no samples")
    if indices is None:
        if site.shape(1)[data.dim] != site.shape(0)[data.dim]:
            raise site.refuse("it takes some of the samples")
        site.repeat(1, data)
    elif indices != data:
        raise site.refuse("its data and its indices have the samples at different places")
    return [data]


def _gather_nd(site: Site) -> Sequence[Track]:
    """Index tuples that pick each sample by its number, and the same elements of each: others for other samples."""
    site.only(0)
    track = site.track(0)
    indices = site.constants.get(site.op.inputs[1])
    if track is None or track != Track(0) or integer(site.op, "batch_dims", 0) or indices is None:
        raise site.refuse("its index tuples do not pick the samples by their number")
    numbers = indices[..., 0]
    sample_dims = [
        dim
        for dim, size in enumerate(numbers.shape)
        if size == site.old and np.array_equal(numbers, _counting(numbers.shape, dim))
    ]
    if len(sample_dims) != 1:
        raise site.refuse("its index tuples do not pick the samples by their number")
    (dim,) = sample_dims
    changed = site.repeated(indices[..., 1:], site.op.inputs[1], Track(dim))
    first = _counting(changed.shape[:-1], dim)[..., None]
    site.inputs[1] = site.make(np.concatenate([first, changed], axis=-1).astype(np.int64), site.op.inputs[1])
    return [Track(dim)]


def _counting(shape: Shape, dim: int) -> np.ndarray:
    """0, 1, 2 ... along a dim."""
    line = np.arange(shape[dim]).reshape([-1 if index == dim else 1 for index in range(len(shape))])
    return np.broadcast_to(line, shape)


def _on_matrices(site: Site) -> Sequence[Track]:
    """Trilu: every matrix of the last two dims is treated by itself."""
    track = site.lone_track()
    if track.dim >= site.rank(0) - 2:
        raise site.refuse("it treats samples by their index")
    return [track]


def _cum_sum(site: Site) -> Sequence[Track]:
    track, rank = site.lone_track(), site.rank(0)
    if site.integers(1, "axis")[0] % rank == track.dim:
        raise site.refuse("it sums over the samples")
    return [track]


def _recurrent(site: Site) -> Sequence[Track]:
    """LSTM, GRU, RNN: each line along the batch dim of X, of lengths and of first states is treated by itself."""
    slots = recurrent_slots(site.op)
    site.only(*slots)
    track = site.track(0)
    if track is None or track.dim != slots[0]:
        raise site.refuse(f"its operand has the samples in another dim than {slots[0]}, or none")
    for position, dim in slots.items():
        if not site.has(position):
            continue
        operand_track = site.track(position)
        if operand_track is None:
            site.repeat(position, track.at(dim))
        elif operand_track != track.at(dim):
            raise site.refuse("its operands have the samples at different places")
    is_batch_first = bool(integer(site.op, "layout", 0))
    return [track.at(0 if is_batch_first else 2), *[track.at(0 if is_batch_first else 1)] * 2]


def recurrent_slots(op: Op) -> Mapping[int, int]:
    """By operand of a recurrent op that has samples (X, lengths, first states), the dim that they lie in."""
    dim = 0 if integer(op, "layout", 0) else 1
    return {0: dim, 4: 0, 5: dim, **({6: dim} if op.op_type == "LSTM" else {})}


ELEMENTWISE: Final = ELEMENT_WISE | {"Bernoulli", "Dropout", "RandomNormalLike", "RandomUniformLike"}
"""Operators whose operands are broadcast to their output, element by element."""


def _max_pool(site: Site) -> Sequence[Track]:
    if len(site.op.outputs) > 1 and site.op.outputs[1]:
        raise site.refuse("its Indices count through all samples")
    return _samples_first(site)


RULES: Final[Mapping[str, BatchRule]] = MappingProxyType(
    {
        **dict.fromkeys(sorted(ELEMENTWISE), _elementwise),
        **dict.fromkeys(sorted(CONVOLUTIONS), _samples_first),
        **dict.fromkeys(
            ("AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool"), _samples_first
        ),
        **dict.fromkeys(("DepthToSpace", "LRN", "SpaceToDepth"), _samples_first),
        **dict.fromkeys(("GroupNormalization", "InstanceNormalization"), _samples_first),
        **dict.fromkeys(("ArgMax", "ArgMin", *sorted(REDUCTIONS)), _reduce),
        **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _along_axis(-1)),
        "Split": _along_axis(0),
        "LpNormalization": _along_axis(-1),
        "TopK": _along_axis(-1),
        "BatchNormalization": _batch_normalization,
        "Concat": _concat,
        **dict.fromkeys(RECURRENT, _recurrent),
        "CumSum": _cum_sum,
        "Expand": _expand,
        "Flatten": _flatten,
        "Gather": _gather,
        "GatherElements": _gather_elements,
        "GatherND": _gather_nd,
        "Gemm": _gemm,
        "LayerNormalization": _layer_normalization,
        "MatMul": _matmul,
        "MaxPool": _max_pool,
        "Pad": _pad,
        "Reshape": _reshape,
        "Slice": _slice,
        "Squeeze": _squeeze,
        "Transpose": _transpose,
        "Trilu": _on_matrices,
        "Unsqueeze": _unsqueeze,
    }
)
"""By operator of the default domain."""
