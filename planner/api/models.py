"""``tofu zoo``: the papers' models."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from planner.graph.model import Role
from planner.graph.to_onnx import write_model
from planner.progress import Progress, silent
from planner.results import (
    ZooResult,
    ZooRow,
)
from planner.whole import try_file
from planner.zoo import FAMILIES, build, trained


def zoo_models() -> tuple[ZooRow, ...]:
    """The models of the papers, family by family."""
    return tuple(ZooRow(family.form, family.about, family.members, family.optimizer) for family in FAMILIES)


def zoo(
    name: str,
    *,
    batch: int | None = None,
    optimizer: str | None = None,
    output: Path,
    progress: Progress = silent,
) -> ZooResult:
    """Writes a model of the zoo as an ONNX training graph without weights.

    Args:
        name: see ``planner.zoo.build``.
        batch: samples of an iteration; None: the paper's.
        optimizer: its name; None: the paper's.
        output: where to write.
        progress: told what is being done.

    Raises:
        TofuError: there is no such model, or the output cannot be written.
    """
    try_file(output, makes_folders=True)
    progress(f"building {name}")
    graph = build(name, batch=batch, optimizer=optimizer)
    progress(f"writing {output}")
    output.parent.mkdir(parents=True, exist_ok=True)
    write_model(graph, output)
    weights = trained(graph)
    return ZooResult(
        name=name,
        output=output,
        inputs=tuple(tensor for tensor in graph.inputs if graph.roles[tensor] is Role.DATA),
        parameters=sum(graph.tensors[weight].elements for weight in weights),
        weight_bytes=sum(graph.tensors[weight].size_bytes for weight in weights),
        state_bytes=sum(graph.tensors[pair.current].size_bytes for pair in graph.state),
        ops_by_type=dict(sorted(Counter(op.op_type for op in graph.ops).items())),
    )
