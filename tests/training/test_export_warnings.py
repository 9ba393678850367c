"""Exports of networks that were never trained, with and without ``optimize=False``: what is trained, what is said.

The files are written by tests/tools/fresh_exports.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from planner.commands import main as cli
from planner.graph.reading.from_onnx import graph_from_proto
from planner.training.doors.read import open_training
from planner.training.parameters.export_warnings import export_warnings
from planner.training.parameters.exporter import Exporter, exporter_of
from planner.training.parameters.infer import Verdict
from planner.training.parameters.per_sample import decided

FRESH = Path(__file__).parents[1] / "models" / "fresh"
PYTORCH = Exporter(is_pytorch=True, is_optimized=True)
TIED = {"gpt-2": {"transformer.wte.weight"}}
"""Of a network, names of parameters that have another name as well, which the file has."""
AGAIN = "export with dynamo=True, optimize=False (docs/export-from-pytorch.md)"


def said(path: Path) -> tuple[set[str], tuple[str, ...]]:
    """What is trained of a file, and what is said of it."""
    opened = open_training(path)
    graph, parameters = decided(opened.graph, opened.graph.outputs[0], exporter=opened.exporter)
    return set(parameters.of(Verdict.TRAINED)), export_warnings(graph, parameters, opened.exporter)


def warned(model: ModelProto) -> tuple[str, ...]:
    graph = graph_from_proto(model, name="m")
    graph, parameters = decided(graph, "y", exporter=exporter_of(model))
    return export_warnings(graph, parameters, exporter_of(model))


@pytest.mark.parametrize(("name", "count"), [("cnn", 9), ("gpt-2", 28), ("llama", 21), ("vit", 40)])
def test_what_is_exported_as_the_page_says_trains_all_parameters_by_name(name: str, count: int) -> None:
    path = FRESH / f"{name}.onnx"
    exporter = exporter_of(onnx.load(path))
    trained, warnings = said(path)
    assert trained == set(exporter.parameters) - TIED.get(name, set())
    assert len(trained) == count
    assert warnings == ()


@pytest.mark.parametrize(
    ("name", "lost", "expected"),
    [
        (
            "cnn",
            5,
            ["the exporter has folded the network's batch normalizations", "the file lacks 3 of the network's biases"],
        ),
        (
            "gpt-2",
            18,
            [
                "'transformer.h.0.ln_1.weight' is 1 throughout, and is read by 5 LayerNormalization",
                "'transformer.h.0.ln_1.bias' is 0 throughout, and is read by 5 LayerNormalization",
                "a weight has a name of the exporter's making (val_",
                "the file lacks 12 of the network's biases (transformer.h.0.attn.c_attn.bias, ",
            ],
        ),
        (
            "llama",
            19,
            [
                "'model.layers.0.input_layernorm.weight' is 1 throughout, and is read by 5 Mul",
                "15 weights have names of the exporter's making (val_",
            ],
        ),
        (
            "vit",
            34,
            [
                "'vit.layers.0.layernorm_before.weight' is 1 throughout, and is read by 5 LayerNormalization",
                "'vit.layers.0.attention.q_proj.bias' is 0 throughout, and is read by 5 LayerNormalization and 10 Add",
                "'vit.layers.0.mlp.fc1.bias' is 0 throughout, and is read by 2 Add",
                "12 weights have names of the exporter's making (val_",
                "the file lacks ",
            ],
        ),
    ],
)  # fmt: skip
def test_what_is_exported_by_default_trains_another_network_and_that_is_said(
    name: str, lost: int, expected: list[str]
) -> None:
    path = FRESH / f"{name}.optimized.onnx"
    trained, warnings = said(path)
    assert len(set(exporter_of(onnx.load(path)).parameters) - trained) == lost
    assert [warning[: len(text)] for warning, text in zip(warnings, expected, strict=True)] == expected
    assert [warning for warning in warnings if not warning.endswith(AGAIN)] == []
    assert [warning for warning in warnings if "\n" in warning] == []


def without_notes(name: str) -> ModelProto:
    """A file whose metadata somebody has taken out."""
    model = onnx.load(FRESH / f"{name}.onnx")
    for holder in (model.graph, *model.graph.node):
        del holder.metadata_props[:]
    model.graph.output[0].name = "y"
    for node in model.graph.node:
        node.output[:] = ["y" if made == "scores" else made for made in node.output]
    return model


def test_a_file_without_notes_is_told_of_with_a_doubt() -> None:
    folded = warned(without_notes("cnn.optimized"))
    assert len(folded) == 1
    assert folded[0].startswith("the network has convolutions and no batch normalization: PyTorch's exporter folds")
    assert f"; if it should have some, {AGAIN}" in folded[0]
    dropped = warned(without_notes("vit.optimized"))[-1]
    assert dropped.startswith("1 of 13 products have no bias (node_Gemm_")
    assert dropped.endswith(f"; if the network's layers have biases, {AGAIN}")
    assert warned(without_notes("cnn")) == warned(without_notes("vit")) == ()


def test_a_file_of_another_program_is_not_suspected_of_folding() -> None:
    model = without_notes("cnn.optimized")
    model.producer_name = "somebody"
    assert exporter_of(model) == Exporter()
    assert warned(model) == ()


def network(weights: dict[str, np.ndarray], *, shared: bool = True, producer: str = "") -> ModelProto:
    """Two normalised products; they share scale and bias."""
    second = ("w", "b") if shared else ("w2", "b2")
    nodes = [
        helper.make_node("LayerNormalization", ["x", "w", "b"], ["n1"], "norm1"),
        helper.make_node("MatMul", ["n1", "fc.weight"], ["h"], "fc"),
        helper.make_node("LayerNormalization", ["h", *second], ["y"], "norm2"),
    ]
    held = {"fc.weight": np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8), **weights}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy"]
    initializers = [numpy_helper.from_array(value, name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], producer_name=producer)


ONES, ZEROS, TRAINED = np.ones(8, np.float32), np.zeros(8, np.float32), np.linspace(0, 1, 8, dtype=np.float32)


def renamed(model: ModelProto, names: dict[str, str]) -> ModelProto:
    """A model some of whose constants are called otherwise."""
    for tensor in model.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    return model


def test_normalisations_that_were_made_one_are_told_of_whoever_wrote_the_file() -> None:
    merged = renamed(network({"w": ONES, "b": ZEROS}), {"w": "norm1.weight", "b": "norm1.bias"})
    assert [warning.partition(":")[0] for warning in warned(merged)] == [
        "'norm1.weight' is 1 throughout, and is read by 2 LayerNormalization",
        "'norm1.bias' is 0 throughout, and is read by 2 LayerNormalization",
    ]
    assert warned(network({"w": ONES, "b": ZEROS, "w2": ONES, "b2": ZEROS}, shared=False)) == ()


def test_a_layer_that_is_applied_twice_is_no_finding() -> None:
    assert warned(network({"w": TRAINED, "b": TRAINED})) == ()


def test_a_layer_that_is_applied_twice_is_none_before_training_either_where_nothing_was_merged() -> None:
    model = network({"w": ONES, "b": ZEROS}, producer="pytorch")
    assert len(warned(model)) == 2
    size = helper.make_node("Constant", [], ["size"], "node_Constant_1", value_ints=[4, 8])
    model.graph.node.insert(0, size)
    model.graph.node.append(helper.make_node("Reshape", ["z", "size"], ["y"], "node_view"))
    model.graph.node[-2].output[0] = "z"
    assert warned(model) == ()


@pytest.mark.parametrize(("producer", "count"), [("pytorch", 2), ("", 0)])
def test_of_values_in_external_data_the_exporter_decides(producer: str, count: int) -> None:
    model = network({"w": TRAINED, "b": TRAINED}, producer=producer)
    for tensor in model.graph.initializer:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="m.data")
    found = warned(model)
    assert [warning.partition(":")[0] for warning in found] == [
        "'w' is read by 2 LayerNormalization", "'b' is read by 2 LayerNormalization"
    ][:count]  # fmt: skip


def test_names_of_the_older_exporter_are_made_up_too() -> None:
    model = renamed(network({"w": TRAINED, "b": TRAINED}), {"fc.weight": "onnx::MatMul_57"})
    assert warned(model) == (
        "a weight has a name of the exporter's making (onnx::MatMul_57): nothing finds it by the network's names, "
        f"neither load_state_dict nor --freeze and --group; {AGAIN}",
    )


DROPOUTS = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[4, 8] x) => (float[4, 8] y)
      <float[8, 8] w = {%s}, float half = {0.5}, bool on = {%d}, bool off = {0}> {
        h = MatMul (x, w)  kept = Dropout (h, half)
        dropped = Dropout (kept, half, on)  y = Dropout (dropped, half, off)
    }"""


