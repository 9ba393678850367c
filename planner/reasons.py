"""Reasons of a plan, as data: causes of what it costs, what each reader needs, and what else was possible.

Found by ``planner.planning.why``; rendered by ``planner.printing``. All names come from the model: whoever prints them
escapes them, in the sentences too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from planner.algebra.region import Region
from planner.graph.core.model import Role, Shape
from planner.records import Positive, Signed, SignedFloat

Subject: TypeAlias = Literal["tensor", "op"]


@dataclass(frozen=True, slots=True)
class Cause:
    """Tensors, or ops, that cost something for one and the same reason."""

    kind: Subject
    """``tensor``: bytes move because of it; ``op``: it repeats work, or divides it unevenly (penalty)."""
    names: tuple[str, ...]
    """The names of the tensors or ops, the dearest first; at least one."""
    cost_bytes: int
    """The cost of all of them, in an iteration, over all workers: moved bytes, or penalty; both of ops with their
    tensors.
    """
    share: SignedFloat
    """The share of the plan's cost (moved bytes and penalty)."""
    reason: str
    """One sentence without a full stop, true of each of them."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Tensors that are whole on every worker, at some cut or at all, for one and the same reason."""

    names: tuple[str, ...]
    """The largest first; at least one."""
    held_bytes: int
    """The bytes of the copies beside the first, over all workers and all of these tensors."""
    reason: str
    """One sentence without a full stop."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The delivery of one tensor to an op that reads it, or from the op that makes it to its owners."""

    tensor: str
    op: str
    op_type: str
    strategy: str
    """The op's, in words: ``b/2 k/2``."""
    is_input: bool
    """The op reads the tensor; else it makes it."""
    regions: tuple[Region, ...]
    """The region of the tensor that each worker needs, or makes; empty where it needs none."""
    is_partial: bool
    """Whether workers make partial results, which are joined."""
    moved_bytes: int
    """The bytes in an iteration, over all workers."""
    reason: str
    """The reason why bytes move, or none: one sentence without a full stop."""


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """An alternative to a tensor's tiling, or an op's strategy, and the cost of the best known plan with it."""

    choice: str
    """The tiling ``S(0)/2 S(0)/2`` or the strategy ``b/2 b/2``, over all cuts."""
    pin: str
    """The option that asks for it: ``W=S(0)``, as ``tofu plan --pin`` takes it; "" of an op, which cannot be pinned."""
    cost_bytes: int | None
    """Moved bytes and penalty of a plan with that choice, found near the plan: the best one costs at most so much; None
    where there is no plan."""
    moved_bytes: int | None
    """The moved part of ``cost_bytes``."""
    more_bytes: Signed | None
    """``cost_bytes`` less what the plan costs; negative where that is dearer."""
    more_share: SignedFloat | None
    """The same as a share of what the plan costs; None where the plan costs nothing, too."""
    changed: tuple[str, ...]
    """Names of the other tensors and ops that are otherwise in it."""
    lacking_bytes: int | None
    """Memory that the worker lacks that lacks the most; 0: it fits; None where no limit is known, or no plan."""
    why_not: str
    """The reason why there is no plan, in words; "" where there is one."""


@dataclass(frozen=True, slots=True)
class Why:
    """One tensor or op of a plan: where it lies or how it is divided, what that costs, and why."""

    kind: Subject
    name: str
    about: str
    """The type of a tensor, the operator of an op: ``float32``, ``Conv``."""
    role: Role | None
    """The role of a tensor."""
    axes: tuple[str, ...]
    """Names of the directions of ``tiles``: ``0``, ``1`` of a tensor's dims; index variables of an op."""
    shape: Shape
    """Extents of these directions; (1,) of a scalar, which has one."""
    choice: str
    """The tiling or the strategy."""
    tiles: tuple[Region, ...]
    """The tile of each worker: the tensor's tile, or the op's part of its index space (with what others do, too, where
    it is repeated).
    """
    deliveries: tuple[Delivery, ...]
    """The deliveries of a tensor: its maker's, if it has one, then its readers', in order. Of an op: its inputs', then
    its outputs'.
    """
    moved_bytes: int
    """The sum over ``deliveries``."""
    excess_bytes: int
    """The penalty of an op's repeated or uneven work; 0 of a tensor."""
    plan_cost_bytes: int
    """Moved bytes and penalty of the plan, with which runners-up are compared."""
    reason: str
    """One sentence without a full stop."""
    runners_up: tuple[RunnerUp, ...]
    """The least dear first; those without a plan last."""
    remark: str
    """A remark on the runners-up, or the reason why there are none; "" where nothing is."""
    limit_bytes: int | None = None
    """The memory that a worker may take, as far as it is recorded with the plan; the least of several."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """One way to train the model, as a column of a summary."""

    workers: Positive
    memory_bytes: int | None
    """The memory of the worker whose tensors take the most; None where it was not computed."""
    is_least_memory: bool
    """Whether it takes at least so much: what lies there, op by op, without the program."""
    moved_bytes: int | None
    """The bytes in an iteration, over all workers; None where there is no plan, or it was not computed."""
    estimated_seconds: float | None
    """The estimated time of an iteration; None without a machine, or where it was not computed."""
    fits: bool | None
    """Into the memory there is; None where no limit is known, or the memory is not."""
    remark: str = ""
    """The reason why something is missing, in words."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A plan in brief."""

    one_device: Outlook
    """The whole model on one device."""
    data_parallel: Outlook
    """Data parallelism on as many workers."""
    this_plan: Outlook
    limit_bytes: int | None
    """The memory that a worker may take, the least of several; None: no limit is known."""
    causes: tuple[Cause, ...]
    """The three that cost most."""
    commands: tuple[str, ...]
    """Command lines to go on with, quoted for a shell."""
    scheme: str = ""
    """The known scheme with the most equal tilings, and the modules that differ, in words; "" where none applies."""
