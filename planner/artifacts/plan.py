"""The plan: how every tensor and every op is divided. Data only; JSON in and out. As grammar::

    plan       ::= cuts tilings strategies deliveries tensor_bytes ...
    cuts       ::= ways*                                     outermost first; their product is the number of workers
    tilings    ::= (tensor tiling)*                          constants have none: every worker has what it needs
    strategies ::= (op strategy)*
    deliveries ::= (name tensor reader*)*                    tensors that several readers fetch once
    strategy   ::= (share/ways)* | R/1 | strategy in count steps along variable
    share      ::= variable | variable:block | variable@nest | R | O(group)

Tilings are ``planner.algebra.tiling``'s. The strategy and the description of an op say how it reads and makes its
tensors. A tensor moves from its maker to its owners (its tiling), and from there to each reader; ``tensor_bytes`` has
the sum for each tensor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from planner.algebra.tiling import Only, Shard, Tiling, ways_text
from planner.artifacts.asked import Asked
from planner.artifacts.estimate import TimeEstimate
from planner.artifacts.form import FORM_READERS, Form
from planner.errors import ModelError, UsageError
from planner.graph.step.deliveries import SharedDelivery
from planner.machine.rates import Rates
from planner.records import Kind, Positive, Readers, Several, Sha256, plain_record, reader
from planner.short_repr import ShortRepr
from planner.stop import StoppedBy
from planner.strict_json import JsonError, Value, parse_json

SCHEMA_VERSION = 2

GapOf: TypeAlias = Literal["bytes", "time"]


@dataclass(frozen=True, slots=True)
class Steps:
    """An op runs chunk by chunk of an index variable that it sums over, while the operands with that variable circulate
    (SPAA'21, section 2.2, "collective communication schedule").
    """

    variable: int
    """The number of the index variable."""
    count: Several
    """The number of chunks that each worker's part of it falls into; at least 2."""


@dataclass(frozen=True, slots=True)
class OpStrategy:
    """The division of one op."""

    told: ClassVar = "="

    tiling: Tiling
    """The tiling of the iteration space: a dim is the number of an index variable."""
    variables: tuple[str, ...]
    """Names of the index variables."""
    steps: Steps | None = None
    """None: it runs at once."""

    def __str__(self) -> str:
        parts = []
        for placement, ways in zip(self.tiling.placements, self.tiling.ways, strict=True):
            dim = getattr(placement, "dim", None)
            block = getattr(placement, "block", 1)
            nest = f"@{placement.nest}" if isinstance(placement, Shard) and placement.nest else ""
            name = str(placement) if dim is None else self.variables[dim] + (f":{block}" if block > 1 else "") + nest
            parts.append(f"{name}/{ways_text(placement, ways)}")
        text = " ".join(parts) or "R/1"
        if self.steps is None:
            return text
        return f"{text} in {self.steps.count} steps along {self.variables[self.steps.variable]}"

    @property
    def iteration_space(self) -> IterationSpace:
        """The same with the names of index variables apart."""
        steps = self.steps
        named = None if steps is None else NamedSteps(self.variables[steps.variable], steps.count)
        return IterationSpace(self.variables, self.tiling, named)


@dataclass(frozen=True, slots=True)
class NamedSteps:
    """Steps, as the plan's file says them."""

    variable: str
    """The index variable."""
    count: Several
    """The number of chunks."""


@dataclass(frozen=True, slots=True)
class SteppedOp:
    """An op that runs in steps."""

    op: str
    variable: str
    """The index variable that the steps are along."""
    count: Several
    """The number of them."""


@dataclass(frozen=True, slots=True)
class IterationSpace:
    """The division of an op, as the plan's file says it to be read again."""

    told: ClassVar = "variables tiling steps?"

    variables: tuple[str, ...]
    tiling: Tiling
    steps: NamedSteps | None = None


@dataclass(frozen=True, slots=True)
class DescriptionFile:
    """The user's file of descriptions that a plan was made with."""

    name: str
    """The name of the file, without its folder."""
    sha256: Sha256
    """The digest of its content."""


@dataclass(frozen=True, slots=True)
class UndescribedOp:
    """An op without a description, which every worker executes whole, and what that costs."""

    name: str
    op_type: str
    """The op type with its domain: ``my.domain.MyConv``."""
    moved_bytes: int
    """The bytes that move so that every worker has its inputs whole."""
    repeated_elements: int
    """Elements that it touches, times the workers that do so after the first one."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Partitioning(ShortRepr):
    """The division of every tensor and every op of a graph, and its cost."""

    cuts: tuple[Positive, ...]
    """Ways of each cut, outermost first; their product is the number of workers."""
    tilings: Mapping[str, Tiling]
    """The tiling of each tensor; constants have none."""
    strategies: Annotated[Mapping[str, OpStrategy], Kind(member="iteration_spaces")]
    """The strategy of each op."""
    tensor_bytes: Mapping[str, int]
    """The bytes that move because of each tensor: to where it is owned and from there to its consumers."""
    moved_bytes: int
    """The bytes that one iteration moves between workers."""
    computing_bytes: int
    """The time of one device for the whole step, in bytes of its link (``planner.cost.excess``)."""
    excess_bytes: int
    """The penalty of repeated and unevenly divided ops, in the same unit."""
    repeated_bytes: int
    """The part of that for duplicated work; the rest is for waiting."""
    strategy: str
    """The strategy that found it: ``tofu`` or a strategy of the literature."""
    unsplit: tuple[str, ...]
    """Ops that every worker executes whole at some cut because they could not be cut there."""
    decided_apart: int = 0
    """Tensors and ops that were not decided together with all others, since the graph is too entangled for that; 0
    where the plan is the best nevertheless."""
    rates: Rates
    """The rates by which computing is counted in bytes of a link."""
    deliveries: tuple[SharedDelivery, ...] = ()
    """The deliveries that several readers share; every other reader has its own. ``tilings`` and ``tensor_bytes`` have
    them by their names, as if they were tensors, and ``strategies`` as if they were ops.
    """

    @property
    def cost(self) -> int:
        """The quantity that the search minimizes: moved bytes and penalty."""
        return self.moved_bytes + self.excess_bytes

    @property
    def slowest_share(self) -> float:
        """The compute time of the step if every op waits for its slowest part, with an even share as 1."""
        return 1 + self.excess_bytes / self.computing_bytes if self.computing_bytes else 1.0

    @property
    def workers(self) -> Positive:
        """The number of workers."""
        return prod(self.cuts)


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(Form, Partitioning):
    """The decision for a model, with the facts that only its program tells: made once, whole."""

    schema_version: ClassVar = SCHEMA_VERSION
    told: ClassVar = (
        "model model_digest workers cuts strategy moved_bytes soybean_bytes has_program? peak_bytes "
        "estimated_seconds estimate certified_gap gap_of stopped_by? asked? warnings? decided_apart "
        "computing_bytes excess_bytes repeated_bytes rates unsplit described_by undescribed tilings strategies "
        "iteration_spaces tensor_bytes in_place? in_parts? kept=kept_beside? recomputed? owned? deliveries"
    )

    model: str
    """Name of the model."""
    certified_gap: float | None = None
    """The optimality gap: how far the cost is above the bound at most, as a share of it (0.01 = 1%), of the unit in
    ``gap_of``; None where no bound was computed.
    """
    gap_of: GapOf
    """The quantity that ``certified_gap`` is a share of: ``bytes``, moved bytes and penalty, or ``time``, as the
    search's tables add it up.
    """
    model_digest: Sha256
    """sha256 of the ingested model that was planned, as in the folder's model file."""
    soybean_bytes: int | None = None
    """``moved_bytes`` in SoyBean's convention (section 2.2): a transfer counts what a worker assembles, with what it
    has already, so that n parts count where n-1 of them move. None where no program was made."""
    peak_bytes: tuple[int, ...]
    """The bytes of each worker's arrays; where no program was made, its even share of what lies on all of them where
    that is most, so at least that.
    """
    has_program: bool = True
    """Whether its program was made; else it would have taken minutes, and the workers' models were not wanted."""
    table_seconds: Annotated[float | None, Kind(member="estimated_seconds")] = None
    """The time of an iteration as the tables of time add it up; said only where there is no ``estimate``."""
    described_by: DescriptionFile | None = None
    """The user's own descriptions; None where the standard ones were enough."""
    undescribed: tuple[UndescribedOp, ...] = ()
    """Ops that are executed whole because nothing describes them."""
    estimate: TimeEstimate | None = None
    """The estimated time of an iteration on the topology that the plan is for; None without one."""
    stopped_by: StoppedBy | None = None
    """The reason why the search ended before its work was done; None where nothing was left out."""
    asked: Asked = field(default_factory=Asked)
    """The request beside the model."""
    warnings: tuple[str, ...] = ()
    """Warnings of anything faster, or of inputs that look like state and are none, with the remedy."""

    @property
    def estimated_seconds(self) -> float | None:
        """The estimated time of an iteration: by the program, else as the tables of time add it up; None where that is
        not known.
        """
        return self.table_seconds if self.estimate is None else self.estimate.estimated_seconds

    @property
    def program_peak_bytes(self) -> tuple[int, ...]:
        """``peak_bytes`` of a program that was made; () where none was."""
        return self.peak_bytes if self.has_program else ()

    @property
    def iteration_spaces(self) -> Mapping[str, IterationSpace]:
        """The iteration space of each op; ``strategies`` are for people."""
        return {name: strategy.iteration_space for name, strategy in self.strategies.items()}

    @property
    def kept_beside(self) -> tuple[str, ...] | None:
        """``kept``; None where there is no ``in_place``."""
        return None if self.in_place is None else self.kept

    @property
    def stepped(self) -> tuple[SteppedOp, ...]:
        """Ops that run in steps."""
        spaces = ((name, op.iteration_space) for name, op in self.strategies.items() if op.steps is not None)
        return tuple(SteppedOp(name, space.steps.variable, space.steps.count) for name, space in spaces if space.steps)

    def to_json(self) -> str:
        """The plan as JSON, a tensor or an op to a line; equal plans give equal text."""
        members = (f" {_encoded(key)}: {_in_lines(value)}" for key, value in self.as_dict().items())
        return "{\n" + ",\n".join(members) + "\n}\n"

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain values; members that few plans need are left out of the others."""
        return plain_record(self)

    @classmethod
    def from_json(cls, text: str | bytes, source: str = "the plan") -> Plan:
        """Reads a plan that ``to_json`` wrote.

        Args:
            text: of the file.
            source: the file's name, for the error.

        Raises:
            ModelError: it is not a plan, or one of another version.
        """
        try:
            data = parse_json(text)
            plan = _plan(data)
            record = plan.as_dict()
            # What is derived (workers, the texts of strategies) must be what the other members say.
            for key, member in data.members().items():
                if member.value is not None and (key not in record or record[key] != member.value):
                    raise member.fault("does not agree with the plan's other members")
            return plan
        except JsonError as error:
            raise ModelError(
                f"{source} cannot be read: {error}", hint="plan the model again with `tofu plan`"
            ) from None


def _plan(data: Value) -> Plan:
    data.require_version(SCHEMA_VERSION)
    cuts = data["cuts"].counts(least=1)
    tensor_bytes = data["tensor_bytes"].members()
    absent = next((name for name in data["tilings"].members() if name not in tensor_bytes), None)
    if absent is not None:
        raise data["tensor_bytes"].fault(f"lacks {absent!r}")
    tilings: Readers = {Tiling: lambda value: _tiling(value, cuts)}
    strategies: Readers = {OpStrategy: partial(_strategy, read_space=reader(IterationSpace, tilings))}
    plan = reader(Plan, {Rates: _rates, **FORM_READERS, **tilings, **strategies})(data)
    # The file has one number of seconds, whichever it is by: beside an estimate it is not that of the tables.
    return plan if plan.estimate is None else replace(plan, table_seconds=None)


def _rates(data: Value) -> Rates:
    rates = reader(Rates)(data)
    if not rates.are_usable:
        raise data.fault("are no rates that a plan can be made by")
    return rates


def _tiling(data: Value, cuts: tuple[int, ...]) -> Tiling:
    try:
        tiling = Tiling.parse(data.text(), cuts)
    except UsageError as error:
        raise data.fault(f"is wrong: {error.what}") from None
    if any(
        isinstance(placement, Only) and placement.group >= ways
        for placement, ways in zip(tiling.placements, tiling.ways, strict=True)
    ):
        raise data.fault(f"names a group that there is not: {data.text()}")
    return tiling


def _strategy(data: Value, read_space: Callable[[Value], IterationSpace]) -> OpStrategy:
    space = read_space(data)
    if any(dim >= len(space.variables) for dim in space.tiling.dims):
        raise data["tiling"].fault(f"cuts an index variable that there is not: {space.tiling}")
    if space.steps is None:
        return OpStrategy(space.tiling, space.variables)
    name, count = space.steps.variable, space.steps.count
    if name not in space.variables:
        raise data["steps"]["variable"].fault(f"names an index variable that there is not: {name}")
    return OpStrategy(space.tiling, space.variables, Steps(space.variables.index(name), count))


_encoded = json.JSONEncoder(ensure_ascii=False).encode
"""Without ``indent``, with which the json package is several times as slow."""


def _in_lines(value: object) -> str:
    """A value as JSON, what it holds with a line for each."""
    if isinstance(value, dict) and value:
        return "{\n" + ",\n".join([f"  {_encoded(key)}: {_encoded(member)}" for key, member in value.items()]) + "\n }"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join([f"  {_encoded(member)}" for member in value]) + "\n ]"
    return _encoded(value)


def digest(data: bytes) -> str:
    """The sha256 of a file's content, as it stands in plans and manifests."""
    return hashlib.sha256(data).hexdigest()
