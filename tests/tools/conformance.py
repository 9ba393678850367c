"""ONNX's own operator test cases through tofu: each planned, cut, run, and held against the output it expects.

    python tests/tools/conformance.py          prints how many pass, in about two minutes
    python tests/tools/conformance.py Conv     the cases of one operator

The exit status is 1 if one differs.

Of all cases, those that the stock runtime itself passes are planned for a few workers and run in this process. A case
counts as *cut* if an op that computes was split, and more than one worker computed. Beside the plan that the search
finds, an op alone in its graph is run by every other strategy that the analysis admits, so that what is not cheapest
is tried, too.
"""

from __future__ import annotations

import enum
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

import numpy as np
from onnx import AttributeProto, ModelProto

from onnx_node_cases import (
    OnnxCase,
    Value,
    differences,
    onnx_cases,
    parameters,
    stock_outputs,
    with_constants,
)
from planner import opdefs
from planner.algebra.tiling import Shard, Tiling
from planner.artifacts.plan import Partitioning
from planner.artifacts.program import Program, Segment
from planner.artifacts.worker_model import WorkerModel
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError, TofuError
from planner.features.ops.strategies import enumerate_strategies
from planner.graph.core.model import Graph, Op
from planner.graph.decompositions.randomness import lower_randomness
from planner.graph.reading.from_onnx import graph_from_proto
from planner.machine.rates import Rates
from planner.opdefs.exclusions import DATA_DEPENDENT
from planner.options.running import RunOptions
from planner.partition.build import partition
from planner.planning.bodies import decide_with_bodies
from planner.planning.limit.in_steps import choices, step_variables, with_steps
from planner.printing.console import ReportConsole
from planner.runtime.plan_files import LoadedPlan
from planner.runtime.run import run_with
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp
from planner.tdl.descriptions import Descriptions

WORKERS = 2
_DEAR = Rates(touched_bytes=1e-3, operations=1e-3)
"""Cases are small, and a plan would rather repeat an op than bring anything: by these rates it is cut."""
Progress = Callable[[str, int, int], None]
"""Called with a case, its number and how many there are."""


class Stock(enum.Enum):
    """The stock runtime's behaviour on a case."""

    PASSES = "passes"
    REFUSES = "refuses"
    """It has no kernel for it, or fails."""
    DIFFERS = "differs"
    """It gives another output than the case expects."""


class Refusal(enum.Enum):
    """The reason why a case that the stock runtime passes is not planned: what no plan of this kind can hold."""

    CONTROL_FLOW = "control flow: a subgraph that runs as often as the data say"
    NO_TENSOR = "sequences, optionals or strings: a plan splits tensors of numbers"
    DATA_SHAPE = "the shape of a result depends on the data"
    OTHER_DOMAIN = "an operator of another domain, which no description is given for"
    ONE_ELEMENT = "no tensor has more than one element: there is nothing to give to a second worker"
    NO_ELEMENTS = "no result has elements: there is nothing to be divided"


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """The outcome of one case."""

    name: str
    stock: Stock
    is_passed: bool = False
    """Planned and run, and the output is as expected."""
    is_cut: bool = False
    constants: tuple[str, ...] = ()
    """Inputs that were given as constants, since the plan depends on their values."""
    strategies: int = 0
    """Further strategies that were run, each with the output that is expected."""
    in_steps: int = 0
    """Of those, in steps."""
    why_not_cut: str = ""
    refusal: Refusal | None = None
    error: str = ""
    """What a refusal said that is not on the list."""
    differences: tuple[str, ...] = ()
    """Outputs that are not as expected, or strategies that give such."""


