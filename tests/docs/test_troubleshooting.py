"""The messages of tests/docs/troubles.txt are printed, and the page of error messages names those that there are."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.commands import main as cli

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "troubleshooting.md").read_text()
PRINTED = (Path(__file__).parent / "troubles.txt").read_text()
"""Commands and what they print; ``...`` stands for lines and ``…`` for a word that are left out."""
TYPED = re.findall(r"^(\$|>>>) (.*?)\n(.*?)(?=^(?:\$|>>>) |\Z)", PRINTED, re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| (`[^|]*`) \|", re.MULTILINE)


def save(file: str, nodes: list[onnx.NodeProto], outputs: list[str], **options: object) -> None:
    """A model of an input ``x`` of [4, 8] and a weight ``w``."""
    opset, domain, external = (options.get(name) for name in ("opset", "domain", "external"))
    weights = [numpy_helper.from_array(np.ones((8, 8), np.float32), "w")]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])
    graph = helper.make_graph(nodes, Path(file).stem, [x], values, weights if "w" in str(nodes) else [])
    opsets = [
        helper.make_opsetid("", int(str(opset or 21))),
        *([helper.make_opsetid(str(domain), 1)] if domain else []),
    ]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    if external:
        onnx.save(model, file, save_as_external_data=True, location="weights.data", size_threshold=0)
    else:
        onnx.save(model, file)


def save_perceptron(file: str) -> None:
    """A model of two dense layers, and a batch of any size."""
    text = """<ir_version: 10, opset_import: ["" : 21]> mlp (float[batch, 64] x) => (float[batch, 16] logits) {
        fc1.product = MatMul (x, fc1.weight)
        fc1 = Add (fc1.product, fc1.bias)
        hidden = Relu (fc1)
        logits = MatMul (hidden, fc2.weight)
    }"""
    model = onnx.parser.parse_model(re.sub(r"(fc\d\.\w+)", r'"\1"', text))
    draws = np.random.default_rng(0)
    for name, shape in {"fc1.weight": (64, 256), "fc1.bias": (256,), "fc2.weight": (256, 16)}.items():
        values = (draws.standard_normal(shape) / 16).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.save(model, file)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The files that the commands name."""
    folder = tmp_path_factory.mktemp("troubles")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        save_perceptron("mlp.onnx")
        planner.grad("mlp.onnx", loss="softmax_cross_entropy", optimizer="sgd", dim={"batch": 32})
        planner.plan("mlp.train.onnx", gpus=4, out="plan", effort="quick")
        shutil.copytree("plan", "changed")
        with Path("changed/worker0.onnx").open("ab") as file:
            file.write(b"x")
        product = helper.make_node("MatMul", ["x", "w"], ["y"], "mm")
        relu = helper.make_node("Relu", ["y"], ["z"], "act")
        save(
            "custom.onnx",
            [helper.make_node("FusedThing", ["x"], ["y"], "fused", domain="my.ops")],
            ["y"],
            domain="my.ops",
        )
        found = helper.make_node("NonZero", ["x"], ["i"], "nz")
        save("nonzero.onnx", [found, helper.make_node("Cast", ["i"], ["y"], to=1)], ["y"])
        save("old.onnx", [product], ["y"], opset=5)
        save("two.onnx", [product, relu], ["y", "z"])
        save("frozen.onnx", [helper.make_node("Relu", ["x"], ["y"], "act")], ["y"])
        Path("there").mkdir()
        save("there/external.onnx", [product], ["y"], external=True)
        planner.plan("there/external.onnx", gpus=2, out="external", effort="quick")
        Path("there/weights.data").unlink()
        Path("model.pt").write_bytes(b"PK\x03\x04 archive/data.pkl")
        Path("pointer.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n")
        x, labels = np.ones((32, 64), np.float32), np.zeros(32, np.int64)
        np.savez("few.npz", x=x)
        np.savez("other.npz", x=x[:16], labels=labels.astype(np.int32))
        yield folder


@pytest.mark.parametrize(
    ("prompt", "line", "said"),
    [
        pytest.param(*typed, id=typed[1], marks=[pytest.mark.slow] if "--memory 20kB" in typed[1] else [])
        for typed in TYPED
    ],
)
def test_a_message_is_what_is_printed(
    prompt: str,
    line: str,
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    said = f"{said.rstrip()}\n"
    if prompt == ">>>":
        with pytest.raises(planner.TofuError) as raised:
            exec(line, {"planner": planner})
        printed = f"{raised.value}\n"
    elif said.startswith("bash: "):
        printed = subprocess.run(["bash", "-c", line], text=True, capture_output=True, timeout=300).stderr
        said = said.removeprefix("bash: ").strip()
        assert said in printed
        return
    else:
        assert cli.main(shlex.split(line)[1:]) in (1, 2, 3)
        _, printed = capsys.readouterr()
        printed = "".join(one for one in printed.splitlines(keepends=True) if not one.startswith("note: "))
    printed = printed.replace(f"{folder}/", "")
    pattern = re.escape(said).replace(re.escape("...\n"), "(?:.*\n)+").replace("…", "[^ ]+")
    assert re.fullmatch(pattern, printed), printed


def test_the_page_names_messages_that_there_are() -> None:
    code = "".join(file.read_text() for file in sorted((ROOT / "planner").rglob("*.py")))
    messages = [message for cell in _ROW.findall(TEXT) for message in re.findall("`([^`]+)`", cell)]
    assert len(messages) >= 35
    for message in messages:
        # What is not typed in troubles.txt stands in the code, around the names and numbers.
        pattern = re.escape(message).replace("…", ".+")
        assert re.search(pattern, PRINTED) or all(part in code for part in message.split("…")), message


def test_most_of_what_is_typed_is_on_the_page() -> None:
    assert len(TYPED) >= 30
    messages = [
        re.escape(found).replace("…", ".+") for cell in _ROW.findall(TEXT) for found in re.findall("`(.+?)`", cell)
    ]
    without = [line for _, line, said in TYPED if not any(re.search(message, said) for message in messages)]
    assert len(without) <= 5, without
