"""Worker files that somebody has changed since they were planned: equal ones are proven, others are not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import FunctionProto, ModelProto, load, save

from planner import api
from planner.algebra.region import Region
from planner.artifacts.program import Arena, Fetch, Piece, Segment, Source, Step, WorkerProgram
from planner.artifacts.worker_model import WorkerModel, WorkerModels
from planner.commands.main import main
from planner.errors import ModelError, UsageError
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model
from planner.runtime.engine.core.check import check_programs
from planner.runtime.plan_files import LoadedPlan, load_plan
from prove_by_hand import ByHand, whole_of

Change = Callable[[LoadedPlan], LoadedPlan]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a plan of a transformer's training step on 2 workers."""
    folder = tmp_path_factory.mktemp("changed")
    write_model(build("gpt-1x16-2h", batch=4), folder / "gpt.onnx")
    return api.plan(folder / "gpt.onnx", gpus=2, effort="quick", out=folder / "plan").directory


@pytest.fixture
def plan(planned: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(planned, tmp_path / "plan"))


def _rewritten(plan: Path, change: Change) -> int:
    """Writes the worker files anew; returns how many of them are other files than before."""
    changed = 0
    for model in change(load_plan(plan)).models:
        file = plan / f"worker{model.program.worker}.onnx"
        before = load(file)
        [opset] = [entry.version for entry in before.opset_import if not entry.domain]
        written = WorkerModels(model.bodies, opset=opset, plan_digest=model.plan_digest).write(
            model.program, model.constants
        )
        changed += written != before
        save(written, file)
    return changed


def _with(loaded: LoadedPlan, change: Callable[[WorkerProgram], WorkerProgram]) -> LoadedPlan:
    return replace(loaded, models=tuple(replace(model, program=change(model.program)) for model in loaded.models))


def _other(loaded: LoadedPlan, worker: int, model: WorkerModel) -> LoadedPlan:
    models = list(loaded.models)
    models[worker] = model
    return replace(loaded, models=tuple(models))


def _renamed(loaded: LoadedPlan) -> LoadedPlan:
    """Every buffer, on every worker, and every value within functions."""

    def new(name: str) -> str:
        return f"b.{name}"

    def step(step_model: Step) -> Step:
        if isinstance(step_model, Segment):
            return replace(
                step_model, inputs=tuple(map(new, step_model.inputs)), outputs=tuple(map(new, step_model.outputs))
            )
        pieces = tuple(
            Piece(piece.region, tuple(Source(source.worker, new(source.buffer)) for source in piece.sources))
            for piece in step_model.pieces
        )
        return replace(step_model, target=new(step_model.target), pieces=pieces)

    def program(worker: WorkerProgram) -> WorkerProgram:
        assert worker.arena is not None
        return replace(
            worker,
            buffers={new(name): replace(buffer, name=new(name)) for name, buffer in worker.buffers.items()},
            steps=tuple(map(step, worker.steps)),
            loaded=tuple(map(new, worker.loaded)),
            fixed=tuple(map(new, worker.fixed)),
            collected=tuple(map(new, worker.collected)),
            arena=Arena(
                worker.arena.size_bytes,
                {new(name): place for name, place in worker.arena.offsets.items()},
                worker.arena.workspace_bytes,
            ),
        )

    def body(function: FunctionProto) -> FunctionProto:
        renamed = FunctionProto.FromString(function.SerializeToString())
        for node in renamed.node:
            node.input[:] = [new(name) if name else "" for name in node.input]
            node.output[:] = [new(name) if name else "" for name in node.output]
        renamed.input[:], renamed.output[:] = map(new, function.input), map(new, function.output)
        for value in renamed.value_info:
            value.name = new(value.name)
        return renamed

    models = tuple(
        replace(
            model,
            bodies={name: body(function) for name, function in model.bodies.items()},
            constants={new(name): array for name, array in model.constants.items()},
        )
        for model in _with(loaded, program).models
    )
    return replace(loaded, models=models)


def _reordered(loaded: LoadedPlan) -> LoadedPlan:
    """Steps that stand beside each other change places, wherever data, waits and memory allow it."""
    for worker, model in enumerate(loaded.models):
        for number in range(len(model.program.steps) - 1):
            model_now = loaded.models[worker]
            steps = list(model_now.program.steps)
            steps[number : number + 2] = reversed(steps[number : number + 2])
            trial = _other(loaded, worker, replace(model_now, program=replace(model_now.program, steps=tuple(steps))))
            try:
                check_programs([model_of.program for model_of in trial.models], loaded.program.state)
            except ModelError:
                continue
            loaded = trial
    return loaded


