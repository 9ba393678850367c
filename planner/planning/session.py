"""A planning session, step by step.

A model is read and brought into its canonical form. A plan of that is searched for the least cost in bytes; on a
machine, another one for the least time, and the fastest is taken of these and of the literature's. If it does not fit
into the memory there is, one that does is looked for. Then come deliveries that readers share where there is room for
them, and sources that are near on the machine; and what is known only of the program that is left, completes the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

from planner.artifacts.plan import Plan, digest
from planner.artifacts.source_file import SourceFile
from planner.cost.tables import CostTables
from planner.counted import phase
from planner.errors import InfeasibleError
from planner.graph.core.model import Graph
from planner.graph.files.data_folder import data_folder_of, without_data_folder
from planner.graph.files.to_onnx import to_model
from planner.graph.rewriting.recomputation import Activations, recomputed
from planner.machine.topology_file import Machine
from planner.partition.build import complete_plan, told_by_program
from planner.planning.beside import LARGE, NO_SPEED, of_data, other_estimates, warnings
from planner.planning.bodies import decide_with_bodies
from planner.planning.canonical_form import canonical_under
from planner.planning.deliveries import shared
from planner.planning.goal import Goal, least_cost
from planner.planning.limit.fit import fitted_by_others, within
from planner.planning.limit.in_steps import all_in_steps, is_in_steps
from planner.planning.limit.least_memory import EveryPlan, refuse_what_cannot_fit
from planner.planning.limit.refusal import does_not_fit, with_activations_again
from planner.planning.limit.room import shared_where_room
from planner.planning.limit.trial import Trial
from planner.planning.machines import cuts_on, time_of
from planner.planning.objective import (
    LITERATURE,
    SEARCHES,
    Times,
    can_be_timed,
    is_large,
    of_the_literature,
    timed,
)
from planner.planning.owners import decide_with_owners, even, is_even, owned_in
from planner.planning.recomputation.bound import bound_of_all_sets
from planner.planning.recomputation.offers import Offers, best_of_sets, fitted_by_copies, has_backward_pass
from planner.planning.recomputing import again_of, recomputed_of
from planner.planning.request import PlanRequest
from planner.planning.sources import from_the_nearest
from planner.planning.thresholds import Work
from planner.planning.undescribed import undescribed_ops
from planner.progress import in_part, without_costs
from planner.results import Beside
from planner.search.decision import Decision
from planner.search.effort import WHOLE_OPS, EffortName
from planner.search.literature.methods import CLOSED_FORMS, METHODS
from planner.search.prepared import Prepared
from planner.search.request import SearchRequest
from planner.search.schedule import schedule_of
from planner.search.user_rules.prices import ForbidPrice, PinPrice, prices
from planner.search.user_rules.rules import Rules
from planner.spent import part
from planner.stop import StoppedError
from planner.training.doors.read import file_of


@dataclass(frozen=True, slots=True)
class Planned:
    """The result of a session."""

    trial: Trial
    """The plan that is taken, with its program."""
    prices: tuple[PinPrice | ForbidPrice, ...]
    """Of every pin and prohibition."""
    times: Times | None
    """Estimates on the machine; None without one, or where they take long."""
    literature: tuple[Trial, ...]
    """Plans of the literature on the machine."""
    left_out: tuple[str, ...] = ()
    """What was not done since the graph is large, in words."""


class Session:
    """A model that is planned as is asked for.

    Attributes:
        request: what is asked for.
        whole: the model as it was read; where its external data lies is not in it, since the same model is to have the
            same digest, whatever its plans' folders are.
        data_folder: the folder of the external data, or None.
        source_file: the file that was read, as it then was; None of a folder of artifacts, and where the
            graph was made of it.
        form: its canonical form.
        graph: the same, with copies of what is computed again, which is what is planned.
        again: the activations of which there are copies.
        effort: the effort of the search.
    """

    @part("reading")
    def __init__(self, request: PlanRequest) -> None:
        """Reads the model.

        Args:
            request: what is asked for.

        Raises:
            TofuError: it cannot be read.
        """
        model = request.source.model
        phase("reading")
        request.options.progress(f"reading {model}")
        self.source_file = None if request.source.make is not None else SourceFile.of(model)
        read = request.source.read()
        self.request = request
        self.whole, self.data_folder = without_data_folder(read), data_folder_of(read, file_of(model))
        self.form, self._kept = canonical_under(request.rules, self.whole)
        self.again: tuple[str, ...] = again_of(request.recompute, self.form.graph, request.source.descriptions)
        self.graph = recomputed(self.form.graph, self.again)
        request.options.progress(f"analysing {len(self.graph.ops):,} ops")
        self.effort = request.effort
        self._tables = CostTables(request.rates)
        self._ask = SearchRequest(
            request.target.workers,
            request.target.cuts,
            request.options.strategy,
            replace(request.rules, names=frozenset(self.graph.tensors)),
            partitioned_inputs=request.options.inputs == "partitioned",
            effort=self.effort,
            tables=self._tables,
            progress=request.options.progress,
            stop=request.stop,
        )
        self._prepared = Prepared()

    @cached_property
    def makes_program(self) -> bool:
        """Whether the plan that is kept gets a program; else what it takes is told by tables."""
        request = self.request
        return request.options.models or Work.PROGRAM.is_done(len(self.graph.ops), request.target.workers)

    @cached_property
    def content(self) -> bytes:
        """The model's file, as it is in the plan's folder."""
        content: bytes = to_model(self.whole).SerializeToString(deterministic=True)
        return content

    def at_effort(self, effort: EffortName) -> Session:
        """A session of the same model, in which nothing is planned yet, with another effort."""
        session = copy(self)
        session.effort, session._ask = effort, replace(self._ask, effort=effort)
        return session

    def planned(self, before: Planned | None = None) -> Planned:
        """The plan, and what was found on the way to it.

        Args:
            before: the plan of another effort, in the place of which this one may end without a plan.

        Raises:
            TofuError: there is none, or none that was found fits into the memory there is.
            StoppedError: the search is to end, has no plan yet, and need not have one.
        """
        self._ask = replace(self._ask, is_needed=before is None)
        limits = self.request.limits
        phase("searching")
        if limits is not None:
            self.request.options.progress("what every plan takes at least")
            self._refuse_what_cannot_fit(limits)
        plain, plan = self._searched(self.request.rules)
        priced = self._priced(plan)
        times = self._times() if self.request.is_timed else None
        names, left_out = self._compared() if times is not None else ((), ())
        literature = tuple(self._of_the_literature(names)) if before is None else before.literature
        chosen = self._chosen(plain, plan, times, literature)
        if self.request.options.op_schedule == "stepped":
            chosen = replace(chosen, decided=all_in_steps(chosen.decided))
        return Planned(chosen, priced, times, literature, left_out)

    def every_plan(self, model: Graph) -> EveryPlan:
        """The facts that all plans of a model share that are made as asked, with all recomputed that may be.

        Args:
            model: as it was read: the session's own, or the same at another batch.

        Raises:
            UsageError: it has no backward pass, and activations are to be computed again.
        """
        form = canonical_under(self.request.rules, without_data_folder(model))[0].graph
        operators = self.request.source.descriptions
        if self._may_recompute:
            return EveryPlan(form, operators, Activations(form).all)
        return EveryPlan(recomputed(form, again_of(self.request.recompute, form, operators)), operators)

    def _refuse_what_cannot_fit(self, limits: tuple[int, ...]) -> None:
        """Refuses limits that no plan can keep to, whatever may be computed again.

        Raises:
            InfeasibleError: with what every plan takes at least.
        """
        request, form = self.request, self.form.graph
        operators = request.source.descriptions
        try:
            refuse_what_cannot_fit(self.graph, operators, limits)
        except InfeasibleError as error:
            if request.recompute.mode not in ("auto", "none") or not has_backward_pass(form):
                raise
            again = Activations(form).all
            if self._may_recompute:
                refuse_what_cannot_fit(form, operators, limits, again)
                return
            least = EveryPlan(form, operators, again).least(len(limits))
            raise with_activations_again(error, least.total_bytes, limits) from None

    def planned_beside(self, literature: Sequence[Trial]) -> Trial:
        """The plan, where those of the literature are known.

        Args:
            literature: these plans.

        Raises:
            TofuError: see ``planned``.
        """
        times = self._times() if self.request.objective == "time" else None
        return self._chosen(*self._searched(self.request.rules), times, literature)

    def by_strategy(self, name: str) -> Decision:
        """The plan of a strategy of the literature.

        Args:
            name: of the strategy.

        Raises:
            TofuError: it has none of this model, or none that keeps to the rules.
        """
        progress = without_costs(self.request.options.progress)
        ask = replace(self._ask, strategy=name, effort="normal", progress=progress, prepared=self._prepared)
        return self._search(self.graph, replace(ask, is_needed=False))

    def _search(self, graph: Graph, ask: SearchRequest) -> Decision:
        source = self.request.source
        # Copies of what is computed again are in no lane.
        decide_for = decide_with_bodies if self.again else decide_with_owners
        return decide_for(graph, source.descriptions, ask)

    def _searched(self, rules: Rules) -> tuple[Decision, Decision]:
        """The plan in which every reader has its own delivery, and the one in which some may be shared.

        Raises:
            StoppedError: the search is to end, and these are not the rules that were asked for.
        """
        is_own = rules is self.request.rules
        graph = self.graph if is_own else self._graph_under(rules)
        named_rules = replace(rules, names=frozenset(graph.tensors))
        is_needed = is_own and self._ask.is_needed
        ask = replace(self._ask, rules=named_rules, effort=self._effort_for_bytes, is_needed=is_needed)
        if not is_own:
            ask = replace(ask, progress=without_costs(ask.progress))
        plain = self._search(graph, ask)
        plan = shared(plain, self.request.source.descriptions, ask) if self.request.may_share else plain
        return plain, even(plan, self._tables) or plain

    @property
    def _effort_for_bytes(self) -> EffortName:
        """The effort of the search for the least cost in bytes; what a rule costs is said in bytes."""
        is_in_bytes = self.request.objective == "bytes" or bool(self.request.rules.pins or self.request.rules.forbidden)
        return self.effort if is_in_bytes else schedule_of(self.effort).for_time

    def _graph_under(self, rules: Rules) -> Graph:
        """What is planned under other rules, which may leave tensors out that these keep."""
        form = canonical_under(rules, self.whole)[0].graph
        return recomputed(form, [name for name in self.again if name in form.tensors])

    def _priced(self, plan: Decision) -> tuple[PinPrice | ForbidPrice, ...]:
        """What each rule costs."""
        phase("pricing rules")

        def cost_under(rules: Rules) -> int:
            return self._searched(rules)[1].cost

        return prices(self.request.rules, plan.cost, cost_under, self.request.options.progress, self.request.stop)

    def _times(self) -> Times:
        target = self.request.target
        assert target.machine is not None, "times are of a machine"
        return Times(target.machine, self._tables, target.profile)

    def _compared(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Strategies of the literature whose plans may be faster, else data parallelism; and what is left out of them.

        Searches of the literature take minutes where a graph is large; closed forms are planned at any size.
        """
        if not self.request.is_free or self.request.objective != "time":
            return ("data",), ()
        if Work.TRIALS.is_done(len(self.graph.ops)):
            return LITERATURE, ()
        ops = f"{len(self.graph.ops):,} ops, more than {WHOLE_OPS:,}"
        return CLOSED_FORMS, (f"the searches of the literature ({', '.join(SEARCHES)}): {ops}",)

    def _of_the_literature(self, names: Sequence[str]) -> list[Trial]:
        """The plans of these strategies, where they have one."""
        request = self.request
        phase("comparing strategies")
        walked = of_the_literature(names, self.by_strategy, request.options.progress, request.stop)
        trials = [outcome for _, outcome in walked if isinstance(outcome, Trial)]
        self._prepared = Prepared()  # hundreds of MB of a large graph
        return trials

    def _chosen(self, plain: Decision, plan: Decision, times: Times | None, literature: Sequence[Trial]) -> Trial:
        """The plan that is taken: the best that is known of those that fit, made a little better."""
        request = self.request
        trial, fitting, goal = Trial(plan), None, least_cost(self._tables)
        plans = [Trial(plain)]
        if times is not None and request.objective == "time":
            goal = times.goal
            searched = [trial, *self._by_tables_of_time(goal)]
            plans = [Trial(plain), *searched[1:], *(literature if request.is_free else ())]
            trial = times.fastest(searched, None, request.stop).best
            among = [*searched, *literature] if request.is_free else searched
            fitting = times.fastest(among, request.limits, request.stop).fitting
            if fitting is not None:
                request.stop.plan_is_there(is_fitting=True)
        cost, lower = trial.decided.cost, _lower(trial.decided)
        phase("making programs")
        request.options.progress("making a program for each worker", cost=cost, lower=lower)
        try:
            if self._may_recompute and not self._is_within(trial):
                trial = self._with_recomputation(trial, plans, fitting, goal)
            else:
                trial = self._within_memory(trial, plain, fitting, goal)
        except InfeasibleError as error:
            if not request.is_free:
                raise
            trial = self._by_others(error, goal)
        if times is not None and fitting is not None:
            trial = min(fitting, trial, key=times.seconds)
        # These use memory that is free: if the program does not fit any more, the plan before them stays.
        final = self._nearest(self._with_room_used(trial, goal))
        return final if final is trial or self._is_within(final) else trial

    def _by_tables_of_time(self, goal: Goal) -> Iterator[Trial]:
        """The plan for the least time as the search's tables add it up; none where the search is to end."""
        stop, task = self.request.stop, "a plan for the least time"
        phase("searching for time")
        if stop.leaves_out(task):
            return
        progress = in_part(without_costs(self.request.options.progress), "planning again, for the least time")
        effort = schedule_of(self.effort).for_time
        ask = replace(self._ask, effort=effort, progress=progress, is_needed=False)
        with stop.may_leave_out(task):
            yield timed(self._search(self.graph, replace(ask, tables=goal.tables)), self._tables)

    def _within_memory(self, trial: Trial, plain: Decision, fitting: Trial | None, goal: Goal) -> Trial:
        """A plan that fits: the given one, one that is found for the limits, or one that is known to fit."""
        limits = self.request.limits
        if limits is None or self._is_within(trial):
            self.request.stop.plan_is_there(is_fitting=True)
            return trial
        first = Trial(plain) if trial.decided.deliveries else trial
        try:
            may_step = self.request.options.op_schedule == "auto"
            fitted = within(first, self._ask, limits, goal, may_step=may_step)
            if is_even(fitted.decided):
                return fitted
            return within(self._without_owners(), self._ask, limits, goal, may_step=may_step)
        except (InfeasibleError, StoppedError):
            if fitting is None:
                raise
            return fitting

    def _by_others(self, error: InfeasibleError, goal: Goal) -> Trial:
        """The plan of a strategy of the literature that fits, where no plan of the search's own was found to.

        Raises:
            InfeasibleError: none fits; of the plan that lacks the least.
        """
        limits, may_step = self.request.limits or (), self.request.options.op_schedule == "auto"
        if self._may_recompute:
            self.take(())
        names = LITERATURE if Work.TRIALS.is_done(len(self.graph.ops)) else CLOSED_FORMS
        plans = self._of_the_literature(names)
        for name in (name for name in names if METHODS[name].looks_at_memory):
            ask = replace(self._ask, strategy=name)
            try:
                plans.append(within(Trial(self.by_strategy(name)), ask, limits, goal, may_step=may_step))
            except InfeasibleError as refusal:
                error = min(error, refusal, key=lambda fault: fault.lacking_bytes or inf)
        if not plans:
            raise error
        fitted = fitted_by_others(plans, self._ask, limits, goal, may_step=may_step)
        if (lacking := fitted.lacking_by_program(limits)) > 0:
            raise error if error.lacking_bytes <= lacking else does_not_fit(fitted, limits)
        return fitted

    def _without_owners(self) -> Trial:
        """The plan in which no equal ops beside each other have owners."""
        ask = replace(self._ask, effort=self._effort_for_bytes)
        return Trial(decide_with_bodies(self.graph, self.request.source.descriptions, ask))

    def _is_within(self, trial: Trial) -> bool:
        """Whether the plan that is kept fits: its program says so, where it gets one."""
        limits = self.request.limits
        return limits is None or (trial.holds(limits) if self.makes_program else trial.fits(limits))

    @cached_property
    def _may_recompute(self) -> bool:
        """Whether activations may be computed again where memory asks for it."""
        request, op_schedule = self.request, self.request.options.op_schedule
        is_asked = request.recompute.mode == "auto" and request.limits is not None and op_schedule == "auto"
        return is_asked and has_backward_pass(self.form.graph)

    def take(self, again: Collection[str]) -> None:
        """Computes these activations again, and no others.

        Args:
            again: activations of the canonical form.
        """
        self.again = Activations(self.form.graph).copied(again)
        self.graph = recomputed(self.form.graph, self.again)
        rules = replace(self.request.rules, names=frozenset(self.graph.tensors))
        self._ask = replace(self._ask, rules=rules)

    def _with_recomputation(self, first: Trial, plans: Sequence[Trial], fitting: Trial | None, goal: Goal) -> Trial:
        """A plan that fits, with what is best computed again taken into the graph.

        Plans are taken as they are, copies being divided as what they copy. Of a graph that is not large, others are
        searched for with several sets.

        Args:
            first: the best plan, which does not fit.
            plans: without shared deliveries: the search's own, and those of the literature.
            fitting: a plan of them that fits, or None.
            goal: what a plan is to have little of.
        """
        limits = self.request.limits
        assert limits is not None, "activations are computed again where memory asks for it"
        if plans[0].decided.graph.lanes:  # what has owners is not computed again
            plans = [self._without_owners(), *plans]
        plans = [plan for plan in plans if not plan.decided.graph.lanes]
        plain = plans[0].decided
        offers = Offers(self.form.graph, self.request.source.descriptions, self._tables, plain, goal)
        if self.request.is_free and goal.tables is self._tables:
            plans = [*plans, *self._of_the_literature(CLOSED_FORMS)]
        is_bounded = not plans[0].is_exact and goal.tables is self._tables
        lower = bound_of_all_sets(offers, sum(limits), self._ask) if is_bounded else None
        fitted = fitted_by_copies(offers, plans, limits, self._ask, lower, makes_program=self.makes_program)
        if fitted is not None:
            self.request.stop.plan_is_there(is_fitting=True)
        elif not plans[0].is_exact:
            self.take(offers.sets[-1])
            last = Trial(offers.taken_by(plain, len(offers.sets) - 1))
            return self._within_memory(last, last.decided, None, goal)
        if fitted is not None and not plans[0].is_exact:
            self.take(offers.sets[fitted[0]])
            return fitted[1]

        def planned(number: int, worth: int | None) -> tuple[int | None, Trial | None]:
            self.take(offers.sets[number])
            unshared, plan = self._searched(self.request.rules) if number else (plain, first.decided)
            trial = first if number == 0 else Trial(plan)
            if worth is not None and goal.of(trial) >= worth:
                return _lower(unshared), None
            return _lower(unshared), self._within_memory(trial, unshared, None if number else fitting, goal)

        number, trial = best_of_sets(offers, planned, fitted, limits, self._ask)
        self.take(offers.sets[number])
        return trial

    def _with_room_used(self, trial: Trial, goal: Goal) -> Trial:
        """The plan with deliveries shared for which there is memory, if it has none yet."""
        if not self.request.may_share or trial.decided.deliveries or is_in_steps(trial.decided):
            return trial
        return shared_where_room(trial, goal, self._ask, self.request.source.descriptions, self.request.limits)

    def _nearest(self, trial: Trial) -> Trial:
        target = self.request.target
        if target.machine is None or not self.makes_program:
            return trial
        return from_the_nearest(trial, target.machine, self.request.limits, target.profile, stop=self.request.stop)

    def complete(self, trial: Trial) -> Plan:
        """The plan with all that its files say.

        Args:
            trial: the plan that is taken.
        """
        request, source, decided = self.request, self.request.source, trial.decided
        of_program = self._by_program(trial) if self.makes_program else self._by_tables_alone(trial)
        return complete_plan(
            decided,
            self.graph.name,
            digest(self.content),
            strategy=self.request.options.strategy,
            gap_of=self.request.objective if decided.lower is None else decided.gap_of,
            **of_program,
            described_by=source.described_by,
            undescribed=undescribed_ops(decided, source.descriptions.is_unknown),
            in_place=self.form.in_place,
            in_parts=self.form.in_parts,
            kept=self._kept,
            asked=request.asked,
            owned=owned_in(decided),
            recomputed=recomputed_of(request.recompute, decided, self.form.graph, self.again, source.descriptions),
        )

    def _by_program(self, trial: Trial) -> dict[str, Any]:
        """What a plan's program tells, by field of the plan."""
        target = self.request.target
        estimate = None if target.machine is None else time_of(trial, target.machine, target.profile)
        return {**told_by_program(trial.partitioned.program), "estimate": estimate}

    def _by_tables_alone(self, trial: Trial) -> dict[str, Any]:
        """What can be told of a plan without its program, by field of the plan."""
        machine, seconds = self.request.target.machine, None
        if machine is not None and can_be_timed(machine, self.request.target.profile):
            self.request.options.progress("adding up the tables of time")
            seconds = self._times().by_tables(trial.decided)
        return {
            "has_program": False,
            "table_seconds": seconds,
            "peak_bytes": (trial.lacking_on_average(0),) * trial.decided.workers,
            "soybean_bytes": None,
        }

    @part("comparison")
    def beside(self, planned: Planned, plan: Plan) -> tuple[Beside | None, tuple[str, ...]]:
        """Other estimates on the machine, and their warnings to the user.

        Args:
            planned: what was found.
            plan: the complete plan.
        """
        request, machine = self.request, self.request.target.machine
        phase("comparing machines")
        if machine is None:
            return None, ()
        if planned.times is None or plan.estimate is None:
            is_told = request.options.objective is None and request.is_free
            return None, (LARGE if is_large(machine) else NO_SPEED,) if is_told else ()
        by_data = next((trial for trial in planned.literature if trial.decided.strategy == "data"), None)
        comparison = Beside(
            *of_data(by_data, planned.times, request.limits),
            others=tuple(other_estimates(request, len(self.graph.ops), self._on_a_part)),
        )
        seconds, strategy = plan.estimate.estimated_seconds, request.options.strategy
        return comparison, tuple(warnings(seconds, plan.workers, comparison, strategy))

    def _on_a_part(self, machine: Machine, strategy: str, tables: CostTables) -> Decision:
        """A plan for another part of the machine, quickly."""
        ask = replace(
            self._ask,
            workers=machine.device_count,
            cuts=cuts_on(machine),
            strategy=strategy,
            effort="quick",
            tables=tables,
            progress=without_costs(self._ask.progress),
            is_needed=False,
        )
        return self._search(self.graph, ask)


def _lower(decided: Decision) -> int | None:
    """The bound in bytes; None where there is none."""
    return decided.lower if decided.gap_of == "bytes" else None
