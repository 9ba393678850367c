"""``tofu grad``: what it passes on, what it refuses, and what it does not write over."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper, parser

from command_line import ROOT, Door, assert_refused, model_file
from planner.commands import main as cli
from planner.graph.reading.from_onnx import read_model
from planner.options.training import TrainingOptions


def test_grad_passes_its_options(door: Door) -> None:
    line = "grad m/net.onnx --loss mse --optimizer momentum --lr 0.05 --momentum 0.8 --batch 8 --batchnorm frozen"
    assert cli.main([*line.split(), "--dim", "a=3", "--dim", "b=b=4", "-o", "out.onnx"]) == 0
    assert door.calls == [
        (
            "grad",
            (Path("m/net.onnx"),),
            {
                "loss": "mse",
                "optimizer": "momentum",
                "lr": 0.05,
                "momentum": 0.8,
                "batch": 8,
                "batchnorm": "frozen",
                "dim": {"a": 3, "b=b": 4},
                "output": Path("out.onnx"),
            },
        )
    ]


def test_grad_defaults(door: Door) -> None:
    assert cli.main("grad m/net.onnx --loss softmax_cross_entropy --optimizer sgd".split()) == 0
    options = door.calls[0][2]
    assert options["batchnorm"] == "train"
    assert not {"output", "batch", "dim"} & options.keys()
    assert TrainingOptions(loss="mse", optimizer="sgd").rate == 0.01
    assert not {"lr", "momentum", "betas", "weight_decay", "clip_norm", "precision"} & options.keys()


def test_grad_passes_a_zero(door: Door) -> None:
    line = "grad n.onnx --loss nll --optimizer momentum --momentum 0 --ignore-index 0 --class-axis 0"
    assert cli.main(line.split()) == 0
    options = door.calls[0][2]
    assert (options["momentum"], options["ignore_index"], options["class_axis"]) == (0.0, 0, 0)


def test_grad_passes_what_is_stated(door: Door) -> None:
    line = (
        "grad n.onnx --loss nll --optimizer adamw --betas 0.8 0.9 --epsilon 1e-6 --weight-decay 0.1 --group *.b:lr=2x"
    )
    more = "--group *:decay=0 --clip-norm 1 --accumulate 4 --precision float16 --loss-scale dynamic --dropout train"
    labels = "--class-weights 1,0.5 --ignore-index -100 --loss-input y --gradients p.yaml"
    labels += " --class-axis -1 --shift --tokens ids --params w.* --params b"
    assert cli.main([*line.split(), *more.split(), *labels.split()]) == 0
    options = door.calls[0][2]
    assert (options["betas"], options["epsilon"], options["weight_decay"]) == ((0.8, 0.9), 1e-6, 0.1)
    assert options["group"] == ("*.b:lr=2x", "*:decay=0")
    assert (options["clip_norm"], options["accumulate"]) == (1.0, 4)
    assert (options["precision"], options["loss_scale"], options["dropout"]) == ("float16", "dynamic", "train")
    assert (options["class_weights"], options["ignore_index"], options["loss_input"]) == ((1.0, 0.5), -100, "y")
    assert options["params"] == ("w.*", "b")
    assert (options["class_axis"], options["shift"], options["tokens"]) == (-1, True, "ids")
    assert options["gradients"] == Path("p.yaml")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("grad m.onnx --loss mse --optimizer adan", "'adan' is not one of 'sgd', 'momentum'"),
        ("grad m.onnx --loss nll --optimizer sgd --class-weights 1,x", "'1,x' is not a list of numbers"),
        ("grad m.onnx --loss nll --optimizer sgd --loss-scale 0", "'0' is not a finite number above zero"),
        ("grad m.onnx --loss mse --optimizer sgd --lr nan", "invalid value for '--lr': 'nan' is not a finite number"),
        ("grad m.onnx --loss mse --optimizer sgd --lr 0", "'0' is not a finite number above zero"),
        ("grad m.onnx --loss mse --optimizer sgd --lr inf", "'inf' is not a finite number above zero"),
        ("grad m.onnx --loss mse --optimizer sgd --lr x", "'x' is not a finite number above zero"),
        (
            "grad m.onnx --loss mse --optimizer momentum --momentum 1",
            "'1' is not a number from 0 up to, and without, 1",
        ),
    ],
)
def test_bad_usage(line: str, says: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(line, says, door, capsys)


@pytest.mark.parametrize("spelt", ["model.onnx", "./model.onnx", "sub/../model.onnx", "link.onnx"])
def test_grad_does_not_overwrite_its_model(
    spelt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = model_file(tmp_path, "x")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.onnx").symlink_to(model)
    before = model.read_bytes()
    assert cli.main(["grad", "model.onnx", "--loss", "mse", "--optimizer", "sgd", "-o", spelt]) == 2
    assert "is the model that is read" in capsys.readouterr().err
    assert model.read_bytes() == before


def test_grad_does_not_overwrite_an_artifact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "training_model.onnx").write_bytes(b"model")
    assert cli.main(["grad", "a", "-o", "a/training_model.onnx"]) == 2
    assert "is the model that is read" in capsys.readouterr().err


WEIGHTS = {"W": (4, 4), "V": (4, 3), "b": (3,)}
ROUNDED = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[8, 4] x) => (float[8, 3] y) <float[4, 4] W, float[4, 3] V, float[3] b, float s = {2.0}> {
        h = MatMul (x, W)  steps = Round (h)  scaled = Mul (steps, s)  z = MatMul (scaled, V)  y = Add (z, b)
    }"""


