"""A model with its weights inside and beside it: the same numbers wherever it lies, or an error; nothing made up."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fast_suite import chosen
from planner import api
from planner.commands import main as cli
from planner.errors import ModelError, UsageError
from planner.regular_file import digest_of
from planner.runtime.run_report import RunResult

FORMS = ("inline", "one file", "file by file")
RNG = np.random.default_rng(0)
BATCH = {"x": RNG.standard_normal((8, 12)).astype(np.float32), "labels": RNG.integers(0, 5, 8)}


def forward_model() -> onnx.ModelProto:
    """Two layers, an embedding of known rows that gets no gradient, and a scale that is a scalar."""
    rng = np.random.default_rng(1)
    weights = {
        "w0": rng.normal(0, 0.3, (12, 30)),
        "b0": rng.normal(0, 0.3, (30,)),
        "w1": rng.normal(0, 0.3, (30, 5)),
        "frozen": rng.normal(0, 0.3, (8, 30)),
        "scale": np.array(0.5),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["h0"]),
        helper.make_node("Sign", ["frozen"], ["signs"]),
        helper.make_node("Mul", ["h0", "signs"], ["h1"]),
        helper.make_node("Relu", ["h1"], ["h2"]),
        helper.make_node("MatMul", ["h2", "w1"], ["h3"]),
        helper.make_node("Mul", ["h3", "scale"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, 1, [8, size]) for name, size in (("x", 12), ("y", 5))]
    tensors = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "small", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def save(model: onnx.ModelProto, path: Path, form: str) -> Path:
    """Writes a model into a folder of its own, with its weights inside or beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    stored = {} if form == "inline" else {"save_as_external_data": True, "size_threshold": 16}
    many = {"all_tensors_to_one_file": False} if form == "file by file" else {"location": "weights.bin"}
    onnx.save_model(copy, path, **stored, **(many if stored else {}))
    return path


def planned(path: Path, folder: Path, *, workers: int = 3, **options: Any) -> Path:
    """The plan of a model's training step, which is written elsewhere than the model."""
    train = folder / "work" / "train.onnx"
    train.parent.mkdir(parents=True, exist_ok=True)
    options = {"freeze": ("frozen",), **options}
    api.grad(path, loss="softmax_cross_entropy", optimizer="momentum", lr=0.1, output=train, **options)
    return api.plan(train, gpus=workers, effort="quick", out=folder / "plans" / "plan").directory


def bits(result: RunResult) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in result.results.items()}


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By form, a folder with a model in ``model``, its training step in ``work``, and its plan in ``plans/plan``."""
    folders = {form: tmp_path_factory.mktemp(form.replace(" ", "_")) for form in FORMS}
    for form, folder in folders.items():
        planned(save(forward_model(), folder / "model" / "m.onnx", form), folder)
        np.savez(folder / "batch.npz", **BATCH)
    return folders


@pytest.fixture
def tree(trees: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the tree of one file of weights; the first is out of reach, as on another machine."""
    copy = tmp_path / "copy"
    shutil.copytree(trees["one file"], copy)
    manifest = copy / "plans/plan/manifest.json"
    text = manifest.read_text()
    assert str(trees["one file"]) in text
    manifest.write_text(text.replace(str(trees["one file"]), "/nowhere"))
    return copy


def run(tree: Path, **options: Any) -> RunResult:
    return api.run(tree / "plans/plan", inputs=tree / "batch.npz", **options)


@pytest.fixture(scope="module")
def wanted(trees: dict[str, Path]) -> RunResult:
    """A run of the model that holds its weights."""
    return run(trees["inline"], steps=3, verify=True)


@pytest.mark.parametrize("form", FORMS[1:])
def test_the_same_bits_as_inline(trees: dict[str, Path], wanted: RunResult, form: str) -> None:
    found = run(trees[form], steps=3, verify=True)
    assert found.verified
    assert found.losses == wanted.losses
    assert bits(found) == bits(wanted)
    assert found.moved_bytes == wanted.moved_bytes
    assert found.data_folder == (trees[form] / "model").resolve()
    assert found.drawn.weights == found.drawn.inputs == wanted.drawn.weights == ()
    assert wanted.data_folder is None


def test_all_of_it_moved(tree: Path, wanted: RunResult) -> None:
    found = run(tree, steps=3)
    assert (found.data_folder, found.losses[0]) == (tree / "model", wanted.losses[0])


def test_the_plan_alone_moved(trees: dict[str, Path], wanted: RunResult, tmp_path: Path) -> None:
    shutil.copytree(trees["one file"] / "plans/plan", tmp_path / "plan")
    found = api.run(tmp_path / "plan", inputs=trees["one file"] / "batch.npz")
    assert (found.data_folder, found.losses[0]) == (trees["one file"] / "model", wanted.losses[0])


def test_the_data_moved(tree: Path, wanted: RunResult) -> None:
    (tree / "model").rename(tree / "elsewhere")
    found = run(tree, data_dir=tree / "elsewhere")
    assert (found.data_folder, found.losses[0]) == (tree / "elsewhere", wanted.losses[0])


