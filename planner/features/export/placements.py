"""A plan's tilings as placements of PyTorch's DTensor: Python, for ``distribute_tensor`` and ``parallelize_module``.

A mesh dim for each cut, a placement for each mesh dim: ``Shard(dim)``, ``Replicate()``, ``Partial()``. DTensor divides
along mesh dims in their order and in chunks of one size, the last ones shorter; tofu's cuts may nest otherwise, and
its parts differ by one at most. The first cannot be said, the second is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.algebra.tiling import Only, Partial, Reducer, Replicate, Shard, Tiling, cuts_along, pieces
from planner.features.export.names import safe_text
from planner.features.export.source import Source
from planner.graph.core.model import Shape

_REDUCE_OPS = {Reducer.SUM: "sum", Reducer.MAX: "max", Reducer.MIN: "min", Reducer.PROD: "product"}


@dataclass(frozen=True)
class Placements:
    """The file."""

    text: str
    tensors: int
    padded: tuple[str, ...]
    """Tensors that DTensor divides into other parts, since they are not of one length."""
    findings: tuple[str, ...]
    """What cannot be expressed; the file is not to be written then."""


def placements(source: Source) -> Placements:
    """A plan's tilings as DTensor placements."""
    plan, graph = source.plan, source.graph
    delivered = {delivery.name for delivery in plan.deliveries}
    tilings = {name: tiling for name, tiling in plan.tilings.items() if name not in delivered}
    findings = [f"tensor {safe_text(name)}: {why}" for name, tiling in tilings.items() for why in _obstacles(tiling)]
    uneven = tuple(name for name, tiling in tilings.items() if is_uneven(tiling, graph.tensors[name].shape))
    named: dict[str, tuple[Tiling, Shape, str]] = {}
    for name, parts in source.parts_of(list(tilings)).items():
        tiling, is_whole = tilings[parts[0]], parts == [name]
        shape = graph.tensors[name].shape if is_whole else source.boxes[parts[-1]][1].hi
        named[name] = tiling, shape, graph.roles[parts[0]].value
        along = {dim for part in parts if not is_whole for dim, at in enumerate(source.boxes[part][1].lo) if at}
        if along.intersection(tiling.dims) or any(tilings[part] != tiling for part in parts):
            findings.append(f"tensor {safe_text(name)}: workers have some of each of its parts, which is no box of it")
    if findings:
        return Placements("", len(named), uneven, tuple(findings))
    names = tuple(f"c{cut}" for cut in range(len(plan.cuts)))
    lines = [
        f'"""The placements that tofu planned for {safe_text(plan.model)} on {plan.workers} devices.',
        "",
        '    mesh = init_device_mesh("cuda", MESH_SHAPE, mesh_dim_names=MESH_NAMES)',
        "    weight = distribute_tensor(weight, mesh, PLACEMENTS[name])",
        "",
        "PLACEMENTS says how each tensor lies, NEEDED how each op reads its inputs, where that is another way.",
        *(["DTensor divides UNEVEN into other parts than tofu: all of one size but the last."] if uneven else []),
        '"""',
        "",
        "from torch.distributed.tensor import Partial, Replicate, Shard",
        "",
        f"MESH_SHAPE = {plan.cuts}",
        f"MESH_NAMES = {names}",
        "",
        "PLACEMENTS = {",
        *(f"    {name!a}: {placed(tiling)},  # {list(shape)}, {role}" for name, (tiling, shape, role) in named.items()),
        "}",
        "",
        "NEEDED = {",
        *_needed(source, tilings),
        "}",
        "",
        f"UNEVEN = {list(uneven)!a}",
    ]
    return Placements("\n".join(lines) + "\n", len(named), uneven, ())


def placed(tiling: Tiling) -> str:
    """A tuple of placements, as Python reads it."""
    texts = [_placement(placement) for placement in tiling.placements]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _placement(placement: object) -> str:
    if isinstance(placement, Shard):
        return f"Shard({placement.dim})"
    if isinstance(placement, Partial):
        return "Partial()" if placement.reducer is Reducer.SUM else f'Partial("{_REDUCE_OPS[placement.reducer]}")'
    assert isinstance(placement, Replicate), "others cannot be expressed"
    return "Replicate()"


def _obstacles(tiling: Tiling) -> Iterator[str]:
    if any(isinstance(placement, Only) for placement in tiling.placements):
        yield f"{tiling}: DTensor has no placement on one group of devices alone"
    if any(isinstance(placement, Shard) and placement.shares for placement in tiling.placements):
        yield f"{tiling}: DTensor divides a dim in equal parts only"
    if tiling.is_nested:
        yield f"{tiling}: DTensor divides a dim in the order of the mesh's dims only"


def is_uneven(tiling: Tiling, shape: Shape) -> bool:
    """Whether parts of a dim are not of one length."""
    for dim, _, how in cuts_along(tiling):
        starts, ends = pieces((shape or (1,))[dim], how)
        if len(set((ends - starts).tolist())) > 1:
            return True
    return False


def _needed(source: Source, tilings: dict[str, Tiling]) -> Iterator[str]:
    """The inputs that each op reads in a tiling other than their own, where a tiling can express it."""
    for described in source.ops:
        strategy, texts = source.plan.strategies[described.op.name].tiling, {}
        for slot in described.read_slots:
            name, dims = described.op.inputs[slot], described.plain_read(slot)
            if name not in tilings or dims is None:
                continue
            along = {variable: dim for dim, variable in enumerate(dims) if variable >= 0}
            wanted = tuple(
                Shard(along[placement.dim]) if isinstance(placement, Shard) and placement.dim in along
                else placement if isinstance(placement, Partial) else Replicate()
                for placement in strategy.placements
            )  # fmt: skip
            if wanted != tilings[name].plain.placements and not strategy.is_nested:
                texts[name] = placed(Tiling(wanted, strategy.ways))
        if texts:
            yield f"    {described.op.name!a}: {{{', '.join(f'{name!a}: {text}' for name, text in texts.items())}}},"
