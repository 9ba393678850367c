"""``tofu export``: a plan for other runtimes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from onnx import ModelProto

from planner.api.arguments import takes
from planner.api.opened import Opened, opened
from planner.errors import ExportError, UsageError
from planner.features.export.file_text import JaxStep, UnwrittenError, jax_step
from planner.features.export.options import ExportOptions
from planner.features.export.placements import placements
from planner.features.export.result import ExportResult
from planner.features.export.source import Source
from planner.graph.files.data_folder import DataFolder, note_data_folder
from planner.partition.sharding import with_annotations
from planner.runtime.values.results import write_bytes
from planner.whole import try_file


@takes(ExportOptions)
def export(options: ExportOptions) -> ExportResult:  # noqa: D417 - those are the fields of the options
    """Writes a plan for other runtimes.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        jax: a file of Python to write: the step in JAX. Constants that are too large to stand in it go beside it, into
            a file of its name that ends in ``.npz``.
        placements: a file of Python to write: the tilings as placements of PyTorch's DTensor.
        sharding: an ONNX file to write: the planned model with the tilings as ONNX's sharding annotations.
        progress: told what is being done.

    Raises:
        ExportError: parts of the plan cannot be expressed; then nothing is written.
        TofuError: there is no plan, or a file cannot be written.

    Example:
        ::

            planner.api.export("plan", jax="train_step.py")
    """
    jax, placed_in, annotated = options.jax, options.placements, options.sharding
    progress = options.progress
    kinds = ((jax, ".py"), (placed_in, ".py"), (annotated, ".onnx"))
    files = [(file, suffix) for file, suffix in kinds if file is not None]
    if not files:
        raise UsageError("export: what is to be written?", hint="in Python, give jax=, placements= or sharding=")
    if len({file.resolve() for file, _ in files}) < len(files):
        raise UsageError(f"export: two results cannot both be {files[0][0]}", hint="name another file")
    for file, suffix in files:
        if file.suffix != suffix:
            raise UsageError(f"{file}: its name ends in {suffix}", hint=f"write -o {file.with_suffix(suffix)}")
        try_file(file)
    progress("reading the plan")
    plan = opened(options.directory, with_descriptions=jax is not None or placed_in is not None)
    source = Source(plan.folder.plan, plan.graph, plan.ops, plan.form.boxes(plan.model))
    findings: list[str] = []
    step: JaxStep | None = None
    if jax is not None:
        progress("writing the step in JAX")
        try:
            step = jax_step(source, ".npz")
        except UnwrittenError as error:
            findings += [f"in JAX: {finding}" for finding in error.findings]
    placed = None if placed_in is None else placements(source)
    if placed is not None:
        findings += [f"as placements: {finding}" for finding in placed.findings]
    if findings:
        raise ExportError(
            "the plan cannot be expressed, and nothing is written",
            facts=tuple(findings),
            hint="pin the tensors that are named to other tilings (tofu plan --pin), or run the plan with tofu run",
        )
    constants_file = None
    if jax is not None and step is not None:
        # Constants before the step that loads them: where the second write fails, no step without constants is left.
        if step.constants:
            constants_file = jax.with_suffix(".npz")
            stream = io.BytesIO()
            np.savez(stream, **step.constants)  # type: ignore[arg-type]  # its stub takes names for options
            write_bytes(constants_file, stream.getvalue())
        write_bytes(jax, step.text.encode())
    if placed_in is not None and placed is not None:
        write_bytes(placed_in, placed.text.encode())
    if annotated is not None:
        write_bytes(annotated, _annotated(plan, annotated.parent))
    return ExportResult(
        model=source.plan.model,
        workers=source.plan.workers,
        cuts=source.plan.cuts,
        predicted_bytes=source.plan.moved_bytes,
        jax=jax,
        constants=constants_file,
        moved_bytes=None if step is None else step.moved_bytes,
        ops=len(source.ops),
        functions=None if step is None else step.functions,
        blocks=None if step is None else step.blocks,
        padded=() if step is None else step.padded,
        padding_bytes=None if step is None else step.padding_bytes,
        notes=() if step is None else step.notes,
        placements=placed_in,
        tensors=None if placed is None else placed.tensors,
        uneven=() if placed is None else placed.padded,
        sharding=annotated,
    )


def _annotated(plan: Opened, base: Path) -> bytes:
    """The model of a plan with its tilings as ONNX's sharding annotations; ``base`` is the folder that gets it."""
    folder, tensors = plan.folder, plan.form.graph.tensors
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    model, _ = with_annotations(ModelProto.FromString(folder.model.read_bytes()), folder.plan, shapes)
    if folder.data_record:
        _, absolute, *named = folder.data_record
        note_data_folder(model, DataFolder(Path(absolute), *named), base)
    return bytes(model.SerializeToString(deterministic=True))
