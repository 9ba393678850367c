"""``tofu fit``: what is answered, printed and refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from command_line import ROOT
from planner import api
from planner.commands import main as cli
from planner.errors import UsageError
from planner.features.fit.batches import looked_at
from planner.features.fit.counts import batches_of, counts_of, range_of
from planner.features.fit.result import FitAnswer

SMALL = "fit mlp-2x40 --gpus 1..4"


def answer(**options: object) -> FitAnswer:
    """About a network whose plans are quickly found."""
    return api.fit("mlp-2x40", **{"gpus": [1, 2, 4], "batch": 64, **options}).answers[0]  # type: ignore[arg-type]


def test_the_example_is_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "plan.md").read_text()
    example = re.search(r"^    \$ (tofu fit mlp.*)\n((?:    .*\n|\n)+)", page, re.MULTILINE)
    assert example is not None
    assert cli.main(example[1].split()[1:]) == 0
    shown = "".join(line.removeprefix("    ") for line in example[2].splitlines(keepends=True))
    assert capsys.readouterr().out.startswith(shown.rstrip("\n"))


def test_more_workers_never_take_more() -> None:
    rows = answer(memory="60KiB").rows
    assert [row.workers for row in rows] == [1, 2, 4]
    least_bytes = [row.least_bytes for row in rows if row.least_bytes is not None]
    assert len(least_bytes) >= 2
    assert least_bytes == sorted(least_bytes, reverse=True)
    assert [row.fits for row in rows] == sorted(row.fits for row in rows)


@pytest.mark.slow
def test_more_memory_never_takes_more_workers() -> None:
    counts = [answer(memory=memory).workers for memory in ("30KiB", "45KiB", "90KiB")]
    assert counts == [4, 2, 1]


def test_what_takes_the_room_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SMALL.split(), "--memory", "1KiB", "--batch", "64", "--json"]) == 1
    answer_json = json.loads(capsys.readouterr().out)["answers"][0]
    assert (answer_json["workers"], answer_json["why_not"]["workers"]) == (None, 4)
    at_least = answer_json["rows"][-1]["at_least_bytes"]
    assert at_least <= sum(answer_json["why_not"]["purpose_bytes"].values()) <= at_least + 8
    assert cli.main([*SMALL.split(), "--memory", "1KiB", "--batch", "64"]) == 1
    assert "does not fit: up to 4 GPUs do not hold it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "fit: into how much memory?"),
        ("--memory 1GiB --within 1s", "times are estimated for a topology"),
        ("--memory 1GiB --gpus 4..2", "ends before it begins"),
        ("--memory 1GiB --gpus some", "is no number of GPUs"),
        ("--memory 1GiB --batch x", "is no number of samples"),
        ("--topology dgx-h100 --gpus 2,16", "has 8 devices"),
        ("--memory 1GiB --loss mse", "`tofu fit` takes a training graph"),
    ],
)
def test_what_cannot_be_answered_is_refused(options: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fit", "mlp-2x40", *options.split()]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert not out


@pytest.mark.slow
def test_the_first_that_fits_runs_within_its_memory(tmp_path: Path) -> None:
    result = api.fit("mlp-2x40", memory="45KiB", gpus="1..4", batch=64)
    assert result.answers[0].workers == 2
    api.zoo("mlp-2x40", batch=64, output=tmp_path / "step.onnx")
    api.plan(tmp_path / "step.onnx", gpus=2, memory="45KiB", out=tmp_path / "plan")
    ran = api.run(tmp_path / "plan", steps=1, verify=True)
    assert ran.verified
    assert max(api.explain(tmp_path / "plan").plan.peak_bytes) <= 45 * 1024


def test_the_page_has_a_chart_and_the_table(tmp_path: Path) -> None:
    api.fit("mlp-2x40", memory="60KiB", gpus=[1, 2], batch=64, page=tmp_path / "fit.html")
    page = (tmp_path / "fit.html").read_text()
    assert page.count("<svg") == 1
    assert "<th>least found</th>" in page
    assert "<script" not in page


def test_a_batch_that_cannot_be_changed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api.zoo("mlp-2x40", batch=64, output=tmp_path / "step.onnx")
    assert cli.main(["fit", str(tmp_path / "step.onnx"), "--memory", "1MiB", "--gpus", "1"]) == 0
    out = capsys.readouterr().out
    assert "largest batch: not looked for, since the file states its batch" in " ".join(out.split())
    assert "512" not in out


def test_what_grad_made_is_looked_at_in_several_batches(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((8, 4), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (16, size)) for name, size in (("x", 8), ("y", 4)))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "fc")], "net", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), tmp_path / "net.onnx")
    model = tmp_path / "train.onnx"
    api.grad(tmp_path / "net.onnx", loss="mse", optimizer="sgd", output=model)
    result = api.fit(model, memory="1KiB", gpus=[1, 2], batch="1..64")
    assert (result.batch, result.batches) == (16, (1, 64))
    largest_on_one, largest_on_two = (row.largest_batch for row in result.answers[0].rows)
    assert largest_on_one is not None
    assert largest_on_two is not None
    assert 1 <= largest_on_one < largest_on_two < 64

    def is_held(batch: int) -> bool:
        return api.fit(model, memory="1KiB", gpus=1, batch=batch).is_held

    assert is_held(largest_on_one)
    assert not is_held(largest_on_one + 4)
    (tmp_path / "net.onnx").unlink()
    fixed = api.fit(model, memory="1KiB", gpus=1)
    assert fixed.why_fixed == f"the file states its batch, and {tmp_path / 'net.onnx'} is not there"
    with pytest.raises(UsageError, match="--batch 8: the file states its batch"):
        is_held(8)


def test_counts_and_batches() -> None:
    assert counts_of("3..9", None) == (3, 4, 8, 9)
    assert range_of("1..2", "--gpus") == (1, 2)
    assert batches_of("8..16") == ((8, 16), None)
    assert looked_at(1, 40) == (*range(1, 17), 18, 20, 22, 24, 26, 28, 30, 32, 36, 40)
