"""What cannot be planned: one clear error, the right exit code, and nothing written."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from planner.commands import main as cli

MODELS = Path(__file__).parent.parent / "models"


def model_file(path: Path, nodes: list[onnx.NodeProto], shape: list[int | str], **more: object) -> Path:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", [value], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10, **more).SerializeToString())
    return path


def refused(arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    assert cli.main(arguments) == code
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == before, "nothing is written"
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("error: ") == 1
    return captured.err


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_that_is_not_onnx(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "notes.onnx").write_text("# Notes\nThis is no model.\n")
    assert "notes.onnx" in refused(["plan", "notes.onnx", "--gpus", "2"], here, capsys)


def test_a_file_that_is_cut_off(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = (MODELS / "resnet50.onnx").read_bytes()
    (here / "half.onnx").write_bytes(content[: len(content) // 2])
    assert "half.onnx" in refused(["plan", "half.onnx", "--gpus", "2"], here, capsys)


def test_no_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "none.onnx" in refused(["plan", "none.onnx", "--gpus", "2"], here, capsys)


def test_a_symbolic_dim_without_a_size(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_file(here / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], ["batch", 4])
    text = refused(["plan", "m.onnx", "--gpus", "2"], here, capsys)
    assert "batch" in text
    assert "--dim batch=" in text
    assert cli.main(["plan", "m.onnx", "--gpus", "2", "--dim", "batch=8"]) == 0


def test_all_unknown_operators_are_listed_at_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], domain="mine"),
        helper.make_node("Defrost", ["a"], ["y"], domain="mine"),
    ]
    model_file(here / "m.onnx", nodes, [8, 4])
    text = refused(["plan", "m.onnx", "--gpus", "2"], here, capsys)
    assert "Frobnicate" in text
    assert "Defrost" in text


@pytest.mark.parametrize("count", ["0", "-3", "two"])
def test_a_number_of_gpus_that_is_none(here: Path, capsys: pytest.CaptureFixture[str], count: str) -> None:
    assert "--gpus" in refused(["plan", str(MODELS / "resnet50.onnx"), "--gpus", count], here, capsys)


def test_an_output_folder_that_exists(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "plan").mkdir()
    (here / "plan" / "mine.txt").write_text("mine")
    text = refused(["plan", str(MODELS / "resnet50.onnx"), "--gpus", "2", "-o", "plan"], here, capsys)
    assert "plan exists" in text


def test_more_gpus_than_the_largest_tensor_has_elements_is_infeasible(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model_file(here / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], [3, 2])
    assert "largest tensor" in refused(["plan", "m.onnx", "--gpus", "7"], here, capsys, code=1)


def test_fewer_than_that_and_what_cannot_be_split_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_file(here / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], [3, 2])
    assert cli.main(["plan", "m.onnx", "--gpus", "5", "-o", "plan"]) == 0
    assert cli.main(["explain", "plan"]) == 0
    assert "not split" in capsys.readouterr().out


def test_a_worker_of_another_plan(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(MODELS / "mlp_grads_core.onnx")
    assert cli.main(["plan", model, "--gpus", "2", "-o", "two"]) == 0
    assert cli.main(["plan", model, "--gpus", "4", "-o", "four"]) == 0
    (here / "two" / "worker0.onnx").write_bytes((here / "four" / "worker0.onnx").read_bytes())
    capsys.readouterr()
    assert "worker0.onnx" in refused(["run", "two"], here, capsys)