@dataclass(frozen=True, slots=True)
class Conformance:
    """The outcomes of all cases."""

    workers: int
    outcomes: tuple[CaseOutcome, ...]

    def with_stock(self, stock: Stock) -> tuple[CaseOutcome, ...]:
        """Those with which the stock runtime does this."""
        return tuple(outcome for outcome in self.outcomes if outcome.stock is stock)

    @property
    def passed(self) -> tuple[CaseOutcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.is_passed)

    @property
    def cut(self) -> tuple[CaseOutcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.is_cut)

    @property
    def strategies(self) -> int:
        """Further strategies that were run."""
        return sum(outcome.strategies for outcome in self.outcomes)

    @property
    def in_steps(self) -> int:
        """Of those, in steps: products and convolutions along each variable that allows it."""
        return sum(outcome.in_steps for outcome in self.outcomes)

    @property
    def with_constants(self) -> tuple[CaseOutcome, ...]:
        return tuple(outcome for outcome in self.passed if outcome.constants)

    @property
    def differing(self) -> tuple[CaseOutcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.differences)

    @property
    def failed(self) -> tuple[CaseOutcome, ...]:
        """Refused, or broken, for a reason that is not on the list."""
        return tuple(outcome for outcome in self.outcomes if outcome.error)

    @property
    def is_right(self) -> bool:
        return not self.differing and not self.failed

    def refused(self) -> Mapping[Refusal, tuple[str, ...]]:
        """The cases refused for each reason on the list."""
        return {
            reason: tuple(outcome.name for outcome in self.outcomes if outcome.refusal is reason) for reason in Refusal
        }

    def not_cut(self) -> Mapping[str, tuple[str, ...]]:
        """The cases that passed and were not cut, by reason, the most frequent first."""
        reasons = Counter(outcome.why_not_cut for outcome in self.passed if outcome.why_not_cut)
        return {
            reason: tuple(outcome.name for outcome in self.passed if outcome.why_not_cut == reason)
            for reason, _ in reasons.most_common()
        }


def conformance(
    descriptions: Descriptions,
    cases: Sequence[OnnxCase],
    *,
    progress: Progress = lambda name, number, count: None,
) -> Conformance:
    """Plans and runs cases.

    Args:
        descriptions: in force.
        cases: see ``onnx_cases``.
        progress: told of every case as it begins.
    """
    outcomes = []
    for number, case in enumerate(cases):
        progress(case.name, number, len(cases))
        outcomes.append(try_case(case, descriptions))
    return Conformance(WORKERS, tuple(outcomes))


def try_case(case: OnnxCase, descriptions: Descriptions) -> CaseOutcome:
    """One case, first by the stock runtime, then through tofu."""
    try:
        stock = stock_outputs(case)
    except Exception:  # noqa: BLE001 -- whatever the runtime raises, it does not pass
        return CaseOutcome(case.name, Stock.REFUSES)
    if differences(case, stock):
        return CaseOutcome(case.name, Stock.DIFFERS)
    error: TofuError | None = None
    for names in constants_to_try(case):
        try:
            planned = _plan(with_constants(case, names), descriptions)
        except TofuError as refused:
            error = refused
            continue
        return _judge(case, stock, planned, names)
    assert error is not None, "at least the case as it is was tried"
    refusal = _refusal(case, error, descriptions)
    return CaseOutcome(case.name, Stock.PASSES, refusal=refusal, error="" if refusal else str(error))


def constants_to_try(case: OnnxCase) -> Iterator[tuple[str, ...]]:
    """No input as a constant; one; all parameters but the operator's first input; all."""
    yield ()
    if not case.has_only_tensors:
        return
    first = next(iter(case.inputs), "")
    every = parameters(case)
    names = tuple(name for name in every if name != first)
    yield from dict.fromkeys((*((name,) for name in names), names, every))


@dataclass(frozen=True)
class _Planned:
    """A case's graph with the plan that the search found."""

    graph: Graph
    decided: Decision


def _plan(model: ModelProto, descriptions: Descriptions) -> _Planned:
    graph = lower_randomness(graph_from_proto(model, state_pairs=(), operators=descriptions))
    decided = decide_with_bodies(graph, descriptions, SearchRequest(WORKERS, tables=CostTables(_DEAR)))
    return _Planned(graph, decided)


