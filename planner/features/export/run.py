"""``tofu export``: a plan for other runtimes."""

from __future__ import annotations

import io

import numpy as np

from planner.api.arguments import takes
from planner.api.opened import opened
from planner.errors import ExportError, UsageError
from planner.features.export.file_text import JaxStep, UnwrittenError, jax_step
from planner.features.export.options import ExportOptions
from planner.features.export.placements import placements
from planner.features.export.result import ExportResult
from planner.features.export.source import Source
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
        opdefs: the file of descriptions that the plan was made with.
        progress: told what is being done.

    Raises:
        ExportError: parts of the plan cannot be expressed; then nothing is written.
        TofuError: there is no plan, or a file cannot be written.

    Example:
        ::

            planner.api.export("plan", jax="train_step.py")
    """
    jax, placed_in, progress = options.jax, options.placements, options.progress
    files = [file for file in (jax, placed_in) if file is not None]
    if not files:
        raise UsageError("export: what is to be written?", hint="write --jax FILE.py or --placements FILE.py")
    if len({file.resolve() for file in files}) < len(files):
        raise UsageError(f"--jax and --placements: both are {files[0]}")
    for file in files:
        if file.suffix != ".py":
            raise UsageError(f"{file}: what is written is Python", hint=f"call it {file.with_suffix('.py').name}")
        try_file(file)
    progress("reading the plan")
    plan = opened(options.directory, options.opdefs)
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
    )
