"""``tofu zoo``: the papers' models, and those of today."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from planner.api.arguments import takes
from planner.features.zoo.models import FAMILIES, build, trained
from planner.features.zoo.options import ZooOptions
from planner.features.zoo.result import ZooModels, ZooResult, ZooRow
from planner.graph.core.model import Role
from planner.graph.files.to_onnx import write_model
from planner.whole import try_file


def zoo_models() -> ZooModels:
    """The models of the papers and of today, family by family.

    Example:
        ::

            for family in planner.zoo_models():
                print(family.form, family.about)
    """
    return ZooModels(tuple(ZooRow(family.form, family.about, family.members, family.optimizer) for family in FAMILIES))


@takes(ZooOptions)
def zoo(options: ZooOptions) -> ZooResult:  # noqa: D417 - those are the fields of the options
    """Writes a model of the zoo as an ONNX training graph without weights.

    Args:
        name: see ``planner.features.zoo.build``.
        batch: samples of an iteration; None: the paper's.
        optimizer: its name; None: the paper's.
        precision: what a network of today computes in; None: what it was trained in.
        seq: tokens of a sample, of a network of language; None: its own.
        layers: of a network of equal blocks; None: as many as published.
        output: where to write; NAME.onnx in the working directory if None.
        progress: told what is being done.

    Raises:
        TofuError: there is no such model or it has no such option, or the output cannot be written.

    Example:
        ::

            planner.zoo("gpt-2x1024", batch=16, output="train.onnx")
    """
    name, progress = options.name, options.progress
    output = options.output or Path(f"{name}.onnx")
    try_file(output)
    progress(f"building {name}")
    graph = build(
        name,
        batch=options.batch,
        optimizer=options.optimizer,
        precision=options.precision,
        seq=options.seq,
        layers=options.layers,
    )
    progress(f"writing {output}")
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
