"""Rules as a restriction of the search: pins and prohibitions above what a strategy would choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.algebra.delivery import can_split
from planner.algebra.tiling import UNCUT, Only, Partial, Placement, Shard, Tiling, parse_placement
from planner.cost.tables import Candidates
from planner.errors import UsageError
from planner.graph.core.model import Role, Shape
from planner.graph.step.deliveries import is_delivery
from planner.search.model.partial_sums import PARTIAL
from planner.search.model.problem import Problem, Restriction, SearchVariable
from planner.search.user_rules.rules import Limits, Rules, is_pattern, matching, unmatched

_PAGE = "the options are explained in docs/plan.md"


def ruled(problem: Problem, rules: Rules, cuts: tuple[int, ...], inner: Restriction) -> Restriction:
    """Keeps tensors to the rules, and everything else to ``inner``.

    Where the rules leave nothing of what ``inner`` would choose, they stand above it.

    Args:
        problem: the search.
        rules: what to keep to.
        cuts: the ways of each cut.
        inner: the restriction of the variables without a rule.

    Raises:
        UsageError: a rule for a tensor that is not in the model, a text that is no placement or no tiling of these
            cuts, a tiling that the tensor cannot have, or prohibitions that leave it none; all of them at once.
    """
    if not rules:
        return inner
    read = _Reader(problem, rules, cuts)
    limits = read.limits()
    if read.faults:
        kinds = [kind for kind, entries in (("pin", rules.pins), ("prohibition", rules.forbidden)) if entries]
        raise UsageError(f"a {' or '.join(kinds)} cannot be kept", facts=tuple(read.faults), hint=_PAGE)
    tilings = read.tilings

    def restrict(variable: SearchVariable, candidates: Candidates) -> Candidates:
        tiling = tilings.get(variable.number)
        if tiling is not None:
            depth = len(candidates[0].ways)
            return (tiling.outermost(depth),)
        limit = limits.get(variable.number)
        chosen = inner(variable, candidates)
        if limit is None:
            return chosen
        allowed = tuple(filter(limit.allows, chosen)) or tuple(filter(limit.allows, candidates))
        assert allowed, "what the rules allow can be extended to the next cut"
        return allowed

    return restrict


@dataclass
class _Reader:
    """Reads rules for a problem, and notes what is wrong with them."""

    problem: Problem
    rules: Rules
    cuts: tuple[int, ...]
    tilings: dict[int, Tiling] = field(default_factory=dict)
    """The tiling that each variable is pinned to."""
    pinned_by: dict[int, str] = field(default_factory=dict)
    """The name or pattern of each variable's pin."""
    forbidden: dict[int, dict[Placement, None]] = field(default_factory=dict)
    """The placements that each variable may not have."""
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        by_name: set[int] = set()
        # Who names a tensor means it more than who writes a pattern that matches it.
        for pattern, text in sorted(self.rules.pins.items(), key=lambda pin: is_pattern(pin[0])):
            tensors = [(name, self.problem.variable_of_tensor[name]) for name in self._named(pattern)]
            try:
                tiling = Tiling.parse(text, self.cuts)
            except UsageError as error:
                self.faults.append(f"{pattern}={text}: {error.what}" + (f"; {error.hint}" if error.hint else ""))
                continue
            for name, number in tensors:
                if pattern == name or number not in by_name:
                    self._pin(pattern, name, tiling)
            by_name |= {number for name, number in tensors if pattern == name}
        for pattern, text in self.rules.forbidden:
            self._forbid(pattern, text)

    def _named(self, pattern: str) -> tuple[str, ...]:
        """The tensors that a rule is for; a fault where there are none."""
        tensors = self.problem.variable_of_tensor
        names = matching(pattern, tensors, self.rules.names)
        if not names:
            near = [name for name in tensors if self.rules.names is None or name in self.rules.names]
            self.faults.append(unmatched(pattern, near, self.problem.graph.constants))
        return names

    def _pin(self, pattern: str, name: str, tiling: Tiling) -> None:
        """Notes a pin of one tensor."""
        where = f"{pattern}={self.rules.pins[pattern]}" + ("" if pattern == name else f": {name}")
        fault = _fault(self.problem, name, tiling)
        if self.problem.is_charged(name) and not tiling.is_disjoint:
            fault = "data arrives in disjoint tiles (--input-tiling partitioned)"
        if fault:
            self.faults.append(f"{where}: {fault}")
        number = self.problem.variable_of_tensor[name]
        earlier = self.pinned_by.setdefault(number, pattern)
        if self.tilings.setdefault(number, tiling) != tiling:
            tied = "a state and its next value have one tiling, and the other is pinned differently"
            clash = f"{earlier}={self.rules.pins[earlier]} pins it differently"
            self.faults.append(f"{where}: {clash if is_pattern(earlier) or is_pattern(pattern) else tied}")

    def _forbid(self, pattern: str, text: str) -> None:
        """Notes a prohibition."""
        where = f"{pattern}={text}"
        names = self._named(pattern)
        try:
            placement, ways = parse_placement(text)
        except UsageError as error:
            self.faults.append(f"{where}: {error.what}; write S(dim), R or P")
            return
        if ways is not None:
            self.faults.append(f"{where}: a prohibition is of every cut; write {placement}")
            return
        if isinstance(placement, Partial | Only) and placement != PARTIAL:
            self.faults.append(f"{where}: no tensor is ever {placement}; write S(dim), R or P")
            return
        graph = self.problem.graph
        having = [
            name for name in names if not isinstance(placement, Shard) or placement.dim < len(graph.tensors[name].shape)
        ]
        if placement == PARTIAL:  # what is never partial keeps to this anyway
            having = list(filter(self.problem.may_be_partial, names))
        elif names and not having:
            assert isinstance(placement, Shard), "every tensor may be replicated or not"
            fault = _no_dim(placement.dim, graph.tensors[names[0]].shape)
            self.faults.append(
                f"{where}: {fault if len(names) == 1 else f'none of its tensors has a dim {placement.dim}'}"
            )
        for name in having:
            self.forbidden.setdefault(self.problem.variable_of_tensor[name], {})[placement] = None

    def limits(self) -> Mapping[int, Limits]:
        """The limits of each variable; notes where the rules leave it nothing, or forbid what it is pinned to."""
        limits: dict[int, Limits] = {}
        for variable in self.problem.variables:
            forbidden = self.forbidden.get(variable.number, {})
            may_replicate = self._may_replicate(variable)
            if variable.op is not None or (may_replicate and not forbidden):
                continue
            name = variable.tensors[0]
            is_charged = self.problem.is_charged(name)
            limit = Limits(self.problem.graph.tensors[name].shape, self.cuts, forbidden, may_replicate, is_charged)
            listed = " and ".join(map(str, forbidden))
            pin = self.tilings.get(variable.number)
            if pin is not None:
                if limit.forbids(pin):
                    self.faults.append(f"{name}: is pinned to {pin}, and {listed} is forbidden")
            elif not limit.allows(UNCUT):
                shape = list(self.problem.graph.tensors[name].shape)
                tiles = ", and data arrives in disjoint tiles (--input-tiling partitioned)" if is_charged else ""
                self.faults.append(f"{name}: without {listed}, {shape} cannot be cut {self._ways()} ways{tiles}")
            else:
                limits[variable.number] = limit
        return limits

    def _ways(self) -> str:
        return " x ".join(map(str, self.cuts)) or "1"

    def _may_replicate(self, variable: SearchVariable) -> bool:
        """Whether a tensor may be replicated where it can be cut; a shared delivery may, as any op's own may."""
        if self.rules.replicate == "all" or variable.op is not None or self._is_delivered(variable.tensors[0]):
            return True
        roles = {self.problem.graph.roles[name] for name in variable.tensors}
        return self.rules.replicate == "weights" and bool(roles & {Role.STATE, Role.DATA})

    def _is_delivered(self, name: str) -> bool:
        maker = self.problem.graph.producer.get(name)
        return maker is not None and is_delivery(maker)


def _fault(problem: Problem, name: str, tiling: Tiling) -> str:
    """The reason why a tensor cannot have a tiling; "" if it can."""
    shape = problem.graph.tensors[name].shape
    so_far = UNCUT
    for placement, ways in zip(tiling.placements, tiling.ways, strict=True):
        if isinstance(placement, Partial | Only) and placement != PARTIAL:
            return f"{placement} cannot be pinned"
        if placement == PARTIAL and (why := problem.why_not_partial(name)):
            return f"it cannot be partial: {why}"
        if isinstance(placement, Shard):
            if placement.dim >= len(shape):
                return _no_dim(placement.dim, shape)
            if not can_split(so_far.extend(placement, ways).boxes(shape), placement.dim, 1):
                return f"dim {placement.dim} of {list(shape)} is too small to be cut {ways} ways after {so_far}"
        so_far = so_far.extend(placement, ways)
    return ""


def _no_dim(dim: int, shape: Shape) -> str:
    """The message about a dim that a tensor does not have."""
    return f"there is no dim {dim}: the tensor is {list(shape)}"
