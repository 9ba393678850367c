"""The command line with what is behind it replaced, and in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from planner.commands import main as cli

ROOT = Path(cli.__file__).parents[2]
COMMANDS = ("grad", "plan", "explain", "report", "run")
GOOD_LINES = {
    "grad": "grad m.onnx --loss mse --optimizer sgd",
    "plan": "plan m.onnx --gpus 2",
    "explain": "explain ./p",
    "report": "report ./p -o page.html",
    "run": "run ./p",
}


@dataclass(frozen=True)
class Answer:
    """What a command's function returns, for all of them."""

    schema_version: ClassVar = 1
    told: ClassVar = "command é"

    command: str
    é: object = "×"
    verified: bool | None = None
    is_passed: bool = True
    is_held: bool = True
    is_interrupted: bool = False


class Door:
    """Stands for ``planner.api`` and the report: notes the calls, answers as told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answer: Callable[[], object] = lambda: None
        self.shown: Callable[[Any], None] = lambda out: print("table", file=out)

    def call(self, command: str, *args: Any, **options: Any) -> object:
        tell = options.pop("progress", None)
        options.pop("notice", None)
        options.pop("stop", None)
        options.pop("on_step", None)
        self.calls.append((command, args, options))
        if tell is not None:
            tell("reading [conv1]")
        print("a library speaks")
        answer = self.answer()
        return answer if isinstance(answer, Answer) else Answer(command)


def take_as_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has commands take models and plans that lines name to be there, for one test."""
    monkeypatch.setattr("planner.graph.reading.named_file.require_model", lambda file: None)
    monkeypatch.setattr("planner.artifacts.place.require_plan", lambda directory: directory)


def raises(error: BaseException) -> Callable[[], object]:
    """An answer of the door that is an error."""

    def answer() -> object:
        raise error

    return answer


def assert_refused(line: str, says: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """The line is bad usage: said so on stderr, and nothing is called."""
    assert cli.main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert says in err
    assert not door.calls


def tofu(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A run in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "planner", *arguments], cwd=ROOT, text=True, capture_output=True, timeout=300, **options
    )


def model_file(folder: Path, name: str) -> Path:
    """A Relu of [4, 6] whose input has this name."""
    from onnx import TensorProto, helper, save_model

    values = [helper.make_tensor_value_info(tensor, TensorProto.FLOAT, [4, 6]) for tensor in (name, "y")]
    graph = helper.make_graph([helper.make_node("Relu", [name], ["y"], "relu")], "g", values[:1], values[1:])
    file = folder / "model.onnx"
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), file)
    return file
