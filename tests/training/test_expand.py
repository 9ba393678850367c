"""Composites that are written out before they are differentiated: recurrent networks, losses, function bodies."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper

from fast_suite import examples
from planner.errors import ModelError
from planner.graph.files.to_onnx import to_model
from planner.training import rules
from planner.training.build import build_training_graph
from planner.training.gradients.expand import expanded
from stock_runtime import run

node = helper.make_node
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def random(shape, seed=1, scale=0.6, dtype=np.float64):
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def check_form(forward):
    """The expanded model gives what the runtime's own kernel gives."""
    graph = forward.graph()
    written = expanded(graph, tuple(graph.constants), rules.standard())
    assert {op.op_type for op in written.ops} != {op.op_type for op in graph.ops}
    assert {name: written.tensors[name] for name in graph.outputs} == {
        name: graph.tensors[name] for name in graph.outputs
    }
    expected, found = run(to_model(graph), forward.data), run(to_model(written), forward.data)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=2e-6, err_msg=name)
    return written


def recurrent(forward_model, op_type, *, direction="forward", layout=0, dtype=np.float32, steps=3, **given):
    batch, size, hidden = 2, 3, 4
    ways, gates = (2 if direction == "bidirectional" else 1), GATES[op_type]
    x = random((batch, steps, size) if layout else (steps, batch, size), 9, 1.0, dtype)
    parameters = {
        "w": random((ways, gates * hidden, size), 1, dtype=dtype),
        "r": random((ways, gates * hidden, hidden), 2, dtype=dtype),
    }
    names = ["x", "w", "r", "", "", "", "", ""]
    if given.pop("bias", True):
        parameters["b"] = random((ways, 2 * gates * hidden), 3, dtype=dtype)
        names[3] = "b"
    constants = {}
    lengths = given.pop("lengths", None)
    if lengths:
        constants["lengths"] = np.array(lengths, np.int32)
        names[4] = "lengths"
    if given.pop("first", False):
        parameters["h"] = random((batch, ways, hidden) if layout else (ways, batch, hidden), 4, dtype=dtype)
        names[5] = "h"
    if given.pop("peepholes", False):
        parameters["p"] = random((ways, 3 * hidden), 5, dtype=dtype)
        names[7] = "p"
    while not names[-1]:
        names.pop()
    outputs = ["y", "y_h", "y_c"] if op_type == "LSTM" else ["y", "y_h"]
    attributes = {"hidden_size": hidden, "direction": direction, **({"layout": 1} if layout else {}), **given}
    return forward_model([node(op_type, names, outputs, name="cell", **attributes)], parameters, {"x": x}, constants,
                         outputs=outputs)  # fmt: skip


@pytest.mark.parametrize("op_type", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"lengths": [3, 2], "first": True}, {"clip": 0.4}])
def test_unrolled_is_the_kernel(op_type, direction, options, forward_model):
    written = check_form(recurrent(forward_model, op_type, direction=direction, **options))
    assert op_type not in {op.op_type for op in written.ops}


def test_unrolled_variants(forward_model):
    check_form(recurrent(forward_model, "GRU", linear_before_reset=1))
    check_form(recurrent(forward_model, "LSTM", peepholes=True))
    check_form(recurrent(forward_model, "LSTM", input_forget=1))
    check_form(recurrent(forward_model, "LSTM", activations=["Sigmoid", "Softsign", "Relu"]))


def test_batch_first_is_the_other_transposed(forward_model):
    """ONNX Runtime has no kernel for layout 1."""
    plain = recurrent(forward_model, "LSTM", direction="bidirectional", first=True)
    turned = recurrent(forward_model, "LSTM", direction="bidirectional", first=True, layout=1)
    turned.parameters["h"][:] = plain.parameters["h"].transpose(1, 0, 2)
    graph = turned.graph()
    found = run(to_model(expanded(graph, tuple(graph.constants), rules.standard())),
                {"x": plain.data["x"].transpose(1, 0, 2)})  # fmt: skip
    expected = run(to_model(plain.graph()), plain.data)
    np.testing.assert_allclose(found["y"], expected["y"].transpose(2, 0, 1, 3), atol=1e-6)
    np.testing.assert_allclose(found["y_c"], expected["y_c"].transpose(1, 0, 2), atol=1e-6)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rotated", [0, 2])
