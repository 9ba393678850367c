"""What the commands do, for Python users: ``grad``, ``plan``, ``explain``, ``run``.

Every function takes paths and plain options, returns data and raises ``TofuError``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from onnx import ModelProto

import opdefs
from planner.config import Topology, load_topology
from planner.errors import InfeasibleError, TofuError, UsageError, did_you_mean
from planner.folder import (
    PlanFolder,
    newest_folder,
    open_folder,
    refuse_existing,
    write_folder,
)
from planner.graph.bodies import expand, planned_graph
from planner.graph.from_onnx import read_model
from planner.graph.model import Graph, Role
from planner.graph.randomness import lower_randomness
from planner.graph.to_onnx import to_model, write_model
from planner.partition.build import complete_plan, partition, plan_files
from planner.partition.collectives import collectives, counted
from planner.partition.sharding import with_annotations
from planner.plan import digest
from planner.program import Fetch, Segment
from planner.report.results import (
    Comparison,
    ComparisonRow,
    Explanation,
    GradResult,
    OpRow,
    PlanResult,
    TensorRow,
    ZooResult,
    ZooRow,
)
from planner.runtime.results import write_arrays, write_bytes
from planner.runtime.run import RunOptions, RunResult, StepReport, run_with
from planner.runtime.schedule import parse_schedule
from planner.search.composites import decide_with_bodies
from planner.search.decide import STRATEGIES
from planner.search.methods import METHODS
from planner.tdl.bind import BoundOp
from planner.training.doors.make import Wishes, make, make_training_info
from planner.training.doors.pairs import read_pairs
from planner.training.doors.read import read_step
from planner.training.losses import LossOptions
from planner.training.optimizers import Hyper
from planner.training.precision import Precision
from planner.training.updates import Schedule
from planner.units import ByteUnit, format_bytes
from planner.zoo import FAMILIES, build, trained

Progress = Callable[[str], None]


def _silent(line: str) -> None:
    """Progress that nobody wants."""


def grad(
    model: Path,
    *,
    loss: str | None = None,
    optimizer: str | None = None,
    lr: float = 0.01,
    momentum: float | None = None,
    betas: tuple[float, float] | None = None,
    epsilon: float | None = None,
    decay_factor: float = 0.0,
    weight_decay: float | None = None,
    no_decay: Sequence[str] = (),
    no_decay_vectors: bool = False,
    clip_norm: float | None = None,
    accumulate: int = 1,
    loss_scale: float | Literal["dynamic"] | None = None,
    class_weights: Sequence[float] | None = None,
    ignore_index: int | None = None,
    loss_input: str | None = None,
    precision: Precision = "float32",
    gradients: Path | None = None,
    form: Literal["onnx", "training-info"] = "onnx",
    batch: int | None = None,
    batchnorm: Literal["train", "frozen"] = "train",
    dim: Mapping[str, int] | None = None,
    output: Path,
    progress: Progress = _silent,
) -> GradResult:
    """Builds the training graph of a model and writes it.

    Args:
        model: an ONNX file: a forward model, a graph of gradients, a model with training information; or a folder of
            artifacts of onnxruntime-training.
        loss: name of the loss, or ``output:NAME``; None for a model that has its gradients already.
        optimizer: name of the optimizer; None where the model says it.
        lr: learning rate; the default of the training graph's input.
        momentum: of the momentum optimizers.
        betas: of Adam and AdamW.
        epsilon: of Adagrad, Adam and AdamW.
        decay_factor: of Adagrad.
        weight_decay: of any optimizer.
        no_decay: patterns of names that are not decayed.
        no_decay_vectors: whether biases and scales are not decayed.
        clip_norm: what the global norm of gradients is clipped to.
        accumulate: micro-batches to a step.
        loss_scale: a number, or ``dynamic``.
        class_weights: of losses by labels.
        ignore_index: the label that counts for nothing.
        loss_input: the output that the loss looks at.
        precision: what the model computes in.
        gradients: a file of pairs of parameter and gradient.
        form: ``onnx``: the whole step in standard operators; ``training-info``: ONNX's own training format.
        batch: another batch size than the file's.
        batchnorm: ``train`` (statistics of the batch) or ``frozen``.
        dim: sizes of symbolic dims.
        output: where to write.
        progress: told what is being done.

    Raises:
        TofuError: the model cannot be read or trained, or the output is the model itself or cannot be written.
    """
    read = [model, *sorted(model.iterdir())] if model.is_dir() else [model]
    if output.resolve() in {path.resolve() for path in read}:
        raise UsageError(f"{output}: is the model that is read, and would be overwritten", hint="write -o another file")
    progress(f"reading {model}")
    numbers: dict[str, float] = {"decay_factor": decay_factor} if decay_factor else {}
    numbers |= {} if momentum is None else {"momentum": momentum}
    numbers |= {} if betas is None else {"beta1": betas[0], "beta2": betas[1]}
    numbers |= {} if epsilon is None else {"epsilon": epsilon}
    numbers |= {} if weight_decay is None else {"weight_decay": weight_decay}
    hyper = Hyper(exempt=tuple(no_decay), exempt_vectors=no_decay_vectors, **numbers) if numbers else None
    is_dynamic = loss_scale == "dynamic"
    scale = None if loss_scale is None or loss_scale == "dynamic" else float(loss_scale)
    wishes = Wishes(
        loss=loss,
        optimizer=optimizer,
        learning_rate=lr,
        output=loss_input,
        batchnorm=batchnorm,
        batch=batch,
        dims=dim or {},
        hyper=hyper,
        schedule=Schedule(clip_norm, accumulate, scale, is_dynamic),
        loss_options=LossOptions(None if class_weights is None else tuple(class_weights), ignore_index),
        precision=precision,
        gradients=gradients,
    )
    progress("building the training graph")
    if form == "training-info":
        made, proto = make_training_info(model, wishes)
    else:
        made, proto = make(model, wishes), None
    graph = made.graph
    progress(f"writing {output}")
    output.parent.mkdir(parents=True, exist_ok=True)
    if proto is None:
        write_model(graph, output)
    else:
        write_bytes(output, proto.SerializeToString(deterministic=True))
    roles = graph.roles
    return GradResult(
        output=output,
        loss=made.loss,
        optimizer=made.optimizer,
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
    through_bodies: bool = True,
    out: Path | None = None,
    state: Path | None = None,
    sharding_annotations: Path | None = None,
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
        through_bodies: cut composite ops (Softmax, LayerNormalization, ...) along the dims that they normalise over,
            through their bodies, where that moves fewer bytes.
        out: the folder to write; MODEL.tofuK in the working directory if None.
        state: a file of pairs of state and next state; None: as the model says, or inferred.
        sharding_annotations: a file to write: the model with the tilings as ONNX sharding annotations.
        progress: told what is being done.

    Raises:
        TofuError: the model cannot be read or planned, or the folder not written.
    """
    started = time.perf_counter()
    if strategy not in STRATEGIES:
        raise UsageError(f"strategy {strategy!r} is not known", hint=did_you_mean(strategy, STRATEGIES))
    machine = load_topology(topology) if topology is not None else None
    workers = _worker_count(gpus, machine, topology)
    directory = out if out is not None else Path(f"{model.stem}.tofu{workers}")
    refuse_existing(directory)
    progress(f"reading {model}")
    pairs = None if state is None else read_pairs(state)
    graph = lower_randomness(read_step(model, dims=dim or {}, state_pairs=pairs))
    content = to_model(graph).SerializeToString(deterministic=True)
    progress(f"analysing {len(graph.ops)} ops")
    decided = decide_with_bodies(
        graph,
        opdefs.standard(),
        workers,
        strategy=strategy,
        through_bodies=through_bodies,
        pins=pin,
        partitioned_inputs=inputs == "partitioned",
        model_digest=digest(content),
        progress=progress,
    )
    decision = decided.decision
    progress("writing a program for each worker")
    partitioned = partition(decided.graph, decided.ops, decision.plan)
    complete = complete_plan(decision.plan, partitioned)
    _refuse_too_large(complete.peak_bytes, machine, topology)
    write_folder(directory, plan_files(graph, content, complete, partitioned), partitioned.program)
    if sharding_annotations is not None:
        shapes = {name: tensor.shape for name, tensor in graph.tensors.items()}
        annotated, _ = with_annotations(ModelProto.FromString(content), complete, shapes)
        write_bytes(sharding_annotations, annotated.SerializeToString(deterministic=True))
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
        arena_bytes=tuple(worker.arena_bytes for worker in partitioned.program.workers),
        workspace_bytes=tuple(worker.workspace_bytes for worker in partitioned.program.workers),
        collectives=counted(collectives(partitioned.program)),
    )


