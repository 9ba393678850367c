"""Results of the commands, as data; rendered by ``planner.printing``, and as JSON by ``planner.records``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from planner.artifacts.estimate import TimeEstimate
from planner.artifacts.plan import Plan, SteppedOp
from planner.cost.distance import Distance
from planner.graph.core.model import Role, Shape
from planner.reasons import Cause, Kept, Summary, Why
from planner.records import Positive, Several
from planner.search.effort import EffortName
from planner.search.user_rules.prices import ForbidPrice, PinPrice
from planner.short_repr import ShortRepr
from planner.spent import Part

if TYPE_CHECKING:
    from planner.cost.seconds.simulated import Differing, WorkerTimes
    from planner.partition.collectives import Collected
    from planner.partition.occupancy import Occupancy
    from planner.runtime.judge.door import DoorVerdict


@dataclass(frozen=True, slots=True)
class ParameterRow:
    """A constant of a forward model, and what training does to it."""

    told: ClassVar = "name shape verdict why evidence"

    name: str
    shape: Shape
    elements: int
    verdict: Literal["trained", "frozen", "statistic"]
    why: str
    """The reason in words; equal for constants that are alike."""
    evidence: tuple[str, ...]
    """``readers``, ``values``, ``name``, ``gradient`` where it was inferred; ``stated`` where the user says it."""


@dataclass(frozen=True, slots=True)
class InputRow:
    """A data input of a training graph, and what may be fed to it."""

    name: str
    dtype: str
    shape: Shape
    meaning: str
    """The meaning in words: ``classes 0 to 63, -100 is ignored``; "" where nothing tells."""


@dataclass(frozen=True, slots=True, repr=False)
class GradResult(ShortRepr):
    """A training graph that was built and written."""

    schema_version: ClassVar = 1
    told: ClassVar = (
        "output loss optimizer inputs data results states state_elements frozen parameters ops ops_by_type "
        "values=value_by_input? model_file=door? left_out=why_left_out? warnings"
    )

    output: Path
    loss: str
    optimizer: str
    inputs: tuple[str, ...]
    """Data inputs."""
    results: tuple[str, ...]
    """Outputs that are not next states."""
    states: int
    """Tensors of state: parameters, momentum, running statistics."""
    state_elements: int
    parameters: tuple[ParameterRow, ...]
    """The number of a forward model's parameters: the float constants of rank 1 or more that it states."""
    ops_by_type: Mapping[str, int]
    values: tuple[tuple[str, str], ...] = ()
    """Inputs that became constants, and of what value."""
    data: tuple[InputRow, ...] = ()
    """The data inputs, and what each means."""
    door: DoorVerdict | None = None
    """Whether the model as read is what its file says; None unless it was asked for."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Outputs of the model that the loss does not need, and what of them could not be taken."""
    warnings: tuple[str, ...] = ()
    """Warnings of changes by the model's exporter that make the training another one, with the remedy."""
    settings: tuple[tuple[str, str], ...] = ()
    """Optimizer, precision, micro-batches, clipping, dropout and weight decay, in words, by heading."""

    @property
    def frozen(self) -> tuple[str, ...]:
        """Names of the constants that stay as they are."""
        return tuple(row.name for row in self.parameters if row.verdict == "frozen")

    @property
    def ops(self) -> int:
        return sum(self.ops_by_type.values())

    @property
    def value_by_input(self) -> Mapping[str, str] | None:
        """Inputs that became constants, and of what value."""
        return dict(self.values) or None

    @property
    def why_left_out(self) -> Mapping[str, str] | None:
        """By output of the model that the loss does not need, what of it could not be taken."""
        return dict(self.left_out) or None


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """The movement in a step of several micro-batches."""

    count: Several
    moved_bytes: int
    """The bytes for all of them, forward and backward."""
    update_bytes: int
    """Once a step: gradients, as they are summed, and weights."""


