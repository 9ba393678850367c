"""``tofu plan``: what it passes on, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Door, assert_refused
from planner.commands import main as cli


def test_plan_passes_its_options(door: Door) -> None:
    line = "plan t.onnx --gpus 8 --topology p2.8xlarge --dim b=2 --strategy data --input-tiling partitioned -o d"
    line += " --forbid act*=R --forbid act*=S(1) --replicate weights --objective time --memory 12GiB --share none"
    line += " --op-schedule stepped --recompute h.*.scores --recompute *.gelu"
    assert cli.main([*line.split(), "--pin", "W=S(0)", "--pin", "a/b=0=S(1)/2 R/4"]) == 0
    assert door.calls == [
        (
            "plan",
            (Path("t.onnx"),),
            {
                "gpus": 8,
                "topology": "p2.8xlarge",
                "objective": "time",
                "memory": "12GiB",
                "dim": {"b": 2},
                "strategy": "data",
                "pin": {"W": "S(0)", "a/b=0": "S(1)/2 R/4"},
                "forbid": (("act*", "R"), ("act*", "S(1)")),
                "replicate": "weights",
                "inputs": "partitioned",
                "share": "none",
                "op_schedule": "stepped",
                "recompute": ("h.*.scores", "*.gelu"),
                "out": Path("d"),
                "unknown_ops": "refuse",
            },
        )
    ]


def test_topology_alone_says_how_many(door: Door) -> None:
    assert cli.main(["plan", "t.onnx", "--topology", "p2.8xlarge"]) == 0
    assert "gpus" not in door.calls[0][2]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("plan m.onnx --gpu 2", "no such option '--gpu'\nhint: did you mean '--gpus'?"),
        ("plan m.onnx --zzz 2", "no such option '--zzz'\nhint: see tofu plan --help"),
        ("plan", "missing argument 'MODEL'\nhint: see tofu plan --help"),
        ("plan m.onnx", "plan: for how many GPUs?\nhint: write --gpus K, or --topology with a file or a name"),
        ("plan m.onnx --gpus 0", "invalid value for '--gpus': 0 is not in the range x>=1\nhint: see tofu plan --help"),
        ("plan m.onnx --gpus two", "invalid value for '--gpus': 'two' is not a whole number"),
        ("plan m.onnx n.onnx --gpus 2", "got unexpected extra argument (n.onnx)"),
        (
            "plan m.onnx --gpus 2 --input-tiling fre",
            "invalid value for '--input-tiling': 'fre' is not one of 'free', 'partitioned'",
        ),
        ("plan m.onnx --gpus 2 --input-tiling fre", "hint: did you mean 'free'?"),
        ("plan m.onnx --gpus 2 --pin W", "invalid value for '--pin': 'W' is not of the form TENSOR=TILING"),
        ("plan m.onnx --gpus 2 --pin =S(0)", "invalid value for '--pin': '=S(0)' is not of the form TENSOR=TILING"),
        ("plan m.onnx --gpus 2 --pin W=R --pin W=S(0)", "--pin: 'W' is given as R and as S(0)"),
        ("plan m.onnx --gpus 2 --dim b=0", "invalid value for '--dim': 'b=0': the size must be a whole number from 1"),
        ("plan m.onnx --gpus 2 --dim b=-1", "'b=-1': the size must be a whole number from 1"),
        (f"plan m.onnx --gpus 2 --dim b={'9' * 5000}", "the size must be a whole number from 1"),
    ],
)
def test_bad_usage(line: str, says: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(line, says, door, capsys)


def test_the_strategies_of_the_command_line_are_those_of_the_search() -> None:
    from planner.options.planning import STRATEGIES
    from planner.search import decide

    assert tuple(decide.STRATEGIES) == STRATEGIES