def compare(
    model: Path,
    *,
    gpus: int,
    dim: Mapping[str, int] | None = None,
    progress: Progress = _silent,
) -> Comparison:
    """Plans a training graph by every strategy of the literature.

    Args:
        model: an ONNX file.
        gpus: how many workers.
        dim: sizes of symbolic dims.
        progress: told what is being done.

    Raises:
        TofuError: the model cannot be read, or not even tofu's own search has a plan.
    """
    progress(f"reading {model}")
    graph = lower_randomness(read_step(model, dims=dim or {}))
    descriptions = opdefs.standard()
    rows = []
    for method in METHODS.values():
        progress(f"strategy {method.name}")
        try:
            decided = decide_with_bodies(graph, descriptions, gpus, strategy=method.name)
        except TofuError as error:
            if method.name == "tofu":
                raise
            rows.append(ComparisonRow(method.name, method.what, None, None, None, None, error.what))
            continue
        decision = decided.decision
        program = partition(decided.graph, decided.ops, decision.plan).program
        rows.append(
            ComparisonRow(
                method.name,
                method.what,
                decision.plan.moved_bytes,
                max(program.peak_bytes),
                decision.plan.replicated_flop_share,
                decision.search_seconds,
            )
        )
    return Comparison(graph.name, gpus, tuple(rows))


