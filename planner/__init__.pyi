# What `import planner` has, for type checkers; `make schemas` writes it.

import collections.abc
import numpy
import onnx.onnx_ml_pb2
import os
import planner.features.checkpoint.checkpoints
import planner.features.checkpoint.loading
import planner.features.compare.result
import planner.features.diff.difference
import planner.features.export.result
import planner.features.fit.result
import planner.features.profile.result
import planner.features.prove.result
import planner.features.report.result
import planner.features.zoo.result
import planner.gate.verdict
import planner.progress
import planner.reasons
import planner.results
import planner.runtime.run_report
import planner.stop
import typing
from planner import api as api
from planner import errors as errors
from planner.errors import TofuError as TofuError

__version__: str
__all__ = [
    "TofuError",
    "as_json",
    "build",
    "check",
    "checkpoints",
    "compare",
    "diff",
    "explain",
    "export",
    "export_checkpoint",
    "fit",
    "grad",
    "load_into",
    "memory",
    "plan",
    "profile",
    "prove",
    "report",
    "run",
    "show",
    "simulate",
    "why",
    "zoo",
    "zoo_models",
]

def as_json(
    result: typing.Any,
) -> dict[str, typing.Any]: ...

def build(
    directory: str | os.PathLike[str] | None = ...,
    *,
    progress: planner.progress.Progress = ...,
    force: bool = ...,
) -> planner.results.BuildResult: ...

def check(
    models: str | os.PathLike[str] | collections.abc.Sequence[str | os.PathLike[str]],
    *,
    dim: collections.abc.Mapping[str, int] | None = ...,
    gpus: int | collections.abc.Sequence[int] | None = ...,
    baseline: str | os.PathLike[str],
    max_increase: str = ...,
    update: bool = ...,
    progress: planner.progress.Progress = ...,
) -> planner.gate.verdict.CheckResult: ...

def checkpoints(
    directory: str | os.PathLike[str],
    *,
    progress: planner.progress.Progress = ...,
) -> planner.features.checkpoint.checkpoints.CheckpointList: ...

def compare(
    model: str | os.PathLike[str] | onnx.onnx_ml_pb2.ModelProto,
    *,
    dim: collections.abc.Mapping[str, int] | None = ...,
    gpus: typing.Optional[int] = ...,
    topology: str | None = ...,
    progress: planner.progress.Progress = ...,
) -> planner.features.compare.result.Comparison: ...

def diff(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    progress: planner.progress.Progress = ...,
) -> planner.features.diff.difference.Difference: ...

def explain(
    directory: str | os.PathLike[str] | None = ...,
    *,
    subject: str | None = ...,
    every: bool = ...,
    role: str | None = ...,
    op: str | None = ...,
    sort: typing.Optional[typing.Literal['moved', 'size', 'name']] = ...,
    runners_up: int = ...,
    bounds: bool = ...,
) -> planner.results.Explanation: ...

def export(
    directory: str | os.PathLike[str] | None = ...,
    *,
    progress: planner.progress.Progress = ...,
    jax: str | os.PathLike[str] | None = ...,
    placements: str | os.PathLike[str] | None = ...,
    sharding: str | os.PathLike[str] | None = ...,
) -> planner.features.export.result.ExportResult: ...

def export_checkpoint(
    directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    number: int | None = ...,
    forward: str | os.PathLike[str] | None = ...,
    progress: planner.progress.Progress = ...,
) -> planner.features.checkpoint.checkpoints.ExportedCheckpoint: ...

def fit(
    model: str | os.PathLike[str] | onnx.onnx_ml_pb2.ModelProto,
    *,
    dim: collections.abc.Mapping[str, int] | None = ...,
    memory: str | int | None = ...,
    topology: collections.abc.Sequence[str] = ...,
    gpus: str | int | collections.abc.Sequence[int] | None = ...,
    within: str | float | None = ...,
    batch: str | int | None = ...,
    page: str | os.PathLike[str] | None = ...,
    progress: planner.progress.Progress = ...,
) -> planner.features.fit.result.FitResult: ...

