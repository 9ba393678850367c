"""The partitioned program of a plan, and the files that hold both.

The plan of ``planner.search.decide``'s example, on its first worker. It computes its half of the terms of all of
``h``, reduces the rows that it owns from both workers, and goes on with these. Of the 16 elements that it reduces, 64
bytes come from the other worker:

    >>> import onnx.parser
    >>> from planner import opdefs
    >>> from planner.graph.reading.from_onnx import graph_from_proto
    >>> from planner.search.decide import decide
    >>> from planner.search.request import SearchRequest
    >>> from planner.search.user_rules.rules import Rules
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ... half (float[8,6] x, float[6,4] w) => (float[8,4] y) { h = MatMul(x, w)  y = Relu(h) }''')
    >>> graph = graph_from_proto(model, operators=opdefs.standard())
    >>> ops = opdefs.standard().bind_all(graph)
    >>> rules = Rules(pins={"x": "S(1)", "w": "S(0)", "y": "S(0)"})
    >>> program = partition(graph, ops, decide(graph, ops, SearchRequest(2, rules=rules))).program
    >>> worker = program.workers[0]
    >>> {name: str(buffer.region) for name, buffer in worker.buffers.items()}
    {'x': '[0:8, 0:3]', 'w': '[0:3, 0:4]', 'h@made': '[0:8, 0:4]', 'h': '[0:4, 0:4]', 'y': '[0:4, 0:4]'}
    >>> product, reduction, relu = worker.steps
    >>> product.inputs, product.outputs, product.ops
    (('x', 'w'), ('h@made',), ('MatMul.h',))
    >>> reduction.target, reduction.reducer.value, reduction.predicted_bytes
    ('h', 'Sum', 64)
    >>> (piece,) = reduction.pieces
    >>> str(piece.region), [(source.worker, source.buffer) for source in piece.sources]
    ('[0:4, 0:4]', [(0, 'h@made'), (1, 'h@made')])
    >>> worker.loaded, worker.collected, program.predicted_bytes
    (('x', 'w'), ('y',), 128)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from onnx import FunctionProto

from planner.artifacts.place import PLAN
from planner.artifacts.plan import Partitioning, Plan
from planner.artifacts.plan_folder import MODEL, worker_file
from planner.artifacts.program import Fetch, Program, Segment
from planner.artifacts.worker_model import WorkerModels
from planner.graph.core.model import Graph
from planner.partition.alike import kinds_of
from planner.partition.alive import without_dead_work
from planner.partition.breaks import broken
from planner.partition.lower import Lowering
from planner.partition.memory import Need, needs, with_arenas
from planner.partition.segments import Partitioned, assemble
from planner.partition.workspace import workspace_bytes
from planner.progress import Progress, tell_count
from planner.spent import part
from planner.tdl.bind import BoundOp

if TYPE_CHECKING:
    from planner.search.decision import Decision


@dataclass(frozen=True)
class Unplaced:
    """The program of a plan, before its buffers have places."""

    partitioned: Partitioned
    needs: tuple[Need, ...]
    """What each worker's arena has to hold."""

    @property
    def least_peaks(self) -> tuple[int, ...]:
        """Bytes that each worker takes at least, wherever its buffers lie."""
        return tuple(need.least_bytes for need in self.needs)

    @part("programs")
    def placed(self, enough_bytes: int = 0, limit_bytes: int = 0) -> Partitioned:
        """The program with an offset for every buffer.

        Args:
            enough_bytes: a worker that takes no more need not take less.
            limit_bytes: for one that takes more and need not, more work is done.
        """
        return replace(
            self.partitioned, program=with_arenas(self.partitioned.program, self.needs, enough_bytes, limit_bytes)
        )


def partition(graph: Graph, ops: tuple[BoundOp, ...], decided: Partitioning) -> Partitioned:
    """The program of a plan; what it moves is what the plan's tables say, tensor by tensor."""
    return unplaced(graph, ops, decided).placed()


