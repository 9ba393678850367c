"""A plan's tilings as ONNX sharding annotations (``ShardingSpecProto``, IR version 11).

Annotations say how the inputs and outputs of each node are laid out on devices: which dims are cut, in how many parts,
and which devices hold each part. They know no halos and no partial sums, and each tensor has one layout, so they are an
export for other tools: the plan is what ``plan.json`` says.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto, ShardingSpecProto

from planner.algebra.region import Region
from planner.algebra.tiling import Tiling
from planner.artifacts.plan import Plan
from planner.graph.core.model import Shape

_IR_VERSION = 11
"""The first that has the annotations."""


def with_annotations(model: ModelProto, plan: Plan, shapes: Mapping[str, Shape]) -> tuple[ModelProto, tuple[str, ...]]:
    """A copy of a model that says how the plan lays out its tensors.

    Args:
        model: that was planned.
        plan: its plan.
        shapes: of the model's tensors.

    Returns:
        The copy, and the tensors whose tiling annotations cannot express.
    """
    annotated = ModelProto()
    annotated.CopyFrom(model)
    annotated.ir_version = max(annotated.ir_version, _IR_VERSION)
    name = f"tofu-{plan.workers}"
    devices = annotated.configuration.add(name=name, num_devices=plan.workers)
    devices.device.extend(f"worker{worker}" for worker in range(plan.workers))
    specs = {
        tensor: sharding_of(tensor, tiling, shapes[tensor])
        for tensor, tiling in plan.tilings.items()
        if tensor in shapes
    }
    for node in annotated.graph.node:
        specs_or_none = [specs[tensor] for tensor in dict.fromkeys((*node.input, *node.output)) if tensor in specs]
        sharding_specs = [spec for spec in specs_or_none if spec is not None]
        if sharding_specs:
            node.device_configurations.add(configuration_id=name).sharding_spec.extend(sharding_specs)
    return annotated, tuple(tensor for tensor, spec in specs.items() if spec is None)


def sharding_of(tensor: str, tiling: Tiling, shape: Shape) -> ShardingSpecProto | None:
    """The annotation of one tensor; None if its tiles are no grid, or partial sums.

    Args:
        tensor: its name.
        tiling: of the tensor.
        shape: of the tensor.
    """
    if tiling.has_partial:
        return None
    workers = list(tiling.boxes(shape))
    parts = [sorted({(box.lo[dim], box.hi[dim]) for box in workers}) for dim in range(workers[0].rank)]
    cells: list[Region] = [Region((), ())]
    for bounds in parts:
        cells = [Region((*cell.lo, lo), (*cell.hi, hi)) for cell in cells for lo, hi in bounds]
    owners = [[worker for worker, box in enumerate(workers) if box == cell] for cell in cells]
    index_space = Region.whole(shape)
    if not all(owners) or sum(cell.elements for cell in cells) != index_space.elements:
        return None
    spec = ShardingSpecProto(tensor_name=tensor)
    for number, group in enumerate(owners):
        if len(group) == 1:
            spec.device.append(group[0])
        else:  # a negative number stands for a group of devices that hold the same
            key = -1 - number
            spec.device.append(key)
            entry = spec.index_to_device_group_map.add(key=key)
            entry.value.extend(group)
    for dim, bounds in enumerate(parts):
        if len(bounds) > 1:
            sharded = spec.sharded_dim.add(axis=dim)
            sharded.simple_sharding.add(dim_value=index_space.hi[dim], num_shards=len(bounds))
    return spec