def _nodes_reordered(loaded: LoadedPlan) -> LoadedPlan:
    """Within functions, a node goes before the one above it that it does not read."""
    models = []
    for model in loaded.models:
        bodies = {}
        for name, function in model.bodies.items():
            bodies[name] = FunctionProto.FromString(function.SerializeToString())
            nodes = list(function.node)
            for number in range(1, len(nodes)):
                if not set(nodes[number].input) & set(nodes[number - 1].output):
                    nodes[number - 1], nodes[number] = nodes[number], nodes[number - 1]
            del bodies[name].node[:]
            bodies[name].node.extend(nodes)
        models.append(replace(model, bodies=bodies))
    return replace(loaded, models=tuple(models))


def _split(loaded: LoadedPlan) -> LoadedPlan:
    """Each piece of a fetch comes in two halves."""

    def halves(piece: Piece) -> list[Piece]:
        lo, hi = piece.region.ends
        if hi[0] - lo[0] < 2:
            return [piece]
        middle = (lo[0] + hi[0]) // 2
        boxes = Region(lo, (middle, *hi[1:])), Region((middle, *lo[1:]), hi)
        return [replace(piece, region=box) for box in boxes]

    def program(worker: WorkerProgram) -> WorkerProgram:
        steps = tuple(
            replace(step, pieces=tuple(half for piece in step.pieces for half in halves(piece)))
            if isinstance(step, Fetch)
            else step
            for step in worker.steps
        )
        return replace(worker, steps=steps)

    return _with(loaded, program)


@pytest.mark.parametrize(
    "change",
    [
        _nodes_reordered,
        lambda loaded: _split(_nodes_reordered(_reordered(_renamed(loaded)))),
    ],
)
def test_files_that_were_rewritten_into_equal_ones_are_proven(plan: Path, change: Change) -> None:
    assert _rewritten(plan, change)
    proof = api.prove(plan)
    assert proof.is_proven, proof.fault


def _another_function(loaded: LoadedPlan, op_type: str, becomes: str) -> LoadedPlan:
    """Worker 1 computes another function."""
    bodies = {}
    for name, function in loaded.models[1].bodies.items():
        bodies[name] = FunctionProto.FromString(function.SerializeToString())
        for node in bodies[name].node:
            node.op_type = becomes if node.op_type == op_type else node.op_type
    return _other(loaded, 1, replace(loaded.models[1], bodies=bodies))


