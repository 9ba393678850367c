"""The zoo's graphs are consistent, without values, small, and the same after a file; the smallest of them train."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from fast_suite import chosen
from planner import api
from planner.errors import UsageError
from planner.features.zoo import models as zoo
from planner.features.zoo.models.convolutional import cnn
from planner.features.zoo.models.recurrent import rnn
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.core.check import check_graph
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model, write_model
from planner.graph.reading.from_onnx import read_model

FAST = {next(iter(family.members)) for family in zoo.PAPERS} | {"wresnet-152-10"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in zoo.names()]
)
def test_every_model_is_consistent_and_has_no_weights(name: str) -> None:
    started = time.perf_counter()
    graph = zoo.build(name)
    seconds = time.perf_counter() - started
    check_graph(graph)
    weights = zoo.trained(graph)
    print(f"{name}: {len(graph.ops)} ops, {len(weights)} weights, {seconds:.2f} s")
    assert graph.name == name
    assert weights
    assert all(graph.initial.get(weight) is None for weight in weights)
    held = sum(value.nbytes for value in (*graph.constants.values(), *graph.initial.values()) if value is not None)
    assert held < 32 << 20, "what is not weights is small"


OF_EACH_KIND = [
    *("mlp-5x300", "cnn-5x512-24", "lenet-5", "inception-v3"),
    *("resnet-50", "wresnet-50-4", "rnn-6-4k", "gpt-2x1024"),
]


@pytest.mark.parametrize(
    "name", chosen(OF_EACH_KIND, fast=["mlp-5x300", "cnn-5x512-24", "lenet-5", "inception-v3", "gpt-2x1024"])
)
def test_a_file_holds_the_same_graph(name: str, tmp_path: Path) -> None:
    graph = zoo.build(name)
    write_model(graph, tmp_path / "model.onnx")
    again = read_model(tmp_path / "model.onnx")
    assert again.ops == graph.ops
    assert dict(again.tensors) == dict(graph.tensors)
    assert (again.inputs, again.outputs, again.state) == (graph.inputs, graph.outputs, graph.state)
    assert (again.folded, again.notes, again.opset) == (graph.folded, graph.notes, graph.opset)
    for file_values, built_values in ((again.constants, graph.constants), (again.initial, graph.initial)):
        assert {name for name, value in file_values.items() if value is None} == {
            name for name, value in built_values.items() if value is None
        }
        assert all(
            np.array_equal(file_values[name], value) for name, value in built_values.items() if value is not None
        )


@pytest.mark.parametrize("name", ["lenet-5", "alexnet", "inception-v3", "resnet-50", "gpt-2x1024", "gpt-2x64-lm"])
def test_shapes_are_those_that_onnx_infers(name: str) -> None:
    onnx.checker.check_model(to_model(zoo.build(name, batch=2)), full_check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status is Linux's")
def test_a_model_of_65_gib_is_written_in_little_memory(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    program = f"""
import sys
from planner.commands import main as cli
assert cli.main(["zoo", "wresnet-152-10", "-o", {str(file)!r}]) == 0
# Not ru_maxrss: what the parent held when it forked counts in that.
peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))
print(peak, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, text=True, capture_output=True)
    assert int(done.stderr.split()[-1]) < 400 << 10
    assert file.stat().st_size < 10 << 20


SMALL = {
    "cnn": lambda: cnn(2, 4, 6, batch=4),
    "lenet-5": lambda: zoo.build("lenet-5", batch=4),
    "rnn": lambda: rnn(2, 8, batch=4, steps=3),
    "gpt": lambda: gpt("gpt", GptShape(1, 16, 4, 6, bias=True), batch=4),
}


@pytest.mark.parametrize("name", chosen(SMALL, fast=["cnn", "lenet-5", "gpt"]))
def test_small_ones_are_planned_run_and_verified(name: str, tmp_path: Path) -> None:
    graph: Graph = SMALL[name]()
    write_model(graph, tmp_path / "model.onnx")
    api.plan(tmp_path / "model.onnx", gpus=2, effort="quick", out=tmp_path / "plan")
    result = api.run(tmp_path / "plan", steps=2, verify=True)
    assert result.verified
    assert result.predicted_bytes == result.moved_bytes
    assert all(np.isfinite(loss) for loss in result.losses)


def test_training_begins_with_scales_of_one() -> None:
    notes = zoo.build("resnet-50", batch=2).notes["tofu.inputs"]
    assert '"stem.norm.scale": {"value": 1.0}' in notes
    assert '"stem.norm.variance": {"value": 1.0}' in notes
    assert '"fc.bias": {"value": 0.0}' in notes


def test_batch_and_optimizer_can_be_chosen() -> None:
    graph = zoo.build("alexnet", batch=3, optimizer="momentum")
    assert graph.tensors["x"].shape == (3, 3, 224, 224)
    assert len(graph.state) == 2 * len(zoo.trained(graph))
    assert zoo.build("mlp-4x8192").tensors["x0"].shape == (512, 8192)
    assert zoo.build("rnn-6-4k").tensors["x0"].shape == (512, 4 * 4096)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("wresnet-152-1O", "did you mean 'wresnet-152-10'?"),
        ("WResNet-152-10", "did you mean 'wresnet-152-10'?"),
        ("vgg16", "did you mean 'vgg-16'?"),
        ("resnet-51", "did you mean 'resnet-50'?"),
        ("rnn-0-8k", "did you mean 'rnn-10-8k'?"),
        ("xyzzy", "write a name of one of these forms, such as gpt-2x1024; tofu zoo lists them"),
    ],
)
def test_unknown_names_are_refused(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        zoo.build(name)
    assert name in caught.value.what
    assert caught.value.hint == hint
    assert any("wresnet-D-W" in fact for fact in caught.value.facts)


def test_other_sizes_of_a_form_are_built() -> None:
    assert zoo.build("wresnet-50-2", batch=2).tensors["fc.weight"].shape == (1000, 4096)
    assert zoo.build("gpt-1x96-3h", batch=1).tensors["block1.attention.q.y"].shape == (1, 3, 1024, 32)
    with pytest.raises(UsageError, match="5 heads do not divide the width 96"):
        zoo.build("gpt-1x96-5h")
    with pytest.raises(UsageError, match="no samples"):
        zoo.build("vgg-16", batch=0)
    with pytest.raises(UsageError, match="optimizer"):
        zoo.build("vgg-16", optimizer="sdg")
    with pytest.raises(UsageError, match="trained with sgd"):
        zoo.build("mlp-4x8192", optimizer="adam")