@dataclass(frozen=True, slots=True, repr=False)
class PlanResult(ShortRepr):
    """A plan that was found and written."""

    schema_version: ClassVar = 2
    told: ClassVar = (
        "*plan -iteration_spaces -warnings steps=plan.stepped plan.slowest_share objective found_by simulated_seconds? "
        "*beside warnings left_out? another_effort directory has_models? search_seconds total_seconds part_seconds ops "
        "fetches segments functions arena_bytes workspace_bytes collectives values=value_by_input? prices? "
        "micro_batches? summary?"
    )

    plan: Plan
    directory: Path
    search_seconds: float
    """The time of all searches, bounds included."""
    total_seconds: float
    """The time from the file to the files."""
    ops: int
    state_bytes: int
    """The bytes of the whole state, once."""
    fetches: int | None = None
    """The number of fetches over all workers. This and the next five are of the plan's program; None where it was not
    made.
    """
    segments: int | None = None
    """Segments over all workers."""
    functions: int | None = None
    """Distinct bodies of segments."""
    arena_bytes: tuple[int, ...] | None = None
    """The bytes of each worker's arena: its arrays, in one block of memory."""
    workspace_bytes: tuple[int, ...] | None = None
    """The bytes of tensors inside of segments, by worker, beside the arena, at most."""
    collectives: Mapping[str, Collected] | None = None
    """The collectives that fetches form, by kind: ``count`` and ``moved_bytes``."""
    prices: tuple[PinPrice | ForbidPrice, ...] = ()
    """The price of every pin and prohibition."""
    values: tuple[tuple[str, str], ...] = ()
    """Inputs that became constants, and of what value."""
    micro_batches: MicroBatches | None = None
    """None of a step of one batch."""
    objective: Literal["bytes", "time"] = "bytes"
    """The objective of the plan: cost in bytes, or time."""
    found_by: str = "tofu"
    """The strategy whose plan was taken; another one than the plan's where that was the fastest known."""
    beside: Beside | None = None
    """Other estimates on the machine; None without one, or where it cannot be."""
    left_out: tuple[str, ...] = ()
    """The work that was left out since the graph is large or the search was stopped, in words."""
    another_effort: AnotherEffort | None = None
    """An effort that could still be tried; None where nothing depends on effort."""
    summary: Summary | None = None
    """The plan in brief; None only of results that no planning made."""
    has_models: bool = True
    """Whether the workers' models were written, too."""
    simulated_seconds: float | None = None
    """An iteration simulated step by step; None without an estimate, or where the graph is large."""
    part_seconds: Mapping[Part, float] = field(default_factory=dict)
    """The time of each part of the work (``planner.spent``); what is in none of them is the rest of the total."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What would be faster, or what looks like state and is none, and what to write instead."""
        return self.plan.warnings

    @property
    def value_by_input(self) -> Mapping[str, str] | None:
        """Inputs that became constants, and of what value."""
        return dict(self.values) or None


@dataclass(frozen=True, slots=True)
class AnotherEffort:
    """An effort that could still be tried for a plan."""

    effort: EffortName | None
    """The effort that tries it; None where no effort tries more, or finds anything better."""
    tries: str
    """The moves in words."""


@dataclass(frozen=True, slots=True)
class OtherCount:
    """The machine with another number of workers."""

    workers: Positive
    estimated_seconds: float
    """The estimated time of an iteration."""


@dataclass(frozen=True, slots=True)
class Beside:
    """The estimates beside a plan for a machine."""

    told: ClassVar = "data_parallel_seconds=data_seconds data_parallel_is_exact=is_exact other_workers=others"

    data_seconds: float | None
    """The estimated time of data parallelism on as many workers; None where it has no plan."""
    is_exact: bool
    """The estimate is of a program; else it is what the tables of the search add up, as making the program would take
    long."""
    others: tuple[OtherCount, ...]
    """Other numbers of workers that were tried, the smallest first."""


TensorKind: TypeAlias = Literal["data", "weights", "activations", "gradients", "state"]
"""``state``: optimizer state, and all that only updates it and the weights: gradients of weights among it."""


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor of a plan."""

    told: ClassVar = "name shape dtype role module kind tiling tile_shape moved_bytes made_by read_by delivers?"

    name: str
    shape: Shape
    dtype: str
    role: Role
    tiling: str
    tile_shape: Shape
    """The shape of the largest tile."""
    moved_bytes: int
    """The bytes that move because of it, per iteration, over all workers."""
    made_by: str
    """Name of the op; "" for an input."""
    read_by: tuple[str, ...]
    delivers: str = ""
    """The tensor that a shared delivery brings; "" for a tensor of the model."""
    module: str = ""
    """The module of the model, by the model's own names: ``encoder.layer.3``; "" for what is of the whole model."""
    kind: TensorKind = "activations"


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op of a plan."""

    name: str
    op_type: str
    strategy: str
    """Index variables that it is cut along."""
    variables: tuple[str, ...]
    """The index variables with their extents: ``b=8``."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateRow:
    """An input that comes back as an output, and how that is known."""

    told: ClassVar = "input=current output=following evidence why"

    current: str
    following: str
    evidence: tuple[str, ...]
    """``name``, ``shape``, ``dataflow``, ``position`` of an inferred pair; ``stated`` where the model or its user says
    it."""
    why: str
    """The same in words."""

    @property
    def is_inferred(self) -> bool:
        return self.evidence != ("stated",)


@dataclass(frozen=True, slots=True)
class InPlaceRow:
    """A tensor of the model that a plan has no more, since those that read it read another in its place."""

    name: str
    shape: Shape
    held_by: str
    """The tensor of the plan that holds its elements."""
    made_by: str
    """Name of the op of the model."""
    read_by: tuple[str, ...]
    """Names of the plan's ops that read or make the other tensor in its place."""