def test_a_file_that_computes_something_else_is_not_proven(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _rewritten(plan, lambda loaded: _another_function(loaded, "Softmax", "LogSoftmax")) == 1
    assert main(["prove", str(plan), "--json"]) == 1
    fault = json.loads(capsys.readouterr().out)["fault"]
    assert fault["worker"] == 1
    assert "Softmax" in fault["op"]


def test_a_file_that_moves_less_than_the_plan_states_is_a_counterexample(plan: Path) -> None:
    """What worker 1 lacks is said of the op; the bytes are compared last."""

    def change(loaded: LoadedPlan) -> LoadedPlan:
        program = loaded.models[1].program
        number, step = next(
            (n, candidate)
            for n, candidate in enumerate(program.steps)
            if isinstance(candidate, Fetch) and candidate.reducer is not None
        )
        assert isinstance(step, Fetch)
        pieces = tuple(replace(piece, sources=piece.sources[:-1]) for piece in step.pieces)
        fetched_bytes = sum(
            4 * piece.region.elements for piece in pieces for source in piece.sources if source.worker != 1
        )
        steps = list(program.steps)
        steps[number] = replace(step, pieces=pieces, predicted_bytes=fetched_bytes)
        return _other(loaded, 1, replace(loaded.models[1], program=replace(program, steps=tuple(steps))))

    assert _rewritten(plan, change) == 1
    fault = api.prove(plan).fault
    assert fault is not None
    assert "from worker 1" in fault.holds
    assert "it has" in fault.holds


def test_what_is_out_of_order_is_told_with_worker_step_op_and_buffer(plan: Path) -> None:
    def change(loaded: LoadedPlan) -> LoadedPlan:
        program = loaded.models[1].program
        return _other(loaded, 1, replace(loaded.models[1], program=replace(program, steps=program.steps[::-1])))

    assert _rewritten(plan, change) == 1
    fault = api.prove(plan).fault
    assert fault is not None
    last = load(plan / "worker1.onnx").graph.node[0]
    assert (fault.worker, fault.is_counterexample) == (1, True)
    assert last.name in fault.step
    assert fault.buffer in last.input
    assert fault.op
    assert fault.holds == f"reads {fault.buffer!r} before it is written"


def test_a_plan_of_another_file_is_not_proven(planned: Path, tmp_path: Path) -> None:
    """The file is read as it was to be planned, and is what the plan's model was made of."""
    write_model(build("gpt-1x16-2h", batch=2), tmp_path / "other.onnx")
    assert main(["prove", str(planned), "--model", str(planned.parent / "gpt.onnx")]) == 0
    fault = api.prove(planned, model=tmp_path / "other.onnx").fault
    assert fault is not None
    assert fault.buffer == "model.onnx"


@pytest.mark.parametrize("harm", ["missing", "of another plan", "no model"])
def test_a_missing_or_foreign_file_is_no_question_of_proof(harm: str, plan: Path) -> None:
    file = plan / "worker1.onnx"
    if harm == "missing":
        file.unlink()
    elif harm == "no model":
        file.write_bytes(b"none")
    else:
        model: ModelProto = load(file)
        for entry in model.metadata_props:
            entry.value = "0" * 64 if entry.key == "tofu.plan" else entry.value
        save(model, file)
    assert main(["prove", str(plan)]) == 2


def test_a_plan_is_proven_from_files_that_lie_anywhere(planned: Path, tmp_path: Path) -> None:
    """The worker models in any order, and of plan.json only what was made of the model."""
    plan = json.loads((planned / "plan.json").read_text())
    form = {name: plan[name] for name in ("strategies", "in_place", "kept", "deliveries") if name in plan}
    (tmp_path / "form.json").write_text(json.dumps(form))
    parts = [shutil.copy(planned / f"worker{worker}.onnx", tmp_path / f"{worker}.onnx") for worker in (1, 0)]
    proof = api.prove(model=planned / "model.onnx", parts=parts, program=tmp_path / "form.json")
    assert replace(proof, directory=planned) == api.prove(planned)
    fault = api.prove(model=planned / "model.onnx", parts=parts).fault  # it is not the model as it is
    assert fault is not None
    assert not fault.is_counterexample
    assert fault.should.endswith("; is --program missing?")
    with pytest.raises(ModelError, match="do not belong together"):
        api.prove(model=planned / "model.onnx", parts=parts[:1], program=tmp_path / "form.json")
    with pytest.raises(ModelError, match="cannot be read: Is a directory"):
        api.prove(model=planned / "model.onnx", parts=[planned])
    with pytest.raises(ModelError, match=r"/model.onnx: model 'gpt-1x16-2h' is no worker model"):
        api.prove(model=planned / "model.onnx", parts=[planned / "model.onnx"])


@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        ('{"keptt": []}', r"form.json: there is no member 'keptt'"),
        ('{"tilings": {}}', r"form.json: there is no member 'tilings'"),
        ('{"deliveries": [{"name": "", "tensor": "x", "readers": []}]}', r"form.json.*deliveries\[0\].name is empty"),
    ],
)
def test_a_form_that_says_what_nobody_reads_is_refused(form: str, wrong: str, planned: Path, tmp_path: Path) -> None:
    (tmp_path / "form.json").write_text(form)
    parts = [planned / f"worker{worker}.onnx" for worker in (0, 1)]
    with pytest.raises(UsageError, match=wrong):
        api.prove(model=planned / "model.onnx", parts=parts, program=tmp_path / "form.json")


