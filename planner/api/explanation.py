"""``tofu explain``: a plan's tensors and ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from planner.api.arguments import checked, takes
from planner.api.opened import Opened, opened
from planner.api.selection import Selection
from planner.artifacts.plan_folder import PlanFolder
from planner.cost.distance import distances
from planner.cost.seconds.estimate import synchronised
from planner.cost.tables import CostTables
from planner.errors import UsageError
from planner.graph.compare.modules import modules
from planner.graph.core.model import Graph, qualified
from planner.graph.core.notes import evidence_of
from planner.graph.decompositions import expand
from planner.graph.rewriting.canonical import Canonical
from planner.graph.rewriting.recomputation import recomputable
from planner.graph.step.purposes import Purpose, purposes
from planner.options.plans import HELD, ExplainOptions
from planner.planning.limit.op_memory import op_memory
from planner.planning.owners import planned_apart
from planner.planning.why.answers import Answers
from planner.planning.why.causes import causes, kept_whole
from planner.reasons import Cause, Why
from planner.results import Explanation, InPlaceRow, OpRow, StateRow, TensorKind, TensorRow
from planner.search.user_rules.rules import is_pattern
from planner.tdl.bind import BoundOp


@takes(ExplainOptions)
def explain(options: ExplainOptions) -> Explanation:  # noqa: D417 - those are the fields of the options
    """The tilings, strategies and deliveries of a plan's tensors and ops, or of some of them, with reasons.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        subject: a tensor or an op; of a product or convolution, also the least that it can move. Or a pattern for
            several of them: ``*`` stands for any text, ``?`` for a character, ``[ab]`` for one of these. Or a type of
            ops, where no tensor or op is called so.
        bounds: how far all products and convolutions are from the least that they can move, or the one that is asked
            for.
        role: only tensors of this role: ``state``, ``next-state``, ``data``, ``result``, ``activation``; ``held``: the
            activations that are held for the backward pass, which ``recompute`` of ``plan`` may name.
        op: only ops whose type is this, or matches this pattern.
        sort: by what tensors are sorted, and ops where that tells them apart; None: as they are in the graph.
        every: all tensors and ops are asked for, not what one wants to know of them.
        runners_up: of one tensor or op, how many other choices are solved for.

    Raises:
        TofuError: there is no plan, or nothing of that name in it.

    Example:
        ::

            for row in planner.explain("plan").tensors:
                print(row.name, row.tiling, row.moved_bytes)
    """
    subject, bounds = options.subject, options.bounds
    plan = opened(options.directory, with_descriptions=False)
    folder = plan.folder
    tensors = tuple(_tensor_rows(plan))
    op_rows = tuple(_op_rows(folder, plan.form.graph, plan.ops))
    in_place = tuple(_in_place_rows(plan.model, plan.form))
    state = _state_rows(plan.model)
    chosen = Selection(tensors, op_rows, in_place, state)
    # A name of the model may look like a pattern (``conv[1]``) or a type: if the plan has the name, the name is meant.
    is_several = subject is not None and (is_pattern(subject) or any(row.op_type == subject for row in op_rows))
    is_one = subject is not None and (chosen.has(subject) or not is_several)
    if subject is not None and is_one:
        subject, chosen = chosen.about(subject)
    elif subject is not None:
        chosen = chosen.matching(subject)
    held = recomputable(plan.form.graph) if options.role == HELD else ()
    chosen = chosen.of_role(options.role, held).of_type(options.op).sorted_by(options.sort)
    shown = {row.name for row in chosen.ops if bounds or (is_one and row.name == subject)}
    wanted = [op for op in plan.ops if op.op.name in shown]
    tables = CostTables()
    gaps = tuple(distances(plan.graph, wanted, folder.plan.strategies, folder.plan.tilings, tables))
    memory = tuple(
        op_memory(plan.graph, op, folder.plan.strategies[op.op.name], folder.plan.tilings, tables)
        for op in wanted
        if is_one and op.op.name == subject and gaps
    )
    is_brief = not bounds and not options.every and (subject, options.role, options.op) == (None, None, None)
    if is_one and not bounds:
        plan.require_descriptions()
    why, answers = None, None
    if not bounds and (is_brief or is_one) and plan.lacking is None:
        answers = answers_of(plan)
        why = _why(plan, answers, subject, options.runners_up) if subject is not None else None
    is_short = is_brief and answers is not None
    return Explanation(
        folder.plan,
        folder.path,
        chosen.tensors,
        chosen.ops,
        subject if is_one else None,
        chosen.state,
        chosen.in_place,
        gaps,
        bounds,
        memory=memory,
        is_brief=is_brief,
        causes=causes(answers.deliveries) if is_short and answers is not None else (),
        kept=kept_whole(answers.deliveries) if is_short and answers is not None else (),
        apart=_apart(plan) if is_short else (),
        why=why,
    )


@checked
def why(directory: Path | None, subject: str, *, runners_up: int = 3) -> Why:
    """The reason for one tensor's tiling or one op's strategy.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        subject: the name of a tensor or an op.
        runners_up: how many other choices are solved for.

    Raises:
        TofuError: there is no plan, nothing of that name in it, or nothing that the plan decides.

    Example:
        ::

            for other in planner.why("plan", "fc.weight").runners_up:
                print(other.pin, other.more_share)
    """
    plan = opened(directory)
    answer = _why(plan, answers_of(plan), subject, runners_up)
    if answer is None:
        explained = explain(directory, subject=subject)  # refuses what is not there
        held = [row.held_by for row in explained.in_place if row.name == subject]
        where = f"{held[0]!r} is read in its place" if held else "it is planned through its body"
        raise UsageError(f"the plan decides nothing of {subject!r}: {where}")
    return answer


def answers_of(plan: Opened) -> Answers:
    """Answers to why of a plan, of one tensor or op after the other.

    Args:
        plan: opened, with the user's descriptions if it was made with some.
    """
    rates = plan.folder.plan.rates
    return Answers(plan.decided, plan.folder.plan.asked, plan.form.graph.tensors, CostTables(rates))


def _why(plan: Opened, answers: Answers, subject: str, runners_up: int) -> Why | None:
    """The answer; None of what the plan decides nothing of."""
    if subject in plan.folder.plan.tilings:
        return answers.why("tensor", subject, runners_up)
    if any(op.op.name == subject for op in plan.ops):
        return answers.why("op", subject, runners_up)
    return None


def _apart(plan: Opened) -> tuple[Cause, ...]:
    """Equal ops beside each other that have no owners."""
    return planned_apart(plan.form, plan.decided, plan.folder.plan)


def _in_place_rows(model: Graph, form: Canonical) -> Iterator[InPlaceRow]:
    """A row for every tensor of the model that its canonical form has no more."""
    op_names = {op.name for op in form.graph.ops}

    def readers(name: str) -> Iterator[str]:
        for op in model.consumers[name]:
            if op.name in op_names:
                yield op.name
            else:
                for output in filter(None, op.outputs):
                    yield from readers(output)

    for name, held_by in form.in_place.items():
        if name in model.producer:
            maker = model.producer[name].name
            makers = (maker,) if maker in op_names else ()
            read_by = tuple(dict.fromkeys((*makers, *readers(name))))
            yield InPlaceRow(name, model.tensors[name].shape, held_by, maker, read_by)
    for name, part in ((name, part) for name, parts in form.in_parts.items() for part in parts):
        if name in model.tensors:
            held_by, source = form.in_place.get(part, part), model.producer.get(name)
            ops = (form.graph.producer.get(held_by), *form.graph.consumers.get(held_by, ()))
            read_by = tuple(op.name for op in ops if op is not None)
            yield InPlaceRow(name, model.tensors[name].shape, held_by, "" if source is None else source.name, read_by)


def _tensor_rows(plan: Opened) -> Iterator[TensorRow]:
    """A row for every tensor that has a tiling, in the order of the graph."""
    graph, folder = plan.graph, plan.folder.plan
    module_of, kind_of = modules(graph), _kinds(plan)
    delivered = {delivery.name: delivery.tensor for delivery in folder.deliveries}
    for name, tensor in graph.tensors.items():
        tiling = folder.tilings.get(name)
        if tiling is None:
            continue
        largest = max(tiling.boxes(tensor.shape), key=lambda region: region.elements)
        maker = graph.producer.get(name)
        yield TensorRow(
            name=name,
            shape=tensor.shape,
            dtype=tensor.dtype.value,
            role=graph.roles[name],
            tiling=str(tiling),
            tile_shape=largest.shape if tensor.shape else (),
            moved_bytes=folder.tensor_bytes[name],
            made_by=maker.name if maker is not None else "",
            read_by=tuple(op.name for op in graph.consumers[name]),
            delivers=delivered.get(name, ""),
            module=module_of[name],
            kind=kind_of[delivered.get(name, name)],
        )


_KINDS: Mapping[Purpose, TensorKind] = {
    Purpose.DATA: "data",
    Purpose.PARAMETERS: "weights",
    Purpose.CONSTANTS: "weights",
    Purpose.GRADIENTS: "gradients",
    Purpose.OPTIMIZER_STATE: "state",
    Purpose.CARRIED_STATE: "state",
}


def _kinds(plan: Opened) -> dict[str, TensorKind]:
    updating = synchronised(plan.graph, plan.ops)
    kinds: dict[str, TensorKind] = {
        name: "state" if purpose is Purpose.GRADIENTS and name in updating else _KINDS.get(purpose, "activations")
        for name, purpose in purposes(plan.graph).items()
    }
    return kinds | {pair.following: kinds[pair.current] for pair in plan.graph.state}


def _state_rows(model: Graph) -> tuple[StateRow, ...]:
    evidence = evidence_of(model.notes)
    stated = (("stated",), "the model says so, or --state did")
    return tuple(StateRow(pair.current, pair.following, *evidence.get(pair.following, stated)) for pair in model.state)


def _op_rows(folder: PlanFolder, model: Graph, ops: Sequence[BoundOp]) -> Iterator[OpRow]:
    """A row for every op of the planned form; one that was planned through its body stands before the ops of that."""
    unplanned = frozenset(op.name for op in model.ops if op.name not in folder.plan.strategies)
    composites = expand(model, unplanned, workers=folder.plan.workers).bodies
    owner = {op.name: body.op for body in composites for op in body.ops}
    shown = set()
    for op in ops:
        composite = owner.get(op.op.name)
        if composite is not None and composite.name not in shown:
            shown.add(composite.name)
            inputs, outputs = tuple(filter(None, composite.inputs)), tuple(filter(None, composite.outputs))
            yield OpRow(composite.name, composite.op_type, "through its body", (), inputs, outputs)
        yield _op_row(folder, op)


def _op_row(folder: PlanFolder, op: BoundOp) -> OpRow:
    strategy = folder.plan.strategies[op.op.name]
    extents = tuple(f"{variable.name}={extent}" for variable, extent in zip(op.variables, op.extents, strict=True))
    return OpRow(
        name=op.op.name,
        op_type=qualified(op.op.domain, op.op.op_type),
        strategy=str(strategy),
        variables=extents or strategy.variables,
        inputs=tuple(name for name in op.op.inputs if name),
        outputs=tuple(name for name in op.op.outputs if name),
    )