def explain(directory: Path | None = None, *, subject: str | None = None) -> Explanation:
    """What a plan does with every tensor and op, or with one of them.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        subject: a tensor or an op.

    Raises:
        TofuError: there is no plan, or nothing of that name in it.
    """
    folder = open_folder(directory if directory is not None else newest_folder(Path()))
    model = read_model(folder.model)
    graph = planned_graph(model, folder.plan.strategies)
    ops = opdefs.standard().bind_all(graph)
    tensors = tuple(_tensor_row(folder, graph, name) for name in graph.tensors if name in folder.plan.tilings)
    op_rows = tuple(_op_rows(folder, model, ops))
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
    weights: Path | None = None,
    steps: int = 1,
    lr: str | None = None,
    verify: bool = False,
    result: Path | None = None,
    checkpoint_dir: Path | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    export: Path | None = None,
    forward: Path | None = None,
    profile: bool = False,
    device: str = "cpu",
    device_map: Sequence[int] | None = None,
    seed: int = 0,
    progress: Progress = _silent,
) -> RunResult:
    """Runs a plan.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        inputs: arrays for the inputs (npz), or a directory of batches, one per step.
        weights: state to start from (npz or safetensors).
        steps: how many iterations, those before a checkpoint included.
        lr: a learning rate or a schedule, as text (``planner.runtime.schedule``).
        verify: judge every step against the unpartitioned model.
        result: where to write outputs and next state (npz).
        checkpoint_dir: where checkpoints go.
        checkpoint_every: a checkpoint after so many steps, and after the last.
        resume: go on from the newest checkpoint.
        export: where to write whole weights: ``.safetensors``, or ``.onnx`` with ``forward``.
        forward: the forward model that gets the weights.
        profile: measure every step of every worker.
        device: ``cpu`` or ``cuda``.
        device_map: for ``cuda``, the GPU of each worker.
        seed: of all that is drawn.
        progress: told what is being done.

    Raises:
        TofuError: the plan or the inputs cannot be used, or a worker failed.
    """
    where = directory if directory is not None else newest_folder(Path())
    if result is not None and not result.parent.is_dir():
        raise UsageError(f"{result} cannot be written: there is no folder {result.parent}")
    options = RunOptions(
        steps=steps,
        inputs=inputs,
        weights=weights,
        schedule=None if lr is None else parse_schedule(lr),
        verify=verify,
        seed=seed,
        checkpoint_dir=checkpoint_dir,
        checkpoint_every=checkpoint_every,
        resume=resume,
        export=export,
        forward=forward,
        profile=profile,
        device=device,
        device_map=None if device_map is None else tuple(device_map),
        progress=lambda report: progress(_line(report)),
    )
    outcome = run_with(where, options)
    if result is not None:
        write_arrays(result, outcome.results)
    return outcome