def _judge(case: OnnxCase, stock: Sequence[Value], planned: _Planned, names: tuple[str, ...]) -> CaseOutcome:
    """Runs the plan, then the other strategies of an op that is alone."""
    decided = planned.decided
    plan = decided
    program, faults = _run(case, stock, planned.graph, decided.graph, decided.ops, plan)
    findings = [f"found plan: {fault}" for fault in faults]
    count = in_steps = 0
    is_alone = len(decided.ops) == 1 and decided.graph.ops == planned.graph.ops
    if is_alone and not _is_known(planned.graph, planned.graph.ops[0]):
        (op,) = decided.ops
        chosen = _pieces(op, plan.strategies[op.op.name].tiling)
        for candidate in enumerate_strategies(op, WORKERS):
            if candidate.veto:
                continue
            plans = []
            # The plan has run already: of its own division only the steps are new.
            if _pieces(op, candidate.strategy) == chosen:
                base = decided
            else:
                held = {op.op.name: candidate.strategy}
                base = decide(planned.graph, decided.ops, SearchRequest(WORKERS, held=held))
                plans.append(base)
            stepped = list(_in_steps(base, op))
            for variant in (*plans, *stepped):
                _, faults = _run(case, stock, planned.graph, planned.graph, decided.ops, variant)
                findings += [f"{variant.strategies[op.op.name]}: {fault}" for fault in faults]
                count += not faults
            in_steps += len(stepped)
    is_cut = _is_cut(decided.graph, decided.ops, plan, program)
    return CaseOutcome(
        case.name,
        Stock.PASSES,
        is_passed=not findings,
        is_cut=is_cut and not findings,
        constants=names,
        strategies=count,
        in_steps=in_steps,
        why_not_cut="" if is_cut else _why_not_cut(decided.graph, decided.ops),
        differences=tuple(findings),
    )


def _in_steps(plan: Decision, op: BoundOp) -> Iterator[Decision]:
    """A plan of one op with that in two steps along each variable that allows it."""
    for number in step_variables(op):
        step_choices = choices(plan, along=number)
        yield from (with_steps(plan, step_choices, step_choices) for _ in step_choices)


def _pieces(op: BoundOp, strategy: Tiling) -> tuple[bytes, bytes]:
    ranges = op.ranges(strategy)
    return ranges.lo.tobytes(), ranges.hi.tobytes()


def _run(
    case: OnnxCase, stock: Sequence[Value], model: Graph, graph: Graph, ops: tuple[BoundOp, ...], plan: Partitioning
) -> tuple[Program, tuple[str, ...]]:
    """Runs a plan in this process, and says where its outputs are not as they should be.

    They must be what the case expects, by its own tolerance; results that are no floating-point numbers must also be
    the stock runtime's, exactly.
    """
    partitioned = partition(graph, ops, plan)
    program = partitioned.program
    models = tuple(
        WorkerModel(worker, partitioned.bodies, fixed, "")
        for worker, fixed in zip(program.workers, partitioned.fixed, strict=True)
    )
    inputs = {name: np.asarray(case.inputs[name]) for name in model.inputs if name in case.inputs}
    try:
        results = run_with(LoadedPlan(model, program, models), RunOptions(inputs=inputs)).results
    except TofuError as error:
        return program, (str(error),)
    outputs = [results[value.name] for value in case.model.graph.output]
    faults = list(differences(case, outputs))
    for value, output, stock_output in zip(case.model.graph.output, outputs, stock, strict=True):
        if output.dtype.kind in "iub" and not np.array_equal(output, np.asarray(stock_output)):
            faults.append(f"output {value.name!r}: is not the stock runtime's")
    return program, tuple(faults)


def _is_known(graph: Graph, op: Op) -> bool:
    """True if the op only hands on what is known when the graph is planned."""
    return op.op_type == "Identity" and all(name in graph.constants for name in op.inputs)


def _is_cut(graph: Graph, ops: Sequence[BoundOp], plan: Partitioning, program: Program) -> bool:
    """True if an op that computes is split, and more than one worker computes."""
    busy = sum(any(isinstance(step, Segment) for step in worker.steps) for worker in program.workers)
    split = any(
        isinstance(placement, Shard)
        for op in ops
        if not _is_known(graph, op.op)
        for placement in plan.strategies[op.op.name].tiling.placements
    )
    return split and busy > 1