def test_grad_names_what_gets_no_gradient(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of W comes through the rounding; the scalar s has a name, so it is listed, which says of no parameter."""
    model = parser.parse_model(ROUNDED)
    drawn = np.random.default_rng(0)
    weights = {name: drawn.standard_normal(shape).astype(np.float32) for name, shape in WEIGHTS.items()}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    line = ["grad", str(tmp_path / "m.onnx"), "--loss", "mse", "--optimizer", "sgd", "-o", str(tmp_path / "t.onnx")]
    assert cli.main(line) == 0
    # A heading and the names below it, where a table had columns that broke names inside.
    table = capsys.readouterr().out
    assert "trained: 2 tensors, 15 elements\n  V, b\n" in table
    assert "frozen: 1 tensor, 16 elements: no gradient reaches it (read by MatMul)\n  W\n" in table
    assert cli.main([*line, "--json"]) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)["frozen"], err) == (["W", "s"], "")
    assert json.loads(out)["parameters"][0] == {
        "name": "W", "shape": [4, 4], "verdict": "frozen", "why": "no gradient reaches it (read by MatMul)",
        "evidence": ["gradient"],
    }  # fmt: skip
    step = read_model(tmp_path / "t.onnx")
    assert {pair.current for pair in step.state} == {"V", "b"}
    np.testing.assert_array_equal(step.constants["W"], weights["W"])


def test_grad_counts_frozen_statistics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ResNet-50 has 53 normalisations, each with a mean and a variance: state, if they are not frozen."""
    model = ROOT / "tests" / "models" / "resnet50.raw.onnx"
    line = ["grad", str(model), "--loss", "softmax_cross_entropy", "--optimizer", "sgd", "-o", str(tmp_path / "t.onnx")]
    assert cli.main([*line, "--json", "--batchnorm", "frozen"]) == 0
    out, err = capsys.readouterr()
    frozen = json.loads(out)["frozen"]
    assert len(frozen) == 106
    assert all(name.rpartition(".")[2] in ("running_mean", "running_var") for name in frozen)
    assert err == ""
    assert cli.main([*line, "--batchnorm", "frozen"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[1:])) <= 80, "but for the path of the file"
    below = lines[next(index for index, line in enumerate(lines) if line.startswith("frozen")) + 1 :]
    layers = "m.resnet.encoder.stages.*.layers.*.layer.* x96, m.resnet.encoder.stages.*.layers.0 x8"
    assert " ".join(" ".join(below).split()) == f"{layers}, m.resnet.embedder.embedder x2"
    assert cli.main([*line, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["frozen"] == []
    assert [row["name"] for row in answer["parameters"] if row["verdict"] == "statistic"] == frozen


LANGUAGE = """<ir_version: 10, opset_import: ["" : 21]>
    g (int64[2, 4] ids) => (float[2, 4, 6] logits) <float[6, 3] embed, float[3, 6] head> {
        e = Gather (embed, ids)  t = Tanh (e)  logits = MatMul (t, head)
    }"""


def language_model(folder: Path) -> Path:
    model = parser.parse_model(LANGUAGE)
    drawn = np.random.default_rng(0)
    for name, shape in (("embed", (6, 3)), ("head", (3, 6))):
        value = drawn.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    (folder / "lm.onnx").write_bytes(model.SerializeToString())
    return folder / "lm.onnx"


def test_grad_says_what_each_input_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = language_model(tmp_path)
    line = ["grad", str(model), "--loss", "softmax_cross_entropy", "--optimizer", "sgd", "-o", str(tmp_path / "t.onnx")]
    assert cli.main([*line, "--ignore-index", "-100"]) == 0
    table = capsys.readouterr().out
    assert "  ids: int64 [2, 4], indices 0 to 5\n" in table
    assert "  labels: int64 [2, 4], classes 0 to 5, -100 is ignored\n" in table
    assert cli.main([*line, "--shift", "--json"]) == 0
    meaning = "tokens 0 to 5; the label of each position is the next one, the last has none"
    assert json.loads(capsys.readouterr().out)["data"] == [
        {"name": "ids", "dtype": "int64", "shape": [2, 4], "meaning": meaning},
        {"name": "learning_rate", "dtype": "float32", "shape": [], "meaning": "0.01 unless given"},
    ]


def test_grad_refuses_to_guess_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both commands are printed, with the model's own name, and run as they stand."""
    text = LANGUAGE.replace("logits = MatMul (t, head)", "h = MatMul (t, head)  b = Abs (head)  logits = Mul (h, k)")
    text = text.replace("float[3, 6] head>", "float[3, 6] head, float[2, 4, 6] k>").replace(
        "MatMul (t, head)", "Tile (t, r)"
    )
    model = parser.parse_model(text.replace("k>", "k, int64[3] r = {1, 1, 2}>"))
    drawn = np.random.default_rng(0)
    for name, shape in (("embed", (6, 3)), ("head", (3, 6)), ("k", (2, 4, 6))):
        value = drawn.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    file = tmp_path / "two.onnx"
    file.write_bytes(model.SerializeToString())
    out = ["-o", str(tmp_path / "t.onnx"), "--train", "k"]
    assert cli.main(["grad", str(file), "--loss", "nll", "--optimizer", "sgd", *out]) == 2
    said = capsys.readouterr().err
    commands = [line.strip() for line in said.splitlines() if line.strip().startswith("tofu grad")]
    assert [command.partition(": ")[2] for command in commands] == [
        "6 classes, labels [2, 4]",
        "4 classes, labels [2, 6]",
    ]
    codes = [cli.main([*command.partition(": ")[0].split()[1:], *out]) for command in commands]
    assert codes == [0, 0]


def test_a_batch_that_has_no_size_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[N, 6] x) => (float[N, 2] y) <float[6, 2] w = {0,0,0,0,0,0,0,0,0,0,0,0}> { y = MatMul(x, w) }"""
    )
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    line = ["grad", str(tmp_path / "m.onnx"), "--loss", "mse", "--optimizer", "sgd", "-o", str(tmp_path / "t.onnx")]
    sizes = "give sizes to the symbolic dims: --dim N=SIZE"
    for more, hint in (([], sizes), (["--batch", "8"], f"--batch changes a batch that has a size; {sizes}")):
        assert cli.main([*line, *more]) == 2
        assert capsys.readouterr().err.splitlines()[-1] == f"hint: {hint}"


def test_no_folder_is_made_for_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["grad", str(model_file(tmp_path, "x")), "--loss", "mse", "--optimizer", "sgd"]
    assert cli.main([*line, "-o", str(tmp_path / "no" / "t.onnx")]) == 2
    assert f"there is no folder {tmp_path}/no\nhint: make it first" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