def grad(
    model: str | os.PathLike[str] | onnx.onnx_ml_pb2.ModelProto,
    *,
    dim: collections.abc.Mapping[str, int] | None = ...,
    value: collections.abc.Mapping[str, str | float] | None = ...,
    state: str | os.PathLike[str] | None = ...,
    class_weights: collections.abc.Sequence[float] | None = ...,
    ignore_index: typing.Optional[int] = ...,
    class_axis: typing.Optional[int] = ...,
    shift: bool = ...,
    tokens: str | None = ...,
    loss: str | None = ...,
    loss_input: str | None = ...,
    optimizer: str | None = ...,
    lr: typing.Optional[float] = ...,
    momentum: typing.Optional[float] = ...,
    betas: tuple[float, float] | None = ...,
    epsilon: typing.Optional[float] = ...,
    decay_factor: float = ...,
    weight_decay: typing.Optional[float] = ...,
    group: collections.abc.Sequence[str] = ...,
    train: collections.abc.Sequence[str] = ...,
    freeze: collections.abc.Sequence[str] = ...,
    params: collections.abc.Sequence[str] = ...,
    clip_norm: typing.Optional[float] = ...,
    accumulate: int = ...,
    precision: typing.Literal['float32', 'float16', 'bfloat16'] = ...,
    loss_scale: typing.Union[float, typing.Literal['dynamic'], None] = ...,
    gradients: str | os.PathLike[str] | None = ...,
    batchnorm: typing.Literal['train', 'frozen'] = ...,
    dropout: typing.Optional[typing.Literal['train', 'off']] = ...,
    form: typing.Literal['onnx', 'training-info'] = ...,
    batch: typing.Optional[int] = ...,
    output: str | os.PathLike[str] | None = ...,
    verify: bool = ...,
    progress: planner.progress.Progress = ...,
) -> planner.results.GradResult: ...

def load_into(
    module: planner.features.checkpoint.loading.Module,
    source: str | os.PathLike[str],
    *,
    forward: str | os.PathLike[str] | None = ...,
) -> tuple[str, ...]: ...

def memory(
    directory: str | os.PathLike[str] | None = ...,
    *,
    worker: int | None = ...,
    progress: planner.progress.Progress = ...,
) -> planner.results.MemoryResult: ...

def plan(
    model: str | os.PathLike[str] | onnx.onnx_ml_pb2.ModelProto,
    *,
    dim: collections.abc.Mapping[str, int] | None = ...,
    value: collections.abc.Mapping[str, str | float] | None = ...,
    state: str | os.PathLike[str] | None = ...,
    gpus: typing.Optional[int] = ...,
    topology: str | None = ...,
    memory: str | int | None = ...,
    objective: typing.Optional[typing.Literal['bytes', 'time']] = ...,
    rates: str | None = ...,
    strategy: str = ...,
    pin: collections.abc.Mapping[str, str] | None = ...,
    forbid: collections.abc.Sequence[tuple[str, str]] = ...,
    replicate: typing.Literal['weights', 'all', 'none'] = ...,
    inputs: typing.Literal['free', 'partitioned'] = ...,
    share: typing.Literal['none', 'auto'] = ...,
    op_schedule: typing.Literal['auto', 'whole', 'stepped'] = ...,
    recompute: str | collections.abc.Sequence[str] = ...,
    effort: typing.Optional[typing.Literal['quick', 'normal', 'thorough']] = ...,
    time: str | None = ...,
    out: str | os.PathLike[str] | None = ...,
    force: bool = ...,
    models: bool = ...,
    profile: str | os.PathLike[str] | None = ...,
    opdefs: str | os.PathLike[str] | None = ...,
    unknown_ops: typing.Literal['refuse', 'replicate'] = ...,
    progress: planner.progress.Progress = ...,
    notice: collections.abc.Callable[[str], None] = ...,
    stop: planner.stop.Stop | None = ...,
) -> planner.results.PlanResult: ...

def profile(
    model: str | os.PathLike[str] | onnx.onnx_ml_pb2.ModelProto,
    *,
    dim: collections.abc.Mapping[str, int] | None = ...,
    gpus: typing.Optional[int] = ...,
    topology: str | None = ...,
    device: typing.Literal['cpu', 'cuda'] = ...,
    memory: str | int | None = ...,
    custom_ops: collections.abc.Sequence[str | os.PathLike[str]] = ...,
    out: str | os.PathLike[str] | None = ...,
    progress: planner.progress.Progress = ...,
    notice: collections.abc.Callable[[str], None] = ...,
) -> planner.features.profile.result.ProfileResult: ...

