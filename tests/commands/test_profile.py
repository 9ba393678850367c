"""``tofu profile``: what it prints and writes, and what it refuses; ``--profile`` of a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import model_file
from planner.commands import main as cli

MACHINE = "name: two\ndevice: {memory: 1GiB}\nlevels: [{name: link, ways: 2, bandwidth: 1GB/s}]\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    model_file(tmp_path, "x")
    (tmp_path / "two.yaml").write_text(MACHINE)
    return tmp_path


def test_a_profile_as_a_table_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main("profile model.onnx --gpus 2 -o p.yaml".split()) == 0
    table = capsys.readouterr().out
    assert "p.yaml" in table
    assert "what takes longest" in table
    assert "float32[4,3]" in table
    assert cli.main("profile model.onnx --gpus 2 -o p.yaml --json".split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema_version"] == 1
    assert found["output"] == "p.yaml"
    assert {entry["inputs"] for entry in found["measured"]} == {"float32[4,6]", "float32[2,6]", "float32[4,3]"}
    assert found["unmeasured"] == []
    assert found["model_seconds"] == next(
        entry["seconds"] for entry in found["measured"] if entry["inputs"] == "float32[4,6]"
    )
    assert Path("p.yaml").read_text().startswith("profile: 1\n")


def test_a_plan_says_how_much_was_measured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # of a comparison
    assert cli.main("profile model.onnx --topology two.yaml".split()) == 0
    line = "plan model.onnx --topology two.yaml --objective time --profile model.profile.yaml -o p"
    assert cli.main(line.split()) == 0
    assert "1 of 1 ops as measured" in " ".join(capsys.readouterr().out.split())
    assert cli.main("explain p --json".split()) == 0
    sources = json.loads(capsys.readouterr().out)["estimate"]["sources"]
    assert (sources["measured_ops"], sources["scaled_ops"], sources["roofline_ops"]) == (1, 0, 0)
    assert sources["roofline_factor"] is None
    assert cli.main("compare p".split()) == 0
    assert "1 of 1 ops" in capsys.readouterr().out
    assert cli.main("compare p --json".split()) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows[0]["sources"]["measured_ops"] == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("profile", "missing argument 'MODEL'"),
        ("profile model.onnx -o p.txt", "-o p.txt: a profile is written as .yaml, .yml"),
        ("profile model.onnx --memory 1Gib", "unknown unit"),
        ("profile model.onnx --device tpu", "'tpu' is not one of 'cpu', 'cuda'"),
        ("profile model.onnx --topology two.yaml --gpus 3", "has 2 devices, and 3 GPUs are asked for"),
        ("plan model.onnx --gpus 2 --profile no.yaml", "--profile no.yaml: times are estimated for a topology"),
        ("plan model.onnx --topology two.yaml --profile no.yaml", "--profile no.yaml: cannot be read"),
        ("plan model.onnx --topology two.yaml --profile two.yaml", "line 1: the file: unknown key 'name'"),
    ],
)
def test_what_is_refused(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert not list(Path().glob("*.tofu*"))


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profile", "--help"]) == 0
    assert "tofu plan train.onnx --topology dgx-h100 --objective time --profile h100.yaml" in capsys.readouterr().out
