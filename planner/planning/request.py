"""The user's request, parsed and checked: a model, what to plan it for, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from planner.artifacts.asked import Asked, ByWorker
from planner.artifacts.making import Reading
from planner.artifacts.place import is_plan
from planner.artifacts.plan import DescriptionFile
from planner.artifacts.plan_folder import open_folder
from planner.descriptions import UnknownOps, in_force, of_plan
from planner.errors import UsageError, did_you_mean
from planner.feature import features
from planner.graph.core.model import Graph
from planner.graph.decompositions.randomness import lower_randomness
from planner.graph.files.to_onnx import write_model
from planner.graph.reading.named_file import names_file
from planner.machine.rates import Rates
from planner.machine.routes import whole_name
from planner.options import ReadOptions
from planner.options.planning import PlanOptions
from planner.planning.machines import Target, memory_of, target_of
from planner.planning.objective import Objective, can_be_timed, is_large, objective_of
from planner.planning.recomputing import Recompute
from planner.search.decide import STRATEGIES
from planner.search.effort import EffortName
from planner.search.user_rules.rules import Rules
from planner.stop import Stop
from planner.tdl.descriptions import Descriptions
from planner.training.doors.pairs import read_pairs
from planner.training.doors.read import read_step


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model's file, and how it is read."""

    model: Path
    """An ONNX file, or a folder of artifacts; with ``make`` a name."""
    options: ReadOptions
    """What is given beside the file."""
    descriptions: Descriptions
    """Of its operators."""
    described_by: DescriptionFile | None
    """The user's file of descriptions; None: the standard ones are enough."""
    make: Callable[[], Graph] | None = None
    """Makes the training graph where the file holds something else: a forward model, or it is a name of the zoo."""

    @property
    def reading(self) -> Reading:
        """What a plan's folder remembers of it."""
        return Reading(self.options.dim or {}, self.options.values or {}, self.options.state is not None)

    def as_its_file(self) -> ModelSource:
        """The graph that ``make`` gives as it is read once it is a file: reading makes constants of what is known."""
        make = self.make
        assert make is not None, "a file is read as it is"

        def read() -> Graph:
            with TemporaryDirectory() as folder:
                written = Path(folder) / "model.onnx"
                write_model(make(), written)
                return read_step(written, operators=self.descriptions)

        return replace(self, make=cache(read))  # a plan that is written reads it again

    def read(self) -> Graph:
        """The training graph; what it draws at random is made of ops that can be divided.

        Raises:
            TofuError: it cannot be read.
        """
        if self.make is not None:
            return lower_randomness(self.make())
        step = read_step(
            self.model,
            dims=self.options.dim,
            values=self.options.values,
            state_pairs=None if self.options.state is None else read_pairs(self.options.state),
            operators=self.descriptions,
        )
        return lower_randomness(step)


def source_of(
    model: Path, options: ReadOptions, *, opdefs: Path | None = None, unknown_ops: UnknownOps = "refuse"
) -> ModelSource:
    """A model, and how it is read; the user's descriptions are read here.

    Args:
        model: an ONNX file; the folder of a plan, whose model is read as it was planned; or a name of the zoo.
        options: what is given beside it.
        opdefs: a file of the user's own descriptions, which is executed, or None.
        unknown_ops: what becomes of operators without a description.

    Raises:
        TofuError: the descriptions cannot be used.
    """
    if is_plan(model):
        folder = open_folder(model, with_models=False)
        return ModelSource(folder.model, options, *of_plan(folder.plan.described_by, folder.path))
    source = ModelSource(model, options, *in_force(opdefs, unknown_ops))
    if names_file(model):
        return source
    # What is read of a file beside its name says nothing of a graph that is built.
    given = {"--dim": options.dim, "--value": options.value, "--state": options.state}
    if stray := next((name for name, value in given.items() if value), ""):
        raise UsageError(f"{stray}: {model} is a name of the zoo, and not a file", hint=f"write it: tofu zoo {model}")
    return replace(source, make=partial(_of_zoo, str(model))).as_its_file()