def test_worker_models_that_no_plan_made_are_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = "(float[2,6] d, float[6,3] x) => (float[2,3] g) { g = MatMul(d, x) }"
    save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> net {model}'), tmp_path / "net.onnx")
    for sources, code in (("0.p 1.p 2.p", 0), ("0.p 2.p", 1)):
        rest = f"0: g = g[0:2, 0:3] of Sum: [0:2, 0:3] {sources}\n0: give g"
        program = ByHand.read(whole_of(model), f"{JOINED}{rest}")
        files = [tmp_path / f"worker{worker.worker}.onnx" for worker in program.program.workers]
        for worker, file in zip(program.program.workers, files, strict=True):
            save(WorkerModels(program.bodies, opset=21).write(worker, {}), file)
        # As a shell writes worker*.onnx out.
        assert main(["prove", "--model", str(tmp_path / "net.onnx"), "--parts", *map(str, files), "--json"]) == code
        fault = json.loads(capsys.readouterr().out)["fault"]
        assert (fault is None) is (code == 0)
    assert (fault["worker"], fault["buffer"]) == (0, "g")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("plan --parts worker0.onnx", "--parts: of which model?"),
        (". --model net.onnx --parts worker0.onnx", "--parts takes files of worker models, no folder"),
        ("--parts worker0.onnx worker1.onnx", "--parts: of which model?"),
        ("--program form.json", "--program: of which worker models?"),
        ("plan other", "one plan is proven at a time"),
        ("--model a.onnx --parts b", "no such file"),
    ],
)
def test_a_model_elsewhere_stands_in_the_place_of_a_plan(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", *line.split()]) == 2
    assert told in capsys.readouterr().err


def test_the_file_of_a_plan_is_read_as_it_was(tmp_path: Path) -> None:
    """The folder remembers sizes of dims, values of inputs, and that states were paired by the user."""
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    net (float[batch, 4] x, float[4] w, float scale) => (float[batch, 4] y, float[4] v)
    { y = Mul(x, w)  v = Mul(w, scale) }
    """
    model, pairs = tmp_path / "net.onnx", tmp_path / "pairs.yaml"
    save(onnx.parser.parse_model(text), model)
    pairs.write_text("w: v\n")
    api.plan(model, gpus=2, dim={"batch": 4}, value={"scale": 0.5}, state=pairs, out=tmp_path / "plan")
    assert api.prove(tmp_path / "plan", model=model).is_proven
    other = tmp_path / "other.onnx"
    save(onnx.parser.parse_model(text.replace("Mul(x, w)", "Add(x, w)")), other)
    fault = api.prove(tmp_path / "plan", model=other).fault
    assert fault is not None
    assert fault.buffer == "model.onnx"


JOINED = """0: d = d[0:2, 0:2]
0: x = x[0:2, 0:3]
0: p = g[0:2, 0:3] by MatMul (d, x) { o0 = MatMul(i0, i1) }
1: d = d[0:2, 2:4]
1: x = x[2:4, 0:3]
1: p = g[0:2, 0:3] by MatMul (d, x) { o0 = MatMul(i0, i1) }
2: d = d[0:2, 4:6]
2: x = x[4:6, 0:3]
2: p = g[0:2, 0:3] by MatMul (d, x) { o0 = MatMul(i0, i1) }
"""


@pytest.mark.parametrize(
    ("rest", "is_right"),
    [
        ("0: g = g[0:2, 0:3] of Sum: [0:2, 0:3] 0.p 1.p 2.p", True),
        ("0: t = g[0:2, 0:3] of Sum: [0:2, 0:3] 0.p 2.p\n0: g = g[0:2, 0:3] of Sum: [0:2, 0:3] 0.t 1.p", True),
        ("1: t = g[0:1, 0:3] of [0:1, 0:3] 1.p\n1: u = g[1:2, 0:3] of [1:2, 0:3] 1.p\n"
         "0: g = g[0:2, 0:3] of Sum: [0:1, 0:3] 0.p 1.t 2.p; [1:2, 0:3] 0.p 1.u 2.p", True),
        ("0: t = g[0:2, 0:3] of Sum: [0:2, 0:3] 0.p 2.p\n0: g = g[0:2, 0:3] of Sum: [0:2, 0:3] 0.t 2.p", False),
    ],
)  # fmt: skip
def test_a_fetch_that_is_split_into_several_is_proven(rest: str, is_right: bool) -> None:
    whole = whole_of("(float[2,6] d, float[6,3] x) => (float[2,3] g) { g = MatMul(d, x) }")
    program = ByHand.read(whole, f"{JOINED}{rest}\n0: give g")
    assert program.computes_it(np.random.default_rng(3)) is is_right
    assert program.proof.is_proven is is_right
