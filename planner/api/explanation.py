"""``tofu explain``: a plan's tensors and ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from planner.artifacts.plan import DescriptionFile
from planner.artifacts.plan_folder import (
    PlanFolder,
    newest_folder,
    open_folder,
)
from planner.cost.distance import distances
from planner.cost.tables import CostTables
from planner.descriptions import in_force
from planner.errors import ModelError, UsageError, did_you_mean
from planner.graph.bodies import expand, planned_graph
from planner.graph.deliveries import with_deliveries
from planner.graph.model import Graph
from planner.graph.notes import evidence_of
from planner.graph.reading.foreign import EVERY_OPERATOR
from planner.graph.reading.from_onnx import read_model
from planner.graph.reading.undescribed import qualified
from planner.graph.rewriting.canonical import Canonical, canonical
from planner.planning.op_memory import op_memory
from planner.results import (
    Explanation,
    InPlaceRow,
    OpRow,
    StateRow,
    TensorRow,
)
from planner.tdl.bind import BoundOp


def explain(
    directory: Path | None = None, *, subject: str | None = None, bounds: bool = False, opdefs: Path | None = None
) -> Explanation:
    """What a plan does with every tensor and op, or with one of them.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        subject: a tensor or an op; of a product or convolution, also the least that it can move.
        bounds: how far all products and convolutions are from the least that they can move, or the one that is asked
            for.
        opdefs: the file of descriptions that the plan was made with; without it, the extents of index variables of the
            user's own operators are not told.

    Raises:
        TofuError: there is no plan, or nothing of that name in it.
    """
    folder = open_folder(directory if directory is not None else newest_folder(Path()))
    model = read_model(folder.model, operators=EVERY_OPERATOR)
    form = _form(folder, model)
    planned = planned_graph(form.graph, folder.plan.strategies)
    _check_deliveries(folder, planned)
    graph = with_deliveries(planned, folder.plan.deliveries)
    descriptions, source = in_force(opdefs, "replicate")
    if source is not None and source != folder.plan.described_by:
        _refuse_other_descriptions(folder, source)
    _check_tensors(folder, graph)
    ops = descriptions.bind_all(graph)
    tensors = tuple(_tensor_row(folder, graph, name) for name in graph.tensors if name in folder.plan.tilings)
    op_rows = tuple(_op_rows(folder, form.graph, ops))
    in_place = tuple(_in_place_rows(model, form))
    state = _state_rows(model)
    if subject is not None:
        names: tuple[TensorRow | OpRow | InPlaceRow, ...] = (*tensors, *op_rows, *in_place)
        known = [row.name for row in names]
        if subject not in known:  # an op that is there no more is told by what it made
            subject = next((row.name for row in in_place if row.made_by == subject), subject)
        if subject not in known:
            raise UsageError(f"no tensor or op of the plan is called {subject!r}", hint=did_you_mean(subject, known))
        in_place = tuple(row for row in in_place if subject in (row.name, row.held_by))
        held_by = {row.held_by for row in in_place if subject == row.name}
        reading = {subject, *(name for row in in_place if subject == row.name for name in row.read_by)}
        op_rows = tuple(
            row for row in op_rows if row.name in reading or subject in row.inputs or subject in row.outputs
        )
        touched = {
            subject,
            *held_by,
            *(name for row in op_rows if row.name == subject for name in (*row.inputs, *row.outputs)),
        }
        tensors = tuple(row for row in tensors if row.name in touched)
        state = tuple(row for row in state if not touched.isdisjoint((row.current, row.following)))
    shown = {row.name for row in op_rows if bounds or row.name == subject}
    wanted = [bound for bound in ops if bound.op.name in shown]
    tables = CostTables()
    found = tuple(distances(graph, wanted, folder.plan.strategies, folder.plan.tilings, tables))
    memory = tuple(
        op_memory(graph, bound, folder.plan.strategies[bound.op.name], folder.plan.tilings, tables)
        for bound in wanted
        if bound.op.name == subject and found
    )
    return Explanation(folder.plan, folder.path, tensors, op_rows, subject, state, in_place, found, bounds, memory)


def _form(folder: PlanFolder, model: Graph) -> Canonical:
    """The form of the model that was planned."""
    stated = folder.plan.in_place
    if stated is None:
        return Canonical(model, {})
    form = canonical(model, folder.plan.kept)
    differing = sorted(stated.items() ^ form.in_place.items())
    _refuse_misfits(
        folder, [f"tensor {name!r} is not read in place as {held!r} everywhere" for name, held in differing]
    )
    return form


def _in_place_rows(model: Graph, form: Canonical) -> Iterator[InPlaceRow]:
    """A row for every tensor of the model that its canonical form has no more."""
    there = {op.name for op in form.graph.ops}

    def readers(name: str) -> Iterator[str]:
        for op in model.consumers[name]:
            if op.name in there:
                yield op.name
            else:
                for output in filter(None, op.outputs):
                    yield from readers(output)

    for name, held_by in form.in_place.items():
        maker = model.producer[name].name
        made = (maker,) if maker in there else ()
        read_by = tuple(dict.fromkeys((*made, *readers(name))))
        yield InPlaceRow(name, model.tensors[name].shape, held_by, maker, read_by)


def _check_deliveries(folder: PlanFolder, graph: Graph) -> None:
    """Refuses deliveries of tensors that there are not, or that nobody reads."""
    of: dict[str, str] = {}
    facts = []
    inputs = {op.name: op.inputs for op in graph.ops}
    for one in folder.plan.deliveries:
        of[one.name] = of.get(one.tensor, one.tensor)
        is_new = one.name not in graph.tensors and one.name not in inputs
        reads = [reader for reader in one.readers if of[one.name] in inputs.get(reader, ())]
        chained = [other for other in folder.plan.deliveries if other.tensor == one.name]
        if of[one.name] not in graph.tensors or not is_new or not (reads or chained):
            facts.append(f"delivery {one.name!r} of {one.tensor!r} is read by {', '.join(one.readers) or 'nobody'}")
    _refuse_misfits(folder, facts)


def _check_tensors(folder: PlanFolder, graph: Graph) -> None:
    """Refuses a plan of another model than the one beside it."""
    plan = folder.plan
    facts = [f"op {op.name!r} has no strategy" for op in graph.ops if op.name not in plan.strategies]
    for name, tensor in graph.tensors.items():
        tiling = plan.tilings.get(name)
        if tiling is not None and name not in plan.tensor_bytes:
            facts.append(f"tensor {name!r} has no bytes")
        if tiling is not None and any(dim >= max(1, len(tensor.shape)) for dim in tiling.dims):
            facts.append(f"tensor {name!r} of shape {list(tensor.shape)} cannot be tiled {tiling}")
    _refuse_misfits(folder, facts)


def _refuse_misfits(folder: PlanFolder, facts: Sequence[str]) -> None:
    if facts:
        raise ModelError(
            f"{folder.path}: the plan does not fit its model", facts=tuple(facts), hint="plan the model again"
        )


def _refuse_other_descriptions(folder: PlanFolder, given: DescriptionFile) -> None:
    made_with = folder.plan.described_by
    if made_with is None:
        raise UsageError(f"--opdefs: the plan in {folder.path} was made without descriptions of your own")
    raise UsageError(
        f"--opdefs: the plan in {folder.path} was made with other descriptions",
        facts=(
            f"plan: {made_with.name}, sha256 {made_with.sha256}",
            f"given: {given.name}, sha256 {given.sha256}",
        ),
        hint="give the file that the plan was made with, or plan the model again",
    )


def _tensor_row(folder: PlanFolder, graph: Graph, name: str) -> TensorRow:
    tensor = graph.tensors[name]
    tiling = folder.plan.tilings[name]
    largest = max(tiling.boxes(tensor.shape), key=lambda region: region.elements)
    maker = graph.producer.get(name)
    delivered = {one.name: one.tensor for one in folder.plan.deliveries}
    return TensorRow(
        name=name,
        shape=tensor.shape,
        dtype=tensor.dtype.value,
        role=graph.roles[name],
        tiling=str(tiling),
        tile_shape=largest.shape if tensor.shape else (),
        moved_bytes=folder.plan.tensor_bytes[name],
        made_by=maker.name if maker is not None else "",
        read_by=tuple(op.name for op in graph.consumers[name]),
        delivers=delivered.get(name, ""),
    )


def _state_rows(model: Graph) -> tuple[StateRow, ...]:
    evidence = evidence_of(model.notes)
    stated = (("stated",), "the model says so, or --state did")
    return tuple(StateRow(pair.current, pair.following, *evidence.get(pair.following, stated)) for pair in model.state)


def _op_rows(folder: PlanFolder, model: Graph, ops: Sequence[BoundOp]) -> Iterator[OpRow]:
    """A row for every op of the planned form; one that was planned through its body stands before the ops of that."""
    composites = expand(model, frozenset(op.name for op in model.ops if op.name not in folder.plan.strategies)).bodies
    owner = {op.name: body.op for body in composites for op in body.ops}
    shown = set()
    for bound in ops:
        composite = owner.get(bound.op.name)
        if composite is not None and composite.name not in shown:
            shown.add(composite.name)
            inputs, outputs = tuple(filter(None, composite.inputs)), tuple(filter(None, composite.outputs))
            yield OpRow(composite.name, composite.op_type, "through its body", (), inputs, outputs)
        yield _op_row(folder, bound)


def _op_row(folder: PlanFolder, bound: BoundOp) -> OpRow:
    strategy = folder.plan.strategies[bound.op.name]
    extents = tuple(
        f"{variable.name}={extent}" for variable, extent in zip(bound.variables, bound.extents, strict=True)
    )
    return OpRow(
        name=bound.op.name,
        op_type=qualified(bound.op.domain, bound.op.op_type),
        strategy=str(strategy),
        variables=extents or strategy.variables,
        inputs=tuple(name for name in bound.op.inputs if name),
        outputs=tuple(name for name in bound.op.outputs if name),
    )