@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (2, 5, 12)])
@pytest.mark.parametrize("positions", [False, True])
def test_rotations_are_the_runtimes(interleaved, rotated, shape, positions, forward_model):
    names = ["x", "c", "s"] + (["p"] if positions else [])
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": rotated}
    if len(shape) == 3 or rotated:
        attributes["num_heads"] = 3
    width = (rotated or 4) // 2
    cache = (7, width) if positions else (2, 5, width)
    parameters = {"x": random(shape, 1, dtype=np.float32), "c": random(cache, 2, dtype=np.float32),
                  "s": random(cache, 3, dtype=np.float32)}  # fmt: skip
    constants = {"p": np.random.default_rng(0).integers(0, 7, (2, 5))} if positions else {}
    nodes = [node("RotaryEmbedding", names, ["y"], **attributes)]
    forward = forward_model(nodes, parameters, {}, constants, opset=23)
    written = expanded(forward.graph(), tuple(parameters), rules.standard())
    assert "RotaryEmbedding" not in {op.op_type for op in written.ops}
    evaluator = onnx.reference.ReferenceEvaluator(forward.model())
    np.testing.assert_allclose(run(to_model(written), {})["y"], evaluator.run(None, {})[0], rtol=1e-5, atol=1e-6)


NUMBERED = ["Affine", "Elu", "HardSigmoid", "LeakyRelu", "ScaledTanh", "ThresholdedRelu"]


@examples(30)
@given(
    activations=st.lists(st.sampled_from([*NUMBERED, "Tanh", "Sigmoid"]), min_size=6, max_size=6),
    alphas=st.lists(st.sampled_from([0.3, 0.7, 1.2]), max_size=6),
    betas=st.lists(st.sampled_from([0.2, 0.6, 1.1]), max_size=6),
)
def test_activations_with_numbers_are_the_kernels(activations, alphas, betas, forward_model):
    """Numbers are consumed in order by the activations that have them; the others keep their defaults.

    ThresholdedRelu's is 1 in ONNX, and the kernel's 0.
    """
    assume(len(alphas) == 6 or "ThresholdedRelu" not in activations)
    numbers = {"activation_alpha": alphas, "activation_beta": betas}
    given = {name: values for name, values in numbers.items() if values}
    check_form(recurrent(forward_model, "LSTM", direction="bidirectional", activations=activations, **given))


def test_activations_that_are_not_onnxs_are_refused(forward_model):
    forward = recurrent(forward_model, "RNN", activations=["Swish"])
    with pytest.raises(ModelError) as error:
        forward.graph()
    assert "op 'cell' (RNN): its attribute activations has 'Swish'" in error.value.facts[0]


@pytest.mark.parametrize("op_type", ["RNN", "GRU", "LSTM"])
def test_gradients_of_recurrence(op_type, check_gradients, forward_model):
    options = {"direction": "bidirectional", "first": True}
    forward = recurrent(forward_model, op_type, dtype=np.float64, **options)
    graph = forward.graph()
    check_gradients(forward, loss=loss_of_written(graph, forward))


def loss_of_written(graph, forward):
    """Mean squared error of the written-out model (the evaluator's own LSTM takes few attributes)."""
    written = to_model(expanded(graph, tuple(graph.constants), rules.standard()))
    kept = [proto for proto in written.graph.initializer if proto.name not in forward.parameters]
    del written.graph.initializer[:]
    written.graph.initializer.extend(kept)
    written.graph.input.extend(
        helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, value.shape)
        for name, value in forward.parameters.items()
    )
    evaluator = onnx.reference.ReferenceEvaluator(written)

    def loss(target):
        return lambda parameters: float(
            np.mean((evaluator.run([graph.outputs[0]], {**forward.data, **parameters})[0] - target) ** 2)
        )

    return loss


BODIES = [
    (
        [node("InstanceNormalization", ["x", "s", "b"], ["y"], epsilon=1e-3)],
        {"x": (2, 3, 4, 2), "s": (3,), "b": (3,)}, 21,
    ),
    (
        [node("GroupNormalization", ["x", "s", "b"], ["y"], epsilon=1e-3, num_groups=2)],
        {"x": (2, 4, 3), "s": (4,), "b": (4,)}, 21,
    ),
    (
        # Until opset 21, scale and bias have an entry for each group.
        [node("GroupNormalization", ["x", "s", "b"], ["y"], epsilon=1e-3, num_groups=2)],
        {"x": (2, 4, 3), "s": (2,), "b": (2,)}, 18,
    ),
    ([node("RMSNormalization", ["x", "s"], ["y"], epsilon=1e-3)], {"x": (2, 3, 4), "s": (4,)}, 23),
    (
        [node("Attention", ["q", "k", "v"], ["y"], is_causal=1)],
        {"q": (2, 2, 3, 4), "k": (2, 2, 3, 4), "v": (2, 2, 3, 4)}, 23,
    ),
    (
        # A constant operand that is no float.
        [node("Constant", [], ["m"], value=onnx.numpy_helper.from_array(np.tri(3, dtype=bool))),
         node("Attention", ["q", "k", "v", "m"], ["y"])],
        {"q": (2, 2, 3, 4), "k": (2, 2, 3, 4), "v": (2, 2, 3, 4)}, 23,
    ),
    ([node("Constant", [], ["s"], value_ints=[3, 6]), node("CenterCropPad", ["x", "s"], ["y"])], {"x": (4, 5)}, 21),
    (
        [node("Attention", ["q", "k", "v"], ["y"], q_num_heads=2, kv_num_heads=1)],
        {"q": (2, 3, 8), "k": (2, 5, 4), "v": (2, 5, 4)}, 23,
    ),
    (
        [node("RotaryEmbedding", ["x", "c", "s"], ["y"])],
        {"x": (2, 2, 3, 4), "c": (2, 3, 2), "s": (2, 3, 2)}, 23,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "shapes", "opset"), BODIES)