def test_a_plan_of_the_same_model_elsewhere_is_of_the_same_model(tree: Path) -> None:
    other = api.plan(tree / "work/train.onnx", gpus=2, effort="quick", out=tree / "a/b/plan")
    first = json.loads((tree / "plans/plan/plan.json").read_text())["model_digest"]
    assert other.plan.model_digest == first
    run(tree, steps=2, checkpoint_dir=tree / "ck")
    resumed = api.run(other.directory, inputs=tree / "batch.npz", steps=3, checkpoint_dir=tree / "ck", resume=True)
    assert resumed.first_step == 3


def test_what_checkpoint_and_weights_hold_is_not_read(tree: Path) -> None:
    run(tree, steps=2, checkpoint_dir=tree / "ck", export=tree / "all.safetensors")
    kept = {tensor.name: numpy_helper.to_array(tensor) for tensor in forward_model().graph.initializer}
    np.savez(tree / "frozen.npz", frozen=kept["frozen"], scale=kept["scale"])
    (tree / "model/weights.bin").unlink()
    again = run(tree, steps=3, checkpoint_dir=tree / "ck", resume=True, weights=tree / "frozen.npz")
    straight = run(tree, steps=3, data_dir=save(forward_model(), tree / "again" / "m.onnx", "one file").parent)
    assert bits(again) == bits(straight)
    assert again.drawn.weights == ()
    with pytest.raises(ModelError, match="2 of 2 tensors"):
        run(tree, weights=tree / "all.safetensors")


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert cli.main(list(arguments)) == code
    captured = capsys.readouterr()
    lines = captured.err.splitlines(keepends=True)
    return captured.out, "".join(line for line in lines if not line.startswith("step "))


