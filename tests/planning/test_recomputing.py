"""``--recompute``: what its words are for, what is kept, what is refused, and that a plan is read with its copies."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from planner import api, opdefs
from planner.artifacts.plan import digest
from planner.artifacts.plan_folder import open_folder
from planner.artifacts.planned_form import planned_form
from planner.errors import ModelError, UsageError
from planner.features.zoo.models import build, mlp
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model
from planner.graph.reading.from_onnx import read_model
from planner.graph.rewriting.canonical import canonical
from planner.graph.rewriting.recomputation import recomputable
from planner.planning.recomputing import Recompute, again_of
from planner.records import plain_record


@cache
def blocks(count: int) -> Graph:
    """A GPT of equal blocks, as it is planned."""
    return canonical(gpt("g", GptShape(count, 16, 2, 4), batch=2)).graph


def chosen(graph: Graph, *texts: str) -> tuple[str, ...]:
    return again_of(Recompute.parse(texts), graph, opdefs.standard())


def test_of_blocks_the_borders_are_kept() -> None:
    """What goes from block to block is one tensor, and the first block begins at the input."""
    graph = blocks(8)
    again = chosen(graph, "all")
    kept = [name for name in recomputable(graph) if name not in again]
    assert [name for name in kept if name.startswith("block")] == [f"block{number}.add2.y" for number in range(1, 8)]
    assert {name.partition(".")[0] for name in again} == {f"block{number}" for number in range(1, 9)}


def test_no_blocks_are_made_up(tmp_path: Path) -> None:
    write_model(mlp(2, 8, 4), tmp_path / "m.onnx")
    out = io.StringIO()
    api.show(api.plan(tmp_path / "m.onnx", gpus=2, out=tmp_path / "p", models=False, recompute="all"), out)
    assert "nothing: no blocks repeat, and all activations are kept: x1" in " ".join(out.getvalue().split())
    assert chosen(blocks(2), "all") == ()
    assert chosen(blocks(2), "none") == chosen(blocks(2)) == ()


def test_a_pattern_takes_what_lies_on_the_way() -> None:
    attention = ("scores.y", "scaled.y", "masked.y", "softmax.y")
    names = tuple(f"block2.attention.{name}" for name in attention)
    assert chosen(blocks(2), "block2.*.softmax.y") == chosen(blocks(2), "block2.attention.softmax.y") == names
    assert chosen(build("lenet-5", batch=2), "tanh*") == ("conv1.y", "tanh1.y", "conv2.y", "tanh2.y")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("conv1.weight", "'conv1.weight' is state, which is there all the time"),
        ("x", "'x' is an input, which is there all the time"),
        ("loss", "'loss' is a result, which stays to the end"),
        ("conv1.y", "'conv1.y' is read by no op of the backward pass"),
        ("*.grad", "'*.grad' matches 22 tensors, each of them made by the backward pass"),
        ("tanh3.y", "there is no tensor 'tanh3.y'; did you mean 'tanh2.y'?"),
        ("none*", "no tensor matches 'none*'"),
    ],
)
def test_what_cannot_be_named_is_refused(name: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(build("lenet-5", batch=2), "tanh1.y", name)
    first, named = caught.value.facts
    assert first.startswith(says)
    assert named.startswith("what may be named: 'tanh1.y', 'pool1.y', 'tanh2.y', 'flat.y', 'fc1.tanh.y', and 4 more")
    assert "--view held" in (caught.value.hint or "")


def test_a_word_stands_alone() -> None:
    with pytest.raises(UsageError, match="--recompute all says it all, and 'x' is given beside it"):
        Recompute.parse(("all", "x"))


def test_a_plan_is_read_with_its_copies(tmp_path: Path) -> None:
    """By what explains, compares and exports it; the model beside it is the one without."""
    file = tmp_path / "m.onnx"
    write_model(mlp(2, 8, 4), file)
    plain = api.plan(file, gpus=2, out=tmp_path / "plain", models=False)
    found = api.plan(file, gpus=2, out=tmp_path / "again", models=False, recompute="*")
    again = found.plan.recomputed
    assert again is not None
    assert (again.tensors, again.kept) == (("x1",), ())
    assert again.work_share > 0
    assert found.plan.model_digest == plain.plan.model_digest
    assert digest((tmp_path / "again" / "model.onnx").read_bytes()) == plain.plan.model_digest
    explained = api.explain(tmp_path / "again", every=True)
    assert "x1.again" in {row.name for row in explained.tensors}
    assert explained.plan.recomputed == again
    differing = api.diff(tmp_path / "plain", tmp_path / "again")
    assert differing is not None
    api.export(tmp_path / "again", jax=tmp_path / "step.py")
    assert "lax.optimization_barrier(" in (tmp_path / "step.py").read_text(), "XLA would make one of copy and original"
    page = tmp_path / "page.html"
    api.report(tmp_path / "again", output=page)
    assert "Recomputed" in page.read_text()
    out = io.StringIO()
    api.show(found, out)
    assert re.search("\nrecomputed +x1; saves", out.getvalue())
    assert plain_record(found)["recomputed"]["tensors"] == ["x1"]
    assert plain_record(plain).get("recomputed") is None


def test_a_plan_that_computes_what_the_model_has_not_again_does_not_fit(tmp_path: Path) -> None:
    write_model(mlp(2, 8, 4), tmp_path / "m.onnx")
    api.plan(tmp_path / "m.onnx", gpus=2, out=tmp_path / "p", models=False, recompute="*")
    folder = open_folder(tmp_path / "p", with_models=False)
    model = read_model(folder.model)
    assert "x1.again" in planned_form(folder, model).graph.tensors
    again = folder.plan.recomputed
    assert again is not None
    strange = replace(folder, plan=replace(folder.plan, recomputed=replace(again, tensors=("w1",))))
    with pytest.raises(ModelError, match="does not fit its model") as caught:
        planned_form(strange, model)
    assert caught.value.facts == ("'w1', which is computed again, is no activation",)


def test_shared_deliveries_of_copies_are_of_their_originals_without_copies(tmp_path: Path) -> None:
    """What is said of a plan beside the same without copies: readers of a copy read its original there."""
    write_model(build("mlp-4x64", batch=64), tmp_path / "model.onnx")
    planned = api.plan(
        tmp_path / "model.onnx", gpus=8, effort="quick", replicate="none", inputs="partitioned", recompute="x*",
        models=False, out=tmp_path / "plan",
    )  # fmt: skip
    brought = [delivery.tensor for delivery in planned.plan.deliveries]
    assert any(name.endswith(".again") for name in brought)
    assert planned.plan.recomputed is not None
