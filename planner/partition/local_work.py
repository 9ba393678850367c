"""Local nodes of one op on a worker, on buffers: what a local rule says, with names put in."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from planner.algebra.region import Region
from planner.graph.core.model import Attribute, GraphAttribute, TensorAttribute
from planner.tdl.local import LocalNode, LocalOp


@dataclass(frozen=True, slots=True, eq=False)
class LocalWork:
    """One op's local nodes on one worker, on buffers and on values of its own; workers that do the same share it."""

    op: str
    nodes: tuple[LocalNode, ...]
    constants: Mapping[str, np.ndarray]
    """Small constants that the nodes read, by name."""
    large: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Constants that are too large to stand in the code, and that the local rule has made, by name."""
    reads: tuple[str, ...] = field(init=False)
    """What its nodes read, in order, each once."""
    makes: tuple[str, ...] = field(init=False)
    """What its nodes make, in order."""
    untold: tuple[str, ...] = field(init=False)
    """Of that, what ops of other domains, and control flow, make: of its shapes ONNX cannot tell."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "reads", tuple(dict.fromkeys(name for node in self.nodes for name in node.inputs if name))
        )
        untold = (node for node in self.nodes if node.domain or _has_graphs(node))
        object.__setattr__(self, "untold", tuple([name for node in untold for name in node.outputs if name]))
        object.__setattr__(self, "makes", tuple([name for node in self.nodes for name in node.outputs if name]))


def _has_graphs(node: LocalNode) -> bool:
    return any(isinstance(value, GraphAttribute) for value in node.attributes.values())


class Cut(NamedTuple):
    """The cutting of a part out of a buffer."""

    key: Hashable
    """Equal for equal work of one op."""
    work: LocalWork


def told_apart(attributes: Mapping[str, Attribute]) -> Hashable:
    """Equal for equal attributes: 1 and 1.0 are not, nor are 0.0 and -0.0."""
    return tuple(
        (name, value if isinstance(value, TensorAttribute | GraphAttribute) else repr(value))
        for name, value in sorted(attributes.items())
    )


def different(local_ops: Sequence[LocalOp]) -> tuple[list[int], tuple[LocalOp, ...]]:
    """The number of each local op among those that differ, and these."""
    numbers: dict[Hashable, int] = {}
    distinct: list[LocalOp] = []
    numbered = []
    for local in local_ops:
        key = (
            tuple(
                (node.op_type, node.inputs, node.outputs, told_apart(node.attributes), node.domain)
                for node in local.nodes
            ),
            tuple((name, str(array.dtype), array.shape, array.tobytes()) for name, array in local.constants.items()),
        )
        if key not in numbers:
            numbers[key] = len(distinct)
            distinct.append(local)
        numbered.append(numbers[key])
    return numbered, tuple(distinct)


def named(
    op: str,
    local: LocalOp,
    names: Mapping[str, str],
    small: Mapping[str, np.ndarray],
    derived: Callable[[str], str],
    most_bytes: int,
) -> LocalWork:
    """A local op on buffers.

    Args:
        op: the op's name.
        local: its local op.
        names: the buffers, or constants, that are its inputs and outputs.
        small: values of constants of the model that stand in the code, by name.
        derived: makes a name of our own.
        most_bytes: of a constant that stands in the code.
    """
    names = dict(names)
    constants = {name: small[name] for name in names.values() if name in small}
    large = {}
    for key, value in local.constants.items():
        names[key] = label = derived(f"{op}.{key}")
        if value.nbytes <= most_bytes:
            constants[label] = value
        else:
            large[label] = value
    # Tensors inside of the op get names of their own: equal ops share a local op, and may run in one segment.
    for node in local.nodes:
        for name in node.outputs:
            if name and name not in names:
                names[name] = derived(f"{op}.{name}")
    names[""] = ""
    nodes = tuple(
        [
            LocalNode(
                node.op_type,
                tuple([names[name] for name in node.inputs]),
                tuple([names[name] for name in node.outputs]),
                node.attributes,
                node.domain,
            )
            for node in local.nodes
        ]
    )
    return LocalWork(op, nodes, constants, large)


def cut_out(op: str, source: str, frame: Region, target: str, region: Region) -> Cut:
    """Takes a part of what a worker holds: cheaper inside a segment than as a fetch between two.

    Args:
        op: for which it is done.
        source: the buffer.
        frame: the region that it holds.
        target: the buffer for the part.
        region: of the part.
    """
    dims = [dim for dim in range(region.rank) if (region.lo[dim], region.hi[dim]) != (frame.lo[dim], frame.hi[dim])]
    starts = [region.lo[dim] - frame.lo[dim] for dim in dims]
    ends = [region.hi[dim] - frame.lo[dim] for dim in dims]
    labels = tuple(f"{target}.{part}" for part in ("starts", "ends", "axes"))
    values = (np.array(numbers, dtype=np.int64) for numbers in (starts, ends, dims))
    work = LocalWork(op, (LocalNode("Slice", (source, *labels), (target,)),), dict(zip(labels, values, strict=True)))
    return Cut((source, *starts, *ends, *dims), work)


def added(op: str, cuts: Sequence[LocalWork], contribution: LocalWork, total: tuple[str, str, str] | None) -> LocalWork:
    """One step of an op: what is cut out of what the worker holds, the op's part, and its addition to the sum.

    Args:
        op: the op's name.
        cuts: of the inputs.
        contribution: makes the part.
        total: the sum before, the part, and the sum after; None where the part is the sum.
    """
    nodes = [node for cut in cuts for node in cut.nodes] + list(contribution.nodes)
    if total is not None:
        before, part, after = total
        nodes.append(LocalNode("Add", (before, part), (after,)))
    constants = {name: value for work in (*cuts, contribution) for name, value in work.constants.items()}
    return LocalWork(op, tuple(nodes), constants, contribution.large)
