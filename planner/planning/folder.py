"""Files that planning writes: a plan's folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from planner.artifacts.plan import Plan, digest
from planner.artifacts.plan_folder import PROFILE, TOPOLOGY, try_place, write_folder
from planner.artifacts.wholes import of_model
from planner.counted import phase
from planner.machine.device_profile import DeviceProfile
from planner.machine.topology_file import topology_file
from planner.options import words_of
from planner.partition.build import plan_files, worker_files
from planner.planning.limit.trial import Trial
from planner.planning.session import Session
from planner.regular_file import read_regular
from planner.spent import part


def files_beside(topology: str | None, profile: DeviceProfile | None) -> dict[str, bytes]:
    """What a plan's folder keeps of the machine, so that no later command has to be told it; by name of the file.

    Args:
        topology: as the user names it; one that ships with tofu is known by its name.
        profile: what ops were measured to take, or None.
    """
    files = {}
    if topology is not None and (file := topology_file(topology)) is not None:
        files[TOPOLOGY] = read_regular(file)
    if profile is not None:
        files[PROFILE] = profile.to_text().encode()
    return files


_WHERE = ("out", "force", "models")
"""Options that say where a plan goes, and change nothing of it."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The folder that a plan is written to."""

    directory: Path
    """The plan's folder."""
    force: bool
    """A plan that is there is replaced."""
    has_models: bool = True
    """The workers' models are written, too."""
    beside: Mapping[str, bytes] = field(default_factory=dict)
    """What the plan is for, by name of the file in the folder: the user's topology, and the device profile."""

    def try_it(self) -> None:
        """Finds out, before the work is done, whether there can be written.

        Raises:
            TofuError: not so.
        """
        try_place(self.directory, force=self.force)

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
        progress = session.request.options.progress
        phase("writing")
        progress("writing the plan")
        content = plan.to_json().encode()
        files: Iterable[tuple[str, bytes]] = chain(plan_files(session.content, content), self.beside.items())
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
            reading=replace(session.request.source.reading, words=words_of(session.request.options, _WHERE)),
            making=trial.making,
            has_models=self.has_models,
            force=self.force,
        )