@dataclass(frozen=True, slots=True)
class OpMemory:
    """The memory of an op's tensors on the fullest worker, tiles of its inputs and of its result among them."""

    op: str
    at_once_bytes: int
    """The bytes if it runs at once."""
    in_steps_bytes: int | None
    """The bytes if it runs in steps: those of the plan, or those that take least; None if it cannot."""
    variable: str
    """The index variable that these steps are along; "" if there are none."""
    count: int
    """The number of steps; 0 if there are none."""
    is_stepped: bool
    """Whether the plan has the op in steps."""


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(ShortRepr):
    """A plan's tensors and ops, or those that were asked for."""

    schema_version: ClassVar = 1
    told: ClassVar = (
        "plan.model plan.workers plan.strategy plan.moved_bytes plan.excess_bytes plan.repeated_bytes "
        "plan.slowest_share plan.soybean_bytes plan.estimate.estimated_seconds plan.estimate plan.stopped_by? "
        "plan.described_by plan.undescribed tensors state ops in_place bounds=distances steps memory? causes? "
        "kept? apart? why?"
    )

    plan: Plan
    directory: Path
    tensors: tuple[TensorRow, ...]
    ops: tuple[OpRow, ...]
    subject: str | None
    state: tuple[StateRow, ...] = ()
    in_place: tuple[InPlaceRow, ...] = ()
    distances: tuple[Distance, ...] = ()
    """The distance from its bound of each product or convolution that was asked for."""
    is_of_bounds: bool = False
    """Whether these alone are to be shown."""
    is_brief: bool = False
    """Whether only the summary is asked for: then causes and what is kept whole are told."""
    causes: tuple[Cause, ...] = ()
    """The causes of the plan's cost, the dearest first; () as well where descriptions that the plan was made with are
    not given.
    """
    kept: tuple[Kept, ...] = ()
    """The tensors that several workers have, with the reasons."""
    apart: tuple[Cause, ...] = ()
    """Equal ops beside each other that workers do not have whole: the first op of each, what they cost with all that
    hangs together with them, and why they have no owners."""
    why: Why | None = None
    """The explanation of the one tensor or op that is asked for."""
    memory: tuple[OpMemory, ...] = ()
    """The memory at once and in steps of a product or convolution that was asked for."""

    @property
    def steps(self) -> tuple[SteppedOp, ...]:
        """Those of ``ops`` that run in steps."""
        stepped = {step.op: step for step in self.plan.stepped}
        return tuple(stepped[row.name] for row in self.ops if row.name in stepped)


@dataclass(frozen=True, slots=True, repr=False)
class MemoryResult(ShortRepr):
    """The memory of a plan's worker over the steps of its program."""

    schema_version: ClassVar = 1
    told: ClassVar = (
        "plan.model plan.workers occupancy.worker peak_bytes=occupancy.total_bytes "
        "peak_bytes_by_worker=peak_bytes limit_bytes steps=occupancy.steps fullest_step=occupancy.fullest running "
        "begins occupancy.held_bytes held_bytes_by_purpose=occupancy.by_purpose buffers=occupancy.at_fullest"
    )

    plan: Plan
    directory: Path
    occupancy: Occupancy
    """The occupancy of the worker that was asked for, or needs most."""
    peak_bytes: tuple[int, ...]
    """The bytes of each worker's tensors at most, as the plan states them."""
    limit_bytes: int | None
    """The memory that the worker has; None where the plan was made without a limit."""
    running: tuple[str, ...]
    """The ops of the step in which the most is held, or its fetch; () after all steps."""
    begins: Mapping[str, int]
    """The step in which each part of an iteration, ``backward`` and ``update``, begins; {} where there is none."""


@dataclass(frozen=True, slots=True, repr=False)
class SimulationResult(ShortRepr):
    """An iteration of a plan, simulated step by step, beside its estimate."""

    schema_version: ClassVar = 1
    told: ClassVar = (
        "plan.model plan.workers estimate.topology simulated_seconds estimate.estimated_seconds "
        "estimate.overlapped_seconds differs sums worker_times differing differing_count"
    )

    plan: Plan
    directory: Path
    estimate: TimeEstimate
    simulated_seconds: float
    """The time until the last worker has done its last step."""
    sums: tuple[Differing, ...]
    """Computing, transfers and synchronisation: as estimated, and on the longest path of the simulation."""
    worker_times: tuple[WorkerTimes, ...]
    """The times of each worker."""
    differing: tuple[Differing, ...]
    """Ops and exchanges in which the two differ by more than a tenth, the largest differences first; the first few."""
    differing_count: int
    """The number of all of these."""

    @property
    def differs(self) -> bool:
        """Whether all in all the two differ by more than a tenth of the estimate."""
        from planner.cost.seconds.simulated import differs  # a result alone need not load what it takes

        return differs(self.estimate.estimated_seconds, self.simulated_seconds)


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The models of a plan's workers, which were added to it."""

    schema_version: ClassVar = 1

    directory: Path
    model: str
    workers: Positive
    functions: int
    """Distinct bodies of segments."""
    model_bytes: int
    """The bytes of the workers' models on the disk."""