def test_by_body(nodes, shapes, opset, forward_model, reference, directions):
    """Bodies compute in float32 where their operator says so: differences of the written-out step itself."""
    dtype = np.float32 if nodes[0].op_type == "RotaryEmbedding" else np.float64
    parameters = {name: random(shape, index + 1, 1.0, dtype) for index, (name, shape) in enumerate(shapes.items())}
    forward = forward_model(nodes, parameters, opset=opset)
    options = {"loss": "mse", "optimizer": "sgd", "learning_rate": 1.0}
    step = build_training_graph(forward.graph(), parameters=forward.trained(), **options)
    model = to_model(step)
    onnx.checker.check_model(model, full_check=True)
    target = random(step.tensors["target"].shape, 7, 1.0, dtype)
    found = reference(model, {"target": target})
    is_single = "float32" in {step.tensors[name].dtype.value for op in step.ops for name in op.outputs}
    gradients = {name: value - found[f"{name}.next"] for name, value in parameters.items()}
    directions(
        lambda values: float(
            reference(model, {"target": target} | {name: value.astype(dtype) for name, value in values.items()})["loss"]
        ),
        parameters, gradients,
        tolerance=2e-3 if is_single else 1e-6, step=1e-3 if is_single else 1e-6,
    )  # fmt: skip


def test_no_op_that_makes_integers_alone_is_written_out(forward_model):
    """GreaterOrEqual has a function body, and ArgMax a body in parts; no gradient comes through either."""
    nodes = [
        node("GreaterOrEqual", ["x", "w"], ["flags"]),
        node("Where", ["flags", "x", "w"], ["y"]),
        node("ArgMax", ["w"], ["place"], axis=1),
        node("Cast", ["place"], ["number"], to=onnx.TensorProto.DOUBLE),
        node("Mul", ["y", "number"], ["z"]),
    ]
    graph = forward_model(nodes, {"w": random((2, 64))}, {"x": random((2, 64), 2)}).graph()
    assert expanded(graph, ("w",), rules.standard()) is graph


@examples(40)
@given(
    op_type=st.sampled_from(["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"]),
    reduction=st.sampled_from(["mean", "sum", "none"]),
    ignore=st.sampled_from([None, -7, 1]),
    weighted=st.booleans(),
    rest=st.sampled_from([(), (3,), (2, 2)]),
)
def test_loss_operators(op_type, reduction, ignore, weighted, rest, check_gradients, forward_model):
    labels = np.random.default_rng(0).integers(0, 4, (3, *rest))
    if ignore is not None:
        labels.flat[0] = ignore
    constants = {"t": labels}
    names = ["x", "t"]
    if weighted:
        constants["w"] = np.array([0.5, 2.0, 1.0, 0.3])
        names.append("w")
    attributes = {} if ignore is None else {"ignore_index": ignore}
    forward = forward_model([node(op_type, names, ["y"], reduction=reduction, **attributes)],
                            {"x": random((3, 4, *rest))}, constants=constants)  # fmt: skip
    check_gradients(forward)


def test_log_probabilities_of_a_loss_operator(check_gradients, forward_model):
    nodes = [node("SoftmaxCrossEntropyLoss", ["x", "t"], ["l", "p"]), node("Mul", ["l", "p"], ["y"])]
    check_gradients(forward_model(nodes, {"x": random((3, 4))}, constants={"t": np.array([0, 3, 1])}))


def test_class_weights_are_not_trained(forward_model):
    nodes = [node("SoftmaxCrossEntropyLoss", ["x", "t", "w"], ["y"])]
    forward = forward_model(nodes, {"x": random((3, 4)), "w": np.ones(4)}, constants={"t": np.array([0, 3, 1])})
    step = build_training_graph(forward.graph(), loss="output:y", optimizer="sgd", learning_rate=1.0)
    assert [pair.current for pair in step.state] == ["x"]