def target_for(model: Path, gpus: int | None, topology: str | None) -> Target:
    """What a model is planned for, as the user says, or else as the plan that stands for the model is.

    Args:
        model: see ``source_of``.
        gpus: how many workers, or None.
        topology: a topology file, the name of one that ships, or None.

    Raises:
        UsageError: see ``target_of``.
    """
    if topology is not None or not is_plan(model):
        return target_of(gpus, topology)
    folder = open_folder(model, with_models=False)
    estimate = folder.plan.estimate
    shipped = None if estimate is None else whole_name(estimate.topology)
    known = str(folder.topology) if folder.topology is not None else shipped
    return target_of(gpus or folder.plan.workers, known, folder.profile)


def _of_zoo(name: str) -> Graph:
    """The training graph of a name of the zoo.

    Raises:
        UsageError: there is none of this name.
    """
    zoo = next((feature for feature in features() if feature.models), None)
    if zoo is None:
        raise UsageError(f"{name}: no such file", hint="name an ONNX file")
    graph: Graph = zoo.at(zoo.models)(name)
    return graph


@dataclass(frozen=True)
class PlanRequest:
    """What the user asks for: the options, and what they say, parsed."""

    options: PlanOptions
    """As they were given."""
    source: ModelSource
    """The model."""
    target: Target
    """What it is planned for."""
    limits: tuple[int, ...] | None = None
    """The memory there is, one entry for each worker, in no order; None: enough."""
    rates: Rates | None = None
    """What repeated and uneven work is worth in moved bytes; None: as is usual (``planner.machine.rates``)."""

    def __post_init__(self) -> None:
        strategy = self.options.strategy
        if strategy not in STRATEGIES:
            raise UsageError(f"strategy {strategy!r} is not known", hint=did_you_mean(strategy, STRATEGIES))
        objective_of(self.options.objective, self.target.machine, self.target.profile, strategy)

    @cached_property
    def rules(self) -> Rules:
        """The rules of the user, which the plan must keep to."""
        options = self.options
        return Rules(options.pin or {}, tuple(options.forbid), options.replicate)

    @cached_property
    def recompute(self) -> Recompute:
        """The activations that are computed again for the backward pass."""
        texts = self.options.recompute
        return Recompute.parse((texts,) if isinstance(texts, str) else texts)

    @cached_property
    def stop(self) -> Stop:
        """The end of the search, as its owner says."""
        return Stop() if self.options.stop is None else self.options.stop

    @property
    def memory_bytes(self) -> int | None:
        """The memory for the tensors of a worker, as the user says; None where the user does not say it."""
        return memory_of(self.options.memory)

    @property
    def effort(self) -> EffortName:
        """The effort of a search (``planner.search.schedule``)."""
        return self.options.effort or ("normal" if self.options.time is None else "thorough")

    @property
    def goes_on(self) -> bool:
        """Whether a search with the default's effort comes first: with more time a plan may not become dearer."""
        return self.options.time is not None and self.options.effort is None and self.is_free

    @property
    def is_free(self) -> bool:
        """Whether the plan is the search's own; the literature's strategies are what they are."""
        return self.options.strategy == "tofu"

    @property
    def may_share(self) -> bool:
        """What several readers have brought to them may be brought once."""
        return self.options.share == "auto" and self.is_free

    @property
    def objective(self) -> Objective:
        """The objective of the plan."""
        return objective_of(self.options.objective, self.target.machine, self.target.profile, self.options.strategy)

    @property
    def asked(self) -> Asked:
        """The record of the request in a plan."""
        return Asked(
            limit_bytes=self.limits or (),
            limits_by_worker=isinstance(self.limits, ByWorker),
            pins=self.rules.pins,
            forbidden=self.rules.forbidden,
            replicate=self.rules.replicate,
            inputs="partitioned" if self.options.inputs == "partitioned" else None,
            objective="time" if self.objective == "time" else None,
        )

    @property
    def is_timed(self) -> bool:
        """Whether plans' times are estimated while planning: the objective is time, or it does not take long."""
        machine = self.target.machine
        if machine is None:
            return False
        return self.objective == "time" or (can_be_timed(machine, self.target.profile) and not is_large(machine))