def _why_not_cut(graph: Graph, ops: Sequence[BoundOp]) -> str:
    """In words: what keeps the ops that compute from being split."""
    reasons: dict[str, None] = {}
    for op in ops:
        if _is_known(graph, op.op):
            continue
        long = [variable for variable, extent in zip(op.variables, op.extents, strict=True) if extent >= WORKERS]
        vetoes = [candidate.veto for candidate in enumerate_strategies(op, WORKERS) if candidate.veto]
        obstacles = [variable.obstacle for variable in long if variable.obstacle]
        if not long:
            reasons["every index variable has too few values to be split"] = None
        for reason in (*obstacles, *vetoes):
            reasons[f"{op.op.op_type}: {reason}"] = None
    return "; ".join(reasons) or "its results are known when it is planned"


def _refusal(case: OnnxCase, error: TofuError, descriptions: Descriptions) -> Refusal | None:
    """The reason on the list, seen from the model; None if there is none."""
    nodes = case.model.graph.node
    kinds = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
    op_types = {op_type for _, op_type in case.op_types}
    if isinstance(error, InfeasibleError):
        return Refusal.ONE_ELEMENT
    if all(isinstance(value, np.ndarray) and not value.size for value in case.expected):
        return Refusal.NO_ELEMENTS
    if any(attribute.type in kinds for node in nodes for attribute in node.attribute):
        return Refusal.CONTROL_FLOW
    if not case.has_only_tensors or any(op_type.startswith(("Sequence", "Optional", "String")) for op_type in op_types):
        return Refusal.NO_TENSOR
    if any(domain not in ("", "ai.onnx") and (domain, kind) not in descriptions for domain, kind in case.op_types):
        return Refusal.OTHER_DOMAIN
    if op_types & DATA_DEPENDENT:
        return Refusal.DATA_SHAPE
    return None


def print_conformance(result: Conformance, file: TextIO) -> None:
    """Prints how many of ONNX's own cases pass, and why the others do not."""
    console = ReportConsole(file)
    console.print_facts(
        [
            ("cases of the onnx package", f"{len(result.outcomes):,}"),
            ("the stock runtime passes", f"{len(result.with_stock(Stock.PASSES)):,}"),
            (f"of these, as expected on {result.workers} workers", f"{len(result.passed):,}"),
            ("  and cut", f"{len(result.cut):,}"),
            ("  and not cut", f"{len(result.passed) - len(result.cut):,}"),
            ("  with inputs given as constants", f"{len(result.with_constants):,}"),
            ("other strategies, as expected", f"{result.strategies:,}"),
            ("  of them in steps", f"{result.in_steps:,}"),
            ("refused, for a reason below", str(sum(len(names) for names in result.refused().values()))),
            ("refused for another reason", str(len(result.failed))),
            ("differing", str(len(result.differing))),
        ],
    )
    refused = {reason.value: names for reason, names in result.refused().items() if names}
    for title, cases in (("refused because", refused), ("not cut because", result.not_cut())):
        if not cases:
            continue
        console.print()
        rows = [(reason, str(len(names)), names[0]) for reason, names in cases.items()]
        console.print_table((title, "cases", "e.g."), rows, ("cases",))
    for outcome in result.differing:
        console.print_line(f"differing: {outcome.name}: {'; '.join(outcome.differences)}")
    for outcome in result.failed:
        console.print_line(f"refused: {outcome.name}: {outcome.error}")


def main() -> int:
    """Tries the cases, and prints what became of them."""
    wanted = sys.argv[1:]
    cases = [case for case in onnx_cases() if not wanted or {kind for _, kind in case.op_types}.intersection(wanted)]
    result = conformance(opdefs.standard(), cases)
    print_conformance(result, sys.stdout)
    return 0 if result.is_right and cases else 1


if __name__ == "__main__":
    raise SystemExit(main())