def test_weights_that_are_not_there(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, batch = str(tree / "plans/plan"), str(tree / "batch.npz")
    (tree / "model/weights.bin").unlink()
    out, err = answer(capsys, "run", plan, "--inputs", batch, "--verify", code=2)
    assert out == ""
    assert f"error: weights cannot be read from {tree}/model: 5 of 5 tensors" in err
    assert err.count("weights.bin is not there") == 1
    assert "  w0, b0, w1" in err
    assert all(way in err for way in ("hint: ", "--data-dir DIR", "--weights FILE", "--weights random"))
    out, err = answer(
        capsys, "run", plan, "--inputs", batch, "--verify", "--weights", "random", "--json", "--seed", "5"
    )
    found = json.loads(out)
    assert found["verified"]
    size = 4 * (12 * 30 + 30 + 30 * 5 + 8 * 30 + 1)
    assert found["drawn"] == {"weights": {"tensors": 5, "bytes": size, "seed": 5}, "inputs": []}
    assert found["data_dir"] is None
    assert err == "no weights in the model: random ones (seed 5): 5 tensors, 3.1 kB\n"
    assert "no such folder" in answer(capsys, "run", plan, "--data-dir", f"{plan}x", code=2)[1]
    assert "or drawn?" in answer(capsys, "run", plan, "--data-dir", plan, "--weights", "random", code=2)[1]


def test_a_folder_that_a_stranger_names_is_not_read_unasked(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There are files of those names and sizes, and no model beside them that says so."""
    plan, batch, secret = tree / "plans/plan", str(tree / "batch.npz"), tree / "secret"
    secret.mkdir()
    (tree / "model/weights.bin").rename(secret / "weights.bin")
    manifest = json.loads((plan / "manifest.json").read_text())

    def edit(model: str, digest: str) -> None:
        manifest["data_folder"] = [str(secret), str(secret), model, digest]
        (plan / "manifest.json").write_text(json.dumps(manifest))

    for model, digest in (manifest["data_folder"][2:], ("", "")):
        edit(model, digest)
        out, err = answer(capsys, "run", str(plan), "--inputs", batch, code=2)
        assert out == ""
        assert "error: weights are external data, and the folder that is recorded is read only if asked for" in err
        assert f"  recorded as their folder: {str(secret)!r}, where no " in err
        assert "--data-dir DIR" in err
    assert run(tree, data_dir=secret).data_folder == secret
    shutil.copy(tree / "model/m.onnx", secret)
    edit("m.onnx", digest_of(secret / "m.onnx"))
    assert run(tree).data_folder == secret


def test_data_that_lacks_an_input(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(tree / "plans/plan")
    np.savez(tree / "nothing.npz", learning_rate=np.float32(0.1))
    _, err = answer(capsys, "run", plan, "--inputs", str(tree / "nothing.npz"), code=2)
    assert "nothing.npz lacks inputs of the model\n  x: float32 [8, 12]\n  labels: int64 [8]\n" in err
    (tree / "batches").mkdir()
    np.savez(tree / "batches/1.npz", **BATCH)
    np.savez(tree / "batches/2.npz", x=BATCH["x"])
    _, err = answer(capsys, "run", plan, "--inputs", str(tree / "batches"), "--steps", "2", code=2)
    assert "2.npz lacks inputs of the model\n  labels: int64 [8]\n" in err
    out, err = answer(capsys, "run", plan, "--json")
    assert json.loads(out)["drawn"] == {"weights": {"tensors": 0, "bytes": 0, "seed": 0}, "inputs": ["x", "labels"]}
    assert err == "no --inputs: random data (seed 0) for x, labels\n"


def test_weights_that_a_model_never_had(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tmp_path / "zoo.onnx")
    answer(capsys, "zoo", "mlp-2x64", "-o", model)
    answer(capsys, "plan", model, "--gpus", "2", "--effort", "quick", "-o", str(tmp_path / "plan"))
    out, err = answer(capsys, "run", str(tmp_path / "plan"), "--json")
    found = json.loads(out)["drawn"]
    assert found["weights"]["tensors"] > 0
    assert found["weights"]["bytes"] > 0
    assert err.startswith(f"no weights in the model: random ones (seed 0): {found['weights']['tensors']} tensors, ")
    assert err.count("\n") == 2


def test_exports(tree: Path) -> None:
    forward = tree / "model/m.onnx"
    found = run(tree, steps=2, export=tree / "model/out.onnx", forward=forward)
    assert set(found.exported) == {"w0", "b0", "w1"}
    filled = {t.name: numpy_helper.to_array(t) for t in onnx.load(tree / "model/out.onnx").graph.initializer}
    assert filled["w0"].tobytes() == found.results["w0.next"].tobytes()
    assert filled["frozen"].shape == (8, 30)
    with pytest.raises(UsageError, match="external data that is not trained") as caught:
        run(tree, steps=2, export=tree / "out.onnx", forward=forward, progress=never)
    assert caught.value.facts == ("frozen", "scale")


def never(line: str, **_numbers: int | None) -> None:
    assert "step" not in line, "no step is done"


def test_narrow_and_wide_constants_of_a_forward_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    weights = {
        "q": rng.integers(-8, 8, (12, 21)).astype(ml_dtypes.int4),
        "s": rng.uniform(0.1, 1, 21).astype(np.float32),
        "half": rng.standard_normal((21, 10)).astype(ml_dtypes.bfloat16),
        "double": rng.standard_normal((10,)).astype(np.float64),
        "rows": rng.integers(0, 10, (37,)).astype(np.int64),
        "keep": rng.integers(0, 2, (8, 37)).astype(bool),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=1),
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Cast", ["half"], ["v"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["h", "v"], ["g"]),
        helper.make_node("Cast", ["double"], ["b"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["g", "b"], ["a"]),
        helper.make_node("Gather", ["a", "rows"], ["r"], axis=1),
        helper.make_node("Where", ["keep", "r", "zero"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    tensors.append(numpy_helper.from_array(np.zeros((), np.float32), "zero"))
    values = [helper.make_tensor_value_info(name, 1, [8, size]) for name, size in (("x", 12), ("y", 37))]
    graph = helper.make_graph(nodes, "narrow", values[:1], values[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    np.savez(tmp_path / "x.npz", x=BATCH["x"])
    results = []
    for form in FORMS:
        file = save(model, tmp_path / form / "m.onnx", form)
        plan = api.plan(file, gpus=3, effort="quick", out=tmp_path / form / "plan").directory
        results.append(api.run(plan, inputs=tmp_path / "x.npz", verify=True))
        assert results[-1].verified
    assert bits(results[1]) == bits(results[2]) == bits(results[0])


@pytest.mark.parametrize("form", chosen(FORMS[1:], fast=FORMS[1:2]))
def test_training_information(tmp_path: Path, form: str) -> None:
    losses = []
    for kind in ("inline", form):
        file = save(forward_model(), tmp_path / kind / "m.onnx", kind)
        info = tmp_path / kind / "elsewhere" / "info.onnx"
        info.parent.mkdir()
        wishes = {"loss": "softmax_cross_entropy", "optimizer": "sgd", "freeze": ("frozen",)}
        api.grad(file, **wishes, form="training-info", output=info)
        plan = api.plan(info, gpus=2, effort="quick", out=tmp_path / kind / "plan").directory
        losses.append(api.run(plan, inputs=batch_of(tmp_path), verify=True).losses)
    assert losses[0] == losses[1]


def batch_of(folder: Path) -> Path:
    np.savez(folder / "batch.npz", **BATCH)
    return folder / "batch.npz"


def test_artifacts_of_onnxruntime_training(tmp_path: Path) -> None:
    source = Path(__file__).parent.parent / "models" / "ort_training_mlp" / "training_model.onnx"
    model = onnx.load(source)
    assert model.graph.initializer
    results = []
    for form in FORMS[:2]:
        save(model, tmp_path / form / "training_model.onnx", form)
        (tmp_path / form / "out").mkdir()
        api.grad(tmp_path / form, optimizer="sgd", output=tmp_path / form / "out" / "train.onnx")
        plan = api.plan(tmp_path / form / "out/train.onnx", gpus=2, effort="quick", out=tmp_path / form / "p").directory
        results.append(api.run(plan, verify=True))
    assert bits(results[0]) == bits(results[1])
