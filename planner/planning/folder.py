"""Files that planning writes: a plan's folder, and the model with sharding annotations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from onnx import ModelProto

from planner.artifacts.plan import Plan, digest
from planner.artifacts.plan_folder import try_place, write_folder
from planner.artifacts.wholes import of_model
from planner.graph.data_folder import note_data_folder
from planner.partition.build import plan_files, worker_files
from planner.partition.sharding import with_annotations
from planner.planning.limit.trial import Trial
from planner.planning.session import Session
from planner.runtime.values.results import write_bytes
from planner.spent import part
from planner.whole import try_file


@dataclass(frozen=True, slots=True)
class Destination:
    """The folder that a plan is written to."""

    directory: Path
    """The plan's folder."""
    force: bool
    """A plan that is there is replaced."""
    annotated: Path | None
    """A file for the model with the tilings as ONNX sharding annotations; None: none is wanted."""
    has_models: bool = True
    """The workers' models are written, too."""

    def try_it(self) -> None:
        """Finds out, before the work is done, whether there can be written.

        Raises:
            TofuError: not so.
        """
        try_place(self.directory, force=self.force)
        if self.annotated is not None:
            try_file(self.annotated)

    @part("writing")
    def write(self, session: Session, plan: Plan, trial: Trial) -> None:
        """Writes a plan.

        Args:
            session: in which it was found.
            plan: that is complete.
            trial: the plan; its program is made if the models are wanted.

        Raises:
            TofuError: it cannot be written.
        """
        progress = session.request.progress
        progress("writing the plan")
        content = plan.to_json().encode()
        files: Iterable[tuple[str, bytes]] = plan_files(session.content, content)
        if self.has_models:
            model, partitioned = session.whole, trial.partitioned
            partitioned = replace(partitioned, program=of_model(partitioned.program, model, session.form.boxes(model)))
            files = chain(files, worker_files(model.opset, digest(content), partitioned, progress))
        write_folder(
            self.directory,
            files,
            session.whole,
            session.data_folder,
            session.source_file,
            making=trial.making,
            has_models=self.has_models,
            force=self.force,
        )
        if self.annotated is not None:
            shapes = {name: tensor.shape for name, tensor in session.graph.tensors.items()}
            annotated, _ = with_annotations(ModelProto.FromString(session.content), plan, shapes)
            note_data_folder(annotated, session.data_folder, self.annotated.parent)
            write_bytes(self.annotated, annotated.SerializeToString(deterministic=True))
