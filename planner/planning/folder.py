"""What planning writes: a plan's folder, and the model with sharding annotations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto

from planner.artifacts.plan import Plan
from planner.artifacts.plan_folder import MODEL, PLAN, try_place, write_folder
from planner.graph.data_folder import note_data_folder
from planner.partition.build import plan_files
from planner.partition.segments import Partitioned
from planner.partition.sharding import with_annotations
from planner.planning.session import Session
from planner.progress import Progress
from planner.runtime.values.results import write_bytes
from planner.spent import part
from planner.whole import try_file


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a plan is written."""

    directory: Path
    """The plan's folder."""
    force: bool
    """A plan that is there is replaced."""
    annotated: Path | None
    """A file for the model with the tilings as ONNX sharding annotations; None: none is wanted."""

    def try_it(self) -> None:
        """Finds out, before the work is done, whether there can be written.

        Raises:
            TofuError: not so.
        """
        try_place(self.directory, force=self.force)
        if self.annotated is not None:
            try_file(self.annotated)

    @part("writing")
    def write(self, session: Session, plan: Plan, partitioned: Partitioned) -> None:
        """Writes a plan.

        Args:
            session: in which it was found.
            plan: that is complete.
            partitioned: its program.

        Raises:
            TofuError: it cannot be written.
        """
        files = plan_files(session.whole, session.content, plan, partitioned)
        write_folder(
            self.directory,
            _told(files, plan.workers, session.request.progress),
            partitioned.program,
            session.data_folder,
            session.source_file,
            force=self.force,
        )
        if self.annotated is not None:
            shapes = {name: tensor.shape for name, tensor in session.graph.tensors.items()}
            model, _ = with_annotations(ModelProto.FromString(session.content), plan, shapes)
            note_data_folder(model, session.data_folder, self.annotated.parent)
            write_bytes(self.annotated, model.SerializeToString(deterministic=True))


def _told(files: Iterable[tuple[str, bytes]], workers: int, progress: Progress) -> Iterator[tuple[str, bytes]]:
    """The files, each told of before it is made."""
    number = 0
    progress("writing the plan")
    for name, content in files:
        yield name, content
        if name not in (PLAN, MODEL):
            number += 1
        if number < workers:
            progress(f"writing worker {number + 1} of {workers}")
