"""``tofu run``: what it passes on, its verdict, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Answer, Door, assert_refused
from planner.commands import main as cli


def test_run_passes_its_options(door: Door) -> None:
    assert cli.main("run d --inputs f.npz --steps 5 --verify -o o.npz --seed 7".split()) == 0
    assert cli.main(["run"]) == 0
    assert cli.main("run --weights random --data-dir here".split()) == 0
    line = "run d --weights w.npz --lr 0.1 --checkpoint-dir c --checkpoint-every 3 --keep 2 --resume -o o.onnx"
    line += " --metric accuracy --eval-inputs e.npz --epochs 4 --shuffle 6 -o l.csv --log-every 5 --allow-nan"
    assert cli.main([*line.split(), *"--forward f.onnx --measure --device cuda:0,0,1 --patience 2.5".split()]) == 0
    nothing: dict[str, object] = {
        "device": "cpu",
        "engine": "local",
        "seed": 0,
        "patience": 300.0,
        "note": None,
    }
    few = {"inputs": Path("f.npz"), "steps": 5, "verify": True, "result": Path("o.npz"), "seed": 7}
    more = {
        "epochs": 4,
        "shuffle": 6,
        "metric": "accuracy",
        "eval_inputs": Path("e.npz"),
        "log": Path("l.csv"),
        "allow_nan": True,
        "weights": Path("w.npz"),
        "lr": "0.1",
        "checkpoint_dir": Path("c"),
        "checkpoint_every": 3,
        "keep": 2,
        "resume": True,
        "export": Path("o.onnx"),
        "forward": Path("f.onnx"),
        "profile": True,
        "device": "cuda",
        "device_map": (0, 0, 1),
        "patience": 2.5,
    }
    assert door.calls == [
        ("run", (Path("d"),), {**nothing, **few}),
        ("run", (None,), nothing),
        ("run", (None,), {**nothing, "weights": None, "random_weights": True, "data_dir": Path("here")}),
        ("run", (Path("d"),), {**nothing, **more}),
    ]


@pytest.mark.parametrize("text", ["", "0,", "a", "-1", "0 1"])
def test_a_map_that_is_none(text: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "d", "--device", f"cuda:{text}"]) == 2
    assert "write cpu, cuda, or cuda:0,0,1,1" in capsys.readouterr().err
    assert not door.calls


@pytest.mark.parametrize("json_wanted", [False, True])
def test_a_difference_is_shown_and_exits_with_1(
    json_wanted: bool, door: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    door.answer = lambda: Answer("run", verified=False)
    assert cli.main(["run", "--verify", *(["--json"] if json_wanted else [])]) == 1
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("run --steps 0", "invalid value for '--steps': 0 is not in the range x>=1"),
        ("run --seed -1", "invalid value for '--seed': -1 is not in the range x>=0"),
    ],
)
def test_bad_usage(line: str, says: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(line, says, door, capsys)


def test_the_patience_of_the_command_line_is_that_of_the_supervisor() -> None:
    from planner.options.running import RunOptions
    from planner.runtime.engine.process.patience import PATIENCE_SECONDS

    assert RunOptions().patience == PATIENCE_SECONDS