@part("programs")
def unplaced(
    graph: Graph,
    ops: tuple[BoundOp, ...],
    decided: Partitioning,
    apart: Sequence[Sequence[float]] = (),
    *,
    lean: bool = False,
) -> Unplaced:
    """The program of a plan (``partition``), whose buffers have no places yet.

    Args:
        graph: that was planned.
        ops: of the graph.
        decided: the plan.
        apart: how far workers are from each other, [reader][source]: who needs what several have takes it from the
            nearest; () if only the cuts tell, inner ones being nearer.
        lean: every result of an op has a place in the arena, also where only ops of the same segment read it, so that
            next to nothing lies beside the arena; a runtime can then fuse less.
    """
    lowered = Lowering(graph, decided, apart).run(ops)
    kinds = kinds_of(graph, lowered)
    lowered = without_dead_work(lowered, kinds)
    partitioned = assemble(graph, broken(graph, lowered, kinds, lean=lean), kinds, lean=lean)
    program, bodies = partitioned.program, partitioned.bodies
    moved: dict[str, int] = dict.fromkeys(decided.tensor_bytes, 0)
    for worker in program.workers:
        for step in worker.steps:
            if isinstance(step, Fetch):
                moved[worker.buffers[step.target].tensor] += step.predicted_bytes
    differing = [name for name, amount in decided.tensor_bytes.items() if moved[name] != amount]
    assert not differing, f"the program moves {moved[differing[0]]} bytes of {differing[0]}, the plan says otherwise"
    return Unplaced(partitioned, needs(program, bodies, _workspaces(program, bodies)))


def _workspaces(program: Program, bodies: Mapping[str, FunctionProto]) -> dict[str, int]:
    """Bytes of the tensors inside of each function."""
    inside_bytes: dict[str, int] = {}
    for worker in program.workers:
        for step in worker.steps:
            if isinstance(step, Segment) and step.function not in inside_bytes:
                inputs, outputs = (
                    [(worker.buffers[name].shape, worker.buffers[name].dtype) for name in names]
                    for names in (step.inputs, step.outputs)
                )
                inside_bytes[step.function] = workspace_bytes(bodies[step.function], inputs, outputs)
    return inside_bytes


def told_by_program(program: Program) -> dict[str, Any]:
    """The facts of a plan that its program states, by field of the plan."""
    return {"peak_bytes": program.peak_bytes, "soybean_bytes": program.soybean_bytes}


def complete_plan(decided: Decision, model: str, model_digest: str, **overrides: Any) -> Plan:
    """The plan of what was decided.

    Args:
        decided: what was decided.
        model: the model's name.
        model_digest: the sha256 of its file.
        overrides: fields of the plan that say something else than is decided, or that have a default.
    """
    members = {member.name: getattr(decided, member.name) for member in fields(Partitioning)}
    bound = {"certified_gap": decided.certified_gap, "gap_of": decided.gap_of}
    return Plan(**{**members, **bound, "model": model, "model_digest": model_digest, **overrides})


def plan_files(model: bytes, plan: bytes) -> tuple[tuple[str, bytes], ...]:
    """Names and contents of the files of a plan's folder, without the manifest and the workers' models."""
    return (PLAN, plan), (MODEL, model)


def worker_files(
    opset: int, plan_digest: str, partitioned: Partitioned, progress: Progress
) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the workers' models, one made after the other.

    Args:
        opset: version of the default operator domain of the model that was planned.
        plan_digest: digest of the plan's file.
        partitioned: the plan's program.
        progress: told which is made.
    """
    models = WorkerModels(partitioned.bodies, opset=opset, plan_digest=plan_digest)
    workers = partitioned.program.workers
    for program, fixed in zip(workers, partitioned.fixed, strict=True):
        tell_count(progress, "writing worker", program.worker + 1, len(workers))
        worker = models.write(program, fixed)
        yield worker_file(program.worker), worker.SerializeToString(deterministic=True)
