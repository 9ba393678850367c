"""A file that says what the network's parameters are: they are trained, whatever they hold and are called."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper, parser

from planner.graph.reading.from_onnx import graph_from_proto
from planner.training.build import build_training_graph
from planner.training.parameters.export_warnings import export_warnings
from planner.training.parameters.exporter import exporter_of
from planner.training.parameters.infer import Parameters, Verdict, outcome
from planner.training.parameters.per_sample import decided

CALL = "pkg.torch.onnx.fx_node"
SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
NETWORK = """g (float[2, 8, 6] x) => (float[2, 8, 4] y) <int64[3] parts = {0, 2, -1}, int64[3] sizes = {2, 8, 6}> {
    [norm] a = Reshape(x, parts) [norm] b = InstanceNormalization(a, val_8, val_11) [norm] c = Reshape(b, sizes)
    [norm] d = Mul(c, val_22) [norm] e = Add(d, val_23) [own] f = Sub(e, own) [table] h = Mul(f, table)
    [linear] k = MatMul(h, val_30) [linear] y = Add(k, fc.bias)
}"""
CALLS = {
    "norm": "%group_norm = call_function[target=group_norm](args = (%x, 2, %p_n_weight, %p_n_bias, 1e-05, False))",
    "own": "%sub = call_function[target=sub](args = (%group_norm, %p_own))",
    "table": "%mul = call_function[target=mul](args = (%sub, %b_table))",
    "linear": "%linear = call_function[target=linear](args = (%mul, %p_fc_weight, %p_fc_bias))",
}
LISTED = {
    "p_n_weight": "n.weight",
    "p_n_bias": "n.bias",
    "p_own": "own",
    "p_fc_weight": "fc.weight",
    "p_fc_bias": "fc.bias",
}
"""Parameters by argument of the exported program."""


def exported(*, listed: Mapping[str, str] = LISTED, calls: bool = True) -> ModelProto:
    """What PyTorch's exporter makes by default of GroupNorm, a lone parameter, a buffer and a linear layer."""
    rng = np.random.default_rng(0)
    held = {
        "val_8": np.ones(2), "val_11": np.zeros(2), "val_22": np.ones((8, 1)), "val_23": np.zeros((8, 1)),
        "own": np.full((8, 1), 0.5), "table": rng.standard_normal((8, 6)), "val_30": rng.standard_normal((6, 4)),
        "fc.bias": np.zeros(4),
    }  # fmt: skip
    text = NETWORK.replace("fc.bias", "fc_bias")
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20], producer_name: "pytorch"> {text}')
    for node in model.graph.node:
        node.input[:] = ["fc.bias" if name == "fc_bias" else name for name in node.input]
        if calls:
            node.metadata_props.add(key=CALL, value=CALLS[node.name])
    model.graph.initializer.extend(numpy_helper.from_array(a.astype(np.float32), name) for name, a in held.items())
    entries = [f"{argument}: PARAMETER target='{name}'" for argument, name in listed.items()]
    lines = "\n".join([*entries, "b_table: BUFFER target='table' persistent=True"])
    model.graph.metadata_props.add(key=SIGNATURE, value=f"# inputs\n{lines}\nx: USER_INPUT\n")
    return model


def read(model: ModelProto, **wishes: list[str]) -> tuple[Parameters, tuple[str, ...]]:
    exporter = exporter_of(model)
    graph, parameters = decided(graph_from_proto(model), "y", exporter=exporter, **wishes)
    return parameters, export_warnings(graph, parameters, exporter)


def test_parameters_are_trained_by_the_list_and_buffers_are_not() -> None:
    parameters, warnings = read(exported())
    assert set(parameters.of(Verdict.TRAINED)) == {"val_22", "val_23", "own", "val_30", "fc.bias"}
    assert set(parameters.of(Verdict.FROZEN)) == {"val_8", "val_11", "table"}
    why = {one.name: one.why for one in parameters.decisions}
    assert why["val_22"] == "the file's exporter lists it as parameter 'n.weight'"
    assert why["table"] == "the file's exporter lists it as a buffer"
    (nameless,) = warnings
    assert nameless.startswith("3 weights have names of the exporter's making (val_22, val_23, val_30)")


def test_the_user_has_the_last_word() -> None:
    parameters, warnings = read(exported(), freeze=["val_22"], train=["table"])
    assert set(parameters.of(Verdict.TRAINED)) == {"val_23", "own", "val_30", "fc.bias", "table"}
    assert len(warnings) == 1


def test_a_parameter_that_is_not_in_the_file_is_told_of() -> None:
    """A scale of one that the exporter has left out with its layer, say."""
    _, warnings = read(exported(listed={**LISTED, "p_gate": "gate"}))
    assert warnings[-1].startswith("the file lacks 1 of the network's other parameters (gate): ")


@pytest.mark.parametrize("calls", [True, False])
def test_a_parameter_that_the_loss_does_not_need_is_told_of(calls: bool) -> None:
    model = exported(listed={**LISTED, "p_other": "other"}, calls=calls)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((3, 3), np.float32), "other"))
    model.graph.node.append(helper.make_node("MatMul", ["other", "other"], ["z"], "other"))
    model.graph.output.append(helper.make_tensor_value_info("z", 1, [3, 3]))
    exporter = exporter_of(model)
    graph, parameters = decided(graph_from_proto(model), "y", exporter=exporter, train=["val_22", "own"])
    step = build_training_graph(
        graph, loss="mse", optimizer="sgd", learning_rate=0.1, output="y", parameters=parameters
    )
    warnings = export_warnings(graph, outcome(parameters, step), exporter)
    assert [line for line in warnings if "1 of the network's parameters (other) are not trained" in line] != []


def test_the_state_that_a_recurrent_layer_begins_with_is_none_of_its_parameters() -> None:
    """A layer's four parameters, of which the exporter makes three constants, and zeros of its own."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 20], producer_name: "pytorch">
        g (float[5, 4, 3] x) => (float[5, 1, 4, 2] y) {
            y = GRU <hidden_size = 2> (x, val_1, val_2, val_3, , val_4)
        }""")
    rng, shapes = np.random.default_rng(0), {"val_1": (1, 6, 3), "val_2": (1, 6, 2), "val_3": (1, 12)}
    held = {name: rng.standard_normal(shape) for name, shape in shapes.items()} | {"val_4": np.zeros((1, 4, 2))}
    model.graph.initializer.extend(numpy_helper.from_array(a.astype(np.float32), name) for name, a in held.items())
    arguments = [f"{kind}_{which}_l0" for kind in ("weight", "bias") for which in ("ih", "hh")]
    call = f"%gru = call_function[target=gru](args = (%x, %zeros, [{', '.join(f'%p_{name}' for name in arguments)}]))"
    model.graph.node[0].metadata_props.add(key=CALL, value=call)
    lines = "\n".join(f"p_{name}: PARAMETER target='{name}'" for name in arguments)
    model.graph.metadata_props.add(key=SIGNATURE, value=f"# inputs\n{lines}\nx: USER_INPUT\n")
    parameters, _ = read(model)
    assert set(parameters.of(Verdict.TRAINED)) == set(shapes)
    assert parameters.of(Verdict.FROZEN) == ("val_4",)