def zoo_models() -> tuple[ZooRow, ...]:
    """The models of the papers, family by family."""
    return tuple(ZooRow(family.form, family.about, family.members, family.optimizer) for family in FAMILIES)


def zoo(
    name: str,
    *,
    batch: int | None = None,
    optimizer: str | None = None,
    output: Path,
    progress: Progress = _silent,
) -> ZooResult:
    """Writes a model of the zoo as an ONNX training graph without weights.

    Args:
        name: see ``planner.zoo.build``.
        batch: samples of an iteration; None: the paper's.
        optimizer: its name; None: the paper's.
        output: where to write.
        progress: told what is being done.

    Raises:
        TofuError: there is no such model, or the output cannot be written.
    """
    progress(f"building {name}")
    graph = build(name, batch=batch, optimizer=optimizer)
    progress(f"writing {output}")
    output.parent.mkdir(parents=True, exist_ok=True)
    write_model(graph, output)
    weights = trained(graph)
    return ZooResult(
        name=name,
        output=output,
        inputs=tuple(tensor for tensor in graph.inputs if graph.roles[tensor] is Role.DATA),
        parameters=sum(graph.tensors[weight].elements for weight in weights),
        weight_bytes=sum(graph.tensors[weight].size_bytes for weight in weights),
        state_bytes=sum(graph.tensors[pair.current].size_bytes for pair in graph.state),
        ops_by_type=dict(sorted(Counter(op.op_type for op in graph.ops).items())),
    )


def _line(report: StepReport) -> str:
    loss = "" if report.loss is None else f", loss {report.loss:.6f}"
    return f"step {report.step} of {report.steps}{loss}"


def _worker_count(gpus: int | None, machine: Topology | None, said: str | None) -> int:
    if machine is None:
        if gpus is None:
            raise UsageError("for how many GPUs?", hint="give gpus, or a topology")
        return gpus
    if gpus is not None and gpus != machine.device_count:
        raise UsageError(f"topology {said} has {machine.device_count} devices, and {gpus} GPUs are asked for")
    return machine.device_count


def _refuse_too_large(peak_bytes: Sequence[int], machine: Topology | None, said: str | None) -> None:
    """Refuses a plan whose workers need more memory than the topology's devices have.

    Raises:
        InfeasibleError: naming the worker that needs the most.
    """
    if machine is None:
        return
    memory = machine.device.memory_bytes
    largest = max(peak_bytes)
    if largest > memory:
        raise InfeasibleError(
            f"the plan does not fit: worker {peak_bytes.index(largest)} needs "
            f"{format_bytes(largest, ByteUnit.BINARY)}, and a device of {said} has "
            f"{format_bytes(memory, ByteUnit.BINARY)}",
            hint="more devices, or a smaller batch, would fit",
        )


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


def _op_rows(folder: PlanFolder, model: Graph, ops: Sequence[BoundOp]) -> Iterator[OpRow]:
    """A row for every op of the model; one that was planned through its body stands before the ops of that."""
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
