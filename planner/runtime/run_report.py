"""The report of a run: after each step, and at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from planner.artifacts.on_gpus import OnGpus
from planner.errors import DifferenceError
from planner.records import AnyFloat, AnySignedFloat, Positive, Share
from planner.runtime.judge.compare import FarTensor, StepComparison, TensorComparison, difference, worst_tensor
from planner.runtime.judge.door import DoorVerdict
from planner.runtime.measure.fetch_bytes import FetchBytes
from planner.runtime.measure.profile import Profile
from planner.runtime.values.state import Drawn
from planner.short_repr import ShortRepr


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of held-out data after a step."""

    step: Positive
    loss: AnySignedFloat | None
    """The mean over the batches."""
    accuracy: Share | None
    """The accuracy over all labels, if it was asked for."""
    batches: Positive


@dataclass(frozen=True, slots=True)
class StepReport:
    """The report after each step."""

    step: int
    """Counted from 1."""
    steps: int
    loss: float | None
    moved_bytes: int
    seconds: float
    """The time of the workers' iteration alone."""
    comparison: StepComparison | None
    """The comparison, with verification."""
    epoch: int | None = None
    """Counted from 1; None where the data are the same in every step."""
    epochs: int | None = None
    """The last step's epoch."""
    accuracy: float | None = None
    """The share of the step's labels that the model gets right, before its update; None where nobody asked."""
    evaluation: Evaluation | None = None
    """The result of held-out data, where it was due after this step."""
    learning_rate: float | None = None
    """The learning rate, where a schedule says it."""


@dataclass(frozen=True, repr=False)
class RunResult(ShortRepr):
    """The result of a run."""

    schema_version: ClassVar = 1
    told: ClassVar = (
        "steps losses fetches=#fetches predicted_bytes moved_bytes verified no_reference own_precision max_error "
        "max_error_limit comparisons model_file=door? first_step seconds peak_bytes arena_bytes staging_bytes threads "
        "on_gpus? nearly_same=nearly_same_on_gpus? checkpoint exported export drawn data_dir=data_folder "
        "is_interrupted accuracies? evaluations? profile?"
    )

    steps: int
    loss_name: str
    """The tensor that is called the loss; "" if no result is a floating-point scalar."""
    losses: tuple[AnySignedFloat, ...]
    """The loss of each step; () without a loss. The split run's."""
    predicted_bytes: int
    """Per step, over all workers."""
    moved_bytes: int
    """Per step, over all workers, as counted; the same in every step, or the run would have failed."""
    fetches: tuple[FetchBytes, ...]
    """The fetches of each worker, in program order."""
    seconds: tuple[float, ...]
    """The time of each step: the workers' iteration alone."""
    verified: bool | None
    """True if every output of every step is accepted, and something could be compared in each; None if nobody asked."""
    max_error: AnyFloat | None
    """The largest error of any output (see ``compare.py``); None without verification."""
    comparisons: tuple[StepComparison, ...]
    """The comparison of each step, with verification."""
    door: DoorVerdict | None
    """Whether the model is the file that was planned; None without verification."""
    no_reference: str
    """The reason why the split run was compared with the whole run and not with float64; "" if it was, or nobody asked.
    """
    own_precision: tuple[str, ...]
    """Operators that the float64 reference had in the model's own precision."""
    results: Mapping[str, np.ndarray]
    """The last step's outputs, whole: results and next states."""
    first_step: Positive
    """The number of the first step that was done; 1 unless the run was resumed."""
    arena_bytes: tuple[int, ...]
    """The bytes of each worker's arrays, as allocated."""
    workspace_bytes: tuple[int, ...]
    """The bytes of tensors inside of segments beside that, as planned."""
    staging_bytes: tuple[int, ...]
    """The bytes of each worker's copies of other GPUs' memory beside that, where its GPU cannot read it; else 0."""
    on_gpus: OnGpus | None
    """The facts of the sessions; None on CPUs."""
    nearly_same: int
    """On GPUs: places, over all steps, where workers that hold the same elements differed in the last bits."""
    profile: Profile | None
    """The profile, if it was asked for."""
    checkpoint: Path | None
    """The last checkpoint that was written."""
    exported: tuple[str, ...]
    """Names of the weights that were exported."""
    export: Path | None
    """The file that they were exported to; None: none was."""
    drawn: Drawn
    """The values that were made up."""
    data_folder: Path | None
    """The folder whose files were read for weights; None if none were."""
    accuracies: tuple[Share, ...] = ()
    """The accuracy of each step, where it was asked for."""
    evaluations: tuple[Evaluation, ...] = ()
    """The results of held-out data."""
    threads: int = 0
    """The threads of each worker, for one op; 0 on GPUs, and where no step was done."""
    is_interrupted: bool = False
    """Somebody asked the run to end before its last step."""

    @property
    def judged_tensors(self) -> int:
        """Outputs that were compared, over all steps."""
        return sum(len(comparison.tensors) for comparison in self.comparisons)

    @property
    def noise_tensors(self) -> int:
        """The number of tensors that were compared as noise only."""
        return sum(comparison.noise for comparison in self.comparisons)

    @property
    def strange_elements(self) -> int:
        """Elements, over all steps, that are not finite in the whole model."""
        return sum(comparison.strange_elements for comparison in self.comparisons)

    @property
    def untold_elements(self) -> int:
        """Elements, over all steps, of which the reference could not tell."""
        return sum(comparison.untold_elements for comparison in self.comparisons)

    @property
    def far(self) -> tuple[int, FarTensor] | None:
        """The number of steps in which the whole model was far from float64, and the farthest place; None if none."""
        steps = [comparison.far for comparison in self.comparisons if comparison.far]
        tensors = [tensor for far in steps for tensor in far]
        return (len(steps), max(tensors, key=lambda tensor: tensor.error)) if tensors else None

    @property
    def worst(self) -> tuple[int, TensorComparison] | None:
        """The tensor with the largest error, and its step; None without verification or if all is noise."""
        return worst_tensor(self.comparisons)

    @property
    def max_error_limit(self) -> AnyFloat | None:
        """The limit of the tensor whose error is ``max_error``."""
        worst_tensors = [comparison.worst for comparison in self.comparisons if comparison.worst is not None]
        return max(worst_tensors, key=lambda tensor: tensor.error).limit if worst_tensors else None

    @property
    def peak_bytes(self) -> tuple[int, ...]:
        """A worker's memory as the user counts it; the table tells copies between workers apart."""
        parts = zip(self.arena_bytes, self.workspace_bytes, self.staging_bytes, strict=True)
        return tuple(map(sum, parts))

    @property
    def nearly_same_on_gpus(self) -> int | None:
        """``nearly_same``; None on CPUs."""
        return None if self.on_gpus is None else self.nearly_same

    def difference(self) -> DifferenceError | None:
        """The error if the verification found a difference; None if it did not."""
        return difference(self.comparisons) or (None if self.door is None else self.door.error())