@pytest.mark.parametrize(
    ("on", "option", "expected"),
    [
        (1, [], ["2 of 3 Dropouts do not drop (d0, d2), as PyTorch's exporter writes those of attention: --dropout"]),
        (1, ["--dropout", "train"], []),
        (0, [], []),
    ],
)
def test_dropouts_that_do_not_drop_beside_others_that_do(
    on: int, option: list[str], expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = parser.parse_model(DROPOUTS % (", ".join(["0.25"] * 63 + ["1"]), on))
    for number, node in enumerate(node for node in model.graph.node if node.op_type == "Dropout"):
        node.name = f"d{number}"
    onnx.save(model, tmp_path / "m.onnx")
    line = ["grad", str(tmp_path / "m.onnx"), "--loss", "mse", "--optimizer", "sgd", "-o", str(tmp_path / "t.onnx")]
    assert cli.main([*line, *option, "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert [warning[: len(text)] for warning, text in zip(warnings, expected, strict=True)] == expected


def test_grad_prints_warnings_and_has_them_in_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(renamed(network({"w": ONES, "b": ZEROS}), {"w": "norm.weight", "b": "norm.bias"}), "m.onnx")
    line = ["grad", "m.onnx", "--loss", "mse", "--optimizer", "sgd"]
    assert cli.main(line) == 0
    printed = capsys.readouterr().out
    assert printed.count("\nwarning: 'norm.") == 2
    assert cli.main([*line, "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert len(warnings) == 2
    assert warnings[0].startswith("'norm.weight' is 1 throughout")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "(float16[4, 8] x) => (float16[4, 2] y) { y = MatMul (x, w) }",
            "float16 weights (1) have no float32 master weights, so small updates are lost: "
            "export in float32, then tofu grad --precision float16",
        ),
        (
            "(float[4, 8] x) => (float[4, 2] y) {"
            " a = Cast <to = 16> (x) b = Cast <to = 16> (w) c = MatMul (a, b) y = Cast <to = 1> (c) }",
            "the model itself casts to bfloat16 (2 Casts, as autocast exports them): "
            "export in float32, then tofu grad --precision bfloat16",
        ),
        ("(float[4, 8] x) => (float[4, 2] y) { y = MatMul (x, w) }", ""),
    ],
    ids=["bfloat16()", "autocast", "float32"],
)
def test_weights_and_casts_of_16_bits_are_warned_of(text: str, expected: str) -> None:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}')
    dtype = np.float16 if "float16[4, 8] x" in text else np.float32
    model.graph.initializer.append(numpy_helper.from_array(np.arange(16, dtype=dtype).reshape(8, 2) / 16, "w"))
    assert warned(model) == ((expected,) if expected else ())