def prove(
    directory: str | os.PathLike[str] | None = ...,
    *,
    progress: planner.progress.Progress = ...,
    model: str | os.PathLike[str] | None = ...,
    parts: collections.abc.Sequence[str | os.PathLike[str]] = ...,
    program: str | os.PathLike[str] | None = ...,
) -> planner.features.prove.result.ProveResult: ...

def report(
    directory: str | os.PathLike[str] | None = ...,
    *,
    progress: planner.progress.Progress = ...,
    output: str | os.PathLike[str] | None = ...,
    svg: str | os.PathLike[str] | None = ...,
    trace: str | os.PathLike[str] | None = ...,
) -> planner.features.report.result.ReportResult: ...

def run(
    directory: str | os.PathLike[str] | None = ...,
    *,
    inputs: str | os.PathLike[str] | collections.abc.Mapping[str, numpy.ndarray[tuple[typing.Any, ...], numpy.dtype[typing.Any]]] | collections.abc.Iterable[collections.abc.Mapping[str, numpy.ndarray[tuple[typing.Any, ...], numpy.dtype[typing.Any]]]] | None = ...,
    weights: str | os.PathLike[str] | None = ...,
    data_dir: str | os.PathLike[str] | None = ...,
    random_weights: bool = ...,
    steps: typing.Optional[int] = ...,
    epochs: typing.Optional[int] = ...,
    shuffle: int | None = ...,
    lr: str | float | collections.abc.Callable[[int], float] | numpy.ndarray | collections.abc.Sequence[float] | None = ...,
    verify: bool = ...,
    result: str | os.PathLike[str] | None = ...,
    checkpoint_dir: str | os.PathLike[str] | None = ...,
    checkpoint_every: typing.Optional[int] = ...,
    keep: typing.Optional[int] = ...,
    resume: bool = ...,
    export: str | os.PathLike[str] | None = ...,
    forward: str | os.PathLike[str] | None = ...,
    profile: bool = ...,
    device: typing.Literal['cpu', 'cuda'] = ...,
    engine: typing.Literal['local', 'processes', 'mpi'] = ...,
    device_map: collections.abc.Sequence[int] | None = ...,
    seed: int = ...,
    patience: float = ...,
    metric: typing.Optional[typing.Literal['accuracy']] = ...,
    eval_inputs: str | os.PathLike[str] | None = ...,
    log: str | os.PathLike[str] | None = ...,
    allow_nan: bool = ...,
    custom_ops: collections.abc.Sequence[str | os.PathLike[str]] = ...,
    progress: planner.progress.Progress = ...,
    notice: collections.abc.Callable[[str], None] = ...,
    on_step: collections.abc.Callable[[planner.runtime.run_report.StepReport], None] | None = ...,
    stop: planner.stop.Interrupt | None = ...,
    note: int | None = ...,
) -> planner.runtime.run_report.RunResult: ...

def show(
    result: typing.Any,
    file: typing.TextIO | None = ...,
) -> None: ...

def simulate(
    directory: str | os.PathLike[str] | None = ...,
    *,
    progress: planner.progress.Progress = ...,
) -> planner.results.SimulationResult: ...

def why(
    directory: str | os.PathLike[str] | None,
    subject: str,
    *,
    runners_up: int = ...,
) -> planner.reasons.Why: ...

def zoo(
    name: str,
    *,
    batch: typing.Optional[int] = ...,
    optimizer: str | None = ...,
    precision: typing.Optional[typing.Literal['float32', 'bfloat16']] = ...,
    seq: typing.Optional[int] = ...,
    layers: typing.Optional[int] = ...,
    output: str | os.PathLike[str] | None = ...,
    progress: planner.progress.Progress = ...,
) -> planner.features.zoo.result.ZooResult: ...

def zoo_models(
) -> planner.features.zoo.result.ZooModels: ...
