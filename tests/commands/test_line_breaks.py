"""Names with line breaks: whatever is said of a model, its names begin no line of their own, and no command to a CI."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, save_model

from planner.commands import main as cli
from planner.errors import TofuError
from planner.printable import printable

COMMAND = re.compile(r"^\s*(::|##\[|pwned)", re.MULTILINE)
N = "\n::error::pwned"


def model(folder: Path, *, op_type: str = "MatMul", name: str = "op", width: int = 6) -> str:
    """A product of tensors whose names begin with a line break."""
    values = [
        helper.make_tensor_value_info(f"{N} {tensor}", TensorProto.FLOAT, shape)
        for tensor, shape in (("x", [8, 6]), ("w", [width, 4]), ("y", [8, 4]))
    ]
    node = helper.make_node(op_type, [f"{N} x", f"{N} w"], [f"{N} y"], f"{N} {name}")
    graph = helper.make_graph([node], f"{N} graph", values[:2], values[2:])
    file = folder / "m.onnx"
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), file)
    return str(file)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = cli.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_what_a_text_is_made_of() -> None:
    assert printable("a\nb") == r"a\nb"
    assert printable("a\n ::b", keep="\n") == "a\n \\x3a:b"
    assert printable(" ##[error]x") == r" \x23#[error]x"
    assert printable("aten::add ##[x]") == "aten::add ##[x]"
    error = TofuError("a\nb", facts=("::error::c", "d\ne"), hint="f\ng")
    assert str(error) == "a\\nb\n  \\x3a:error::c\n  d\\ne\nhint: f\ng"
    assert error.facts == (r"\x3a:error::c", r"d\ne")


def test_no_command_lets_a_name_begin_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, good = str(tmp_path / "p"), model(tmp_path)
    np.savez(tmp_path / "wrong.npz", **{f"{N} x": np.zeros(3, np.float32), f"{N} z": np.zeros(3, np.float32)})
    lines = [
        (0, "plan", good, "--gpus", "2", "-o", plan),
        (0, "explain", plan),
        (0, "explain", plan, f"{N} w"),
        (2, "explain", plan, f"{N} v"),
        (0, "run", plan),
        (2, "run", plan, "--inputs", str(tmp_path / "wrong.npz")),
        (2, "run", plan, "--loss", f"{N} y"),
        (2, "plan", good, "--gpus", "2", "--pin", f"{N} w=S(7)"),
        (2, "plan", good, "--gpus", "2", "--pin", f"{N} u=S(0)"),
        (2, "plan", good, "--gpus", "2", "--dim", f"{N}=3"),
        (2, "grad", good, "--loss", "mse", "--optimizer", "sgd", "--loss-input", f"{N} u"),
    ]
    ended = [said(capsys, *line[1:]) for line in lines]
    assert [code for code, _ in ended] == [line[0] for line in lines]
    texts = [text for _, text in ended]
    assert [found for text in texts for found in COMMAND.findall(text)] == []
    assert sum("pwned" in text for text in texts) >= 10


@pytest.mark.parametrize(
    ("options", "told"),
    [({"op_type": "Frob"}, "has no description"), ({"width": 5}, "contradict what they read"), ({"op_type": ""}, "")],
)
def test_a_model_that_is_refused(
    options: dict[str, str],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "op_type" in options:
        options = {"op_type": f"{options['op_type']}{N}"}
    (tmp_path / "b.json").write_text('{"schema_version": 2, "models": {}}')
    file, baseline = model(tmp_path, **options), str(tmp_path / "b.json")
    for on_github in (False, True):
        monkeypatch.setenv("GITHUB_ACTIONS", str(on_github).lower())
        code, text = said(capsys, "check", file, "--gpus", "2", "--baseline", baseline, "--update")
        assert code == 2
        assert told in text
        commands = [line for line in text.splitlines() if COMMAND.match(line)]
        assert len(commands) == on_github
        assert all(line.startswith(f"::error file={baseline},title=") for line in commands)
