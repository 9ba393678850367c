"""What the commands do, for Python users: ``grad``, ``plan``, ``explain``, ``run``.

Every function takes paths and plain options, returns data and raises ``TofuError``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import opdefs
from planner.config import load_topology
from planner.errors import UsageError, did_you_mean
from planner.folder import (
    PlanFolder,
    newest_folder,
    open_folder,
    refuse_existing,
    write_folder,
)
from planner.graph.from_onnx import read_model
from planner.graph.model import Graph, Role
from planner.graph.to_onnx import to_model, write_model
from planner.partition.build import complete_plan, partition, plan_files
from planner.plan import digest
from planner.program import Fetch, Segment
from planner.report.results import Explanation, GradResult, OpRow, PlanResult, TensorRow
from planner.runtime.results import write_arrays
from planner.runtime.run import RunResult, StepReport, run_plan
from planner.search.decide import STRATEGIES, decide
from planner.tdl.bind import BoundOp
from planner.training.build import build_training_graph

Progress = Callable[[str], None]


def _silent(line: str) -> None:
    """Progress that nobody wants."""


def grad(
    model: Path,
    *,
    loss: str,
    optimizer: str,
    lr: float = 0.01,
    momentum: float = 0.9,
    batch: int | None = None,
    batchnorm: Literal["train", "frozen"] = "train",
    dim: Mapping[str, int] | None = None,
    output: Path,
    progress: Progress = _silent,
) -> GradResult:
    """Builds the training graph of a forward model and writes it.

    Args:
        model: an ONNX file.
        loss: name of the loss.
        optimizer: name of the optimizer.
        lr: learning rate; the default of the training graph's input.
        momentum: of the momentum optimizer.
        batch: another batch size than the file's.
        batchnorm: ``train`` (statistics of the batch) or ``frozen``.
        dim: sizes of symbolic dims.
        output: where to write.
        progress: told what is being done.

    Raises:
        TofuError: the model cannot be read or trained, or the output not written.
    """
    progress(f"reading {model}")
    forward = read_model(model, dims=dim or {})
    progress("building the training graph")
    graph = build_training_graph(
        forward,
        loss=loss,
        optimizer=optimizer,
        learning_rate=lr,
        momentum=momentum,
        batch=batch,
        batchnorm=batchnorm,
    )
    progress(f"writing {output}")
    output.parent.mkdir(parents=True, exist_ok=True)
    write_model(graph, output)
    roles = graph.roles
    return GradResult(
        output=output,
        loss=loss,
        optimizer=optimizer,
        inputs=tuple(name for name in graph.inputs if roles[name] is Role.DATA),
        results=tuple(name for name in graph.outputs if roles[name] is Role.RESULT),
        states=len(graph.state),
        state_elements=sum(graph.tensors[pair.current].elements for pair in graph.state),
        ops_by_type=dict(sorted(Counter(op.op_type for op in graph.ops).items())),
    )


def plan(
    model: Path,
    *,
    gpus: int | None = None,
    topology: str | None = None,
    dim: Mapping[str, int] | None = None,
    strategy: str = "tofu",
    pin: Mapping[str, str] | None = None,
    inputs: str = "free",
    out: Path | None = None,
    progress: Progress = _silent,
) -> PlanResult:
    """Plans a training graph, and writes the plan and one model for each worker.

    Args:
        model: an ONNX file.
        gpus: how many workers; may be left out with a topology.
        topology: a topology file, or the name of one that ships.
        dim: sizes of symbolic dims.
        strategy: one of ``planner.search.decide.STRATEGIES``.
        pin: by tensor, the tiling that it must have.
        inputs: ``free``: data arrives in any tiling; ``partitioned``: in disjoint tiles only.
        out: the folder to write; MODEL.tofuK in the working directory if None.
        progress: told what is being done.

    Raises:
        TofuError: the model cannot be read or planned, or the folder not written.
    """
    started = time.perf_counter()
    if strategy not in STRATEGIES:
        raise UsageError(f"strategy {strategy!r} is not known", hint=did_you_mean(strategy, STRATEGIES))
    workers = _worker_count(gpus, topology)
    directory = out if out is not None else Path(f"{model.stem}.tofu{workers}")
    refuse_existing(directory)
    progress(f"reading {model}")
    graph = read_model(model, dims=dim or {})
    content = to_model(graph).SerializeToString(deterministic=True)
    progress(f"analysing {len(graph.ops)} ops")
    ops = opdefs.standard().bind_all(graph)
    decision = decide(
        graph,
        ops,
        workers,
        strategy=strategy,
        pins=pin,
        partitioned_inputs=inputs == "partitioned",
        model_digest=digest(content),
        progress=progress,
    )
    progress("writing a program for each worker")
    partitioned = partition(graph, ops, decision.plan)
    complete = complete_plan(decision.plan, partitioned)
    write_folder(directory, plan_files(graph, content, complete, partitioned), partitioned.program)
    steps = [step for worker in partitioned.program.workers for step in worker.steps]
    return PlanResult(
        plan=complete,
        directory=directory,
        search_seconds=decision.search_seconds,
        total_seconds=time.perf_counter() - started,
        ops=len(graph.ops),
        fetches=sum(isinstance(step, Fetch) for step in steps),
        segments=sum(isinstance(step, Segment) for step in steps),
        functions=len(partitioned.bodies),
        state_bytes=sum(graph.tensors[pair.current].size_bytes for pair in graph.state),
    )


def explain(directory: Path | None = None, *, subject: str | None = None) -> Explanation:
    """What a plan does with every tensor and op, or with one of them.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        subject: a tensor or an op.

    Raises:
        TofuError: there is no plan, or nothing of that name in it.
    """
    folder = open_folder(directory if directory is not None else newest_folder(Path()))
    graph = read_model(folder.model)
    ops = opdefs.standard().bind_all(graph)
    tensors = tuple(_tensor_row(folder, graph, name) for name in graph.tensors if name in folder.plan.tilings)
    op_rows = tuple(_op_row(folder, bound) for bound in ops)
    if subject is not None:
        known = [row.name for row in tensors] + [row.name for row in op_rows]
        if subject not in known:
            raise UsageError(f"no tensor or op of the plan is called {subject!r}", hint=did_you_mean(subject, known))
        op_rows = tuple(
            row for row in op_rows if subject == row.name or subject in row.inputs or subject in row.outputs
        )
        touched = {subject, *(name for row in op_rows if row.name == subject for name in (*row.inputs, *row.outputs))}
        tensors = tuple(row for row in tensors if row.name in touched)
    return Explanation(folder.plan, folder.path, tensors, op_rows, subject)


def run(
    directory: Path | None = None,
    *,
    inputs: Path | None = None,
    steps: int = 1,
    verify: bool = False,
    result: Path | None = None,
    seed: int = 0,
    progress: Progress = _silent,
) -> RunResult:
    """Runs a plan.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        inputs: arrays for the inputs (npz).
        steps: how many iterations.
        verify: judge every step against the unpartitioned model.
        result: where to write outputs and next state (npz).
        seed: of all that is drawn.
        progress: told what is being done.

    Raises:
        TofuError: the plan or the inputs cannot be used, or a worker failed.
    """
    where = directory if directory is not None else newest_folder(Path())
    if result is not None and not result.parent.is_dir():
        raise UsageError(f"{result} cannot be written: there is no folder {result.parent}")
    outcome = run_plan(
        where, inputs=inputs, steps=steps, verify=verify, seed=seed, progress=lambda report: progress(_line(report))
    )
    if result is not None:
        write_arrays(result, outcome.results)
    return outcome


def _line(report: StepReport) -> str:
    loss = "" if report.loss is None else f", loss {report.loss:.6f}"
    return f"step {report.step} of {report.steps}{loss}"


def _worker_count(gpus: int | None, topology: str | None) -> int:
    if topology is None:
        if gpus is None:
            raise UsageError("for how many GPUs?", hint="give gpus, or a topology")
        return gpus
    devices = load_topology(topology).device_count
    if gpus is not None and gpus != devices:
        raise UsageError(f"topology {topology} has {devices} devices, and {gpus} GPUs are asked for")
    return devices


def _tensor_row(folder: PlanFolder, graph: Graph, name: str) -> TensorRow:
    tensor = graph.tensors[name]
    tiling = folder.plan.tilings[name]
    largest = max(tiling.boxes(tensor.shape), key=lambda region: region.elements)
    maker = graph.producer.get(name)
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
    )


def _op_row(folder: PlanFolder, bound: BoundOp) -> OpRow:
    return OpRow(
        name=bound.op.name,
        op_type=bound.op.op_type,
        strategy=str(folder.plan.strategies[bound.op.name]),
        variables=tuple(
            f"{variable.name}={extent}" for variable, extent in zip(bound.variables, bound.extents, strict=True)
        ),
        inputs=tuple(name for name in bound.op.inputs if name),
        outputs=tuple(name for name in bound.op.outputs if name),
    )
