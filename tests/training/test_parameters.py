"""Which constants of a forward model are trained: by readers, values, names and patterns."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from command_line import ROOT
from drawn import random32 as random
from planner.errors import UnsupportedError, UsageError
from planner.graph.core.model import Graph
from planner.graph.core.notes import EXTERNAL
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import read_model
from planner.training.build import build_training_graph
from planner.training.parameters.infer import Parameters, Verdict, infer_parameters
from planner.training.parameters.merged import unmerged
from planner.training.parameters.names import is_parameter_name
from planner.training.parameters.per_sample import decided
from planner.training.parameters.value_forms import is_of_waves
from stock_runtime import run

node = helper.make_node
X = {"x": random((2, 4, 8), 1)}
POSITIONS = np.arange(6, dtype=np.float32)[:, None] * 0.3 ** np.arange(8, dtype=np.float32)
MASK = np.where(np.tri(4, dtype=bool), 0, -3.4e38).astype(np.float32)

Inferred = Callable[..., Parameters]


@pytest.fixture
def inferred(forward_model: Callable) -> Inferred:
    def infer(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], **options: object) -> Parameters:
        data = options.pop("data", X)
        return infer_parameters(forward_model(nodes, constants, data).graph(), "y", **options)

    return infer


def verdicts(parameters: Parameters) -> dict[str, str]:
    return {one.name: f"{one.verdict.value}: {one.why}" for one in parameters.decisions}


def layer(*nodes: onnx.NodeProto) -> list[onnx.NodeProto]:
    """A product, so that what follows meets no input of the model; its result is "h"."""
    return [node("MatMul", ["x", "val_1"], ["h"]), *nodes]


OWN = {"val_1": random((8, 8), 2)}


@pytest.mark.parametrize(
    ("nodes", "constants", "says"),
    [
        ([node("Transpose", ["val_9"], ["t"]), *layer(node("MatMul", ["h", "t"], ["y"]))],
         {"val_9": random((3, 8), 3)}, "trained: read by MatMul"),
        (layer(node("Add", ["h", "val_9"], ["y"])), {"val_9": random((8,), 3)}, "trained: read by Add"),
        (layer(node("Mul", ["h", "val_9"], ["y"])), {"val_9": random((1, 8), 3)}, "trained: read by Mul"),
        (layer(node("Add", ["h", "val_9"], ["y"])), {"val_9": random((1, 4, 8), 3)}, "trained: read by Add"),
        (layer(node("Concat", ["h", "val_9"], ["y"], axis=1)), {"val_9": random((2, 1, 8), 3)},
         "trained: read by Concat"),
        (layer(node("Add", ["h", "fc.bias"], ["y"])), {"fc.bias": np.zeros(8, np.float32)}, "trained: read by Add"),
        (layer(node("LayerNormalization", ["h", "norm.weight"], ["y"])), {"norm.weight": np.ones(8, np.float32)},
         "trained: read by LayerNormalization"),
        (layer(node("LayerNormalization", ["h", "val_9"], ["y"])), {"val_9": np.ones(8, np.float32)},
         "frozen: one value throughout, and not named as a parameter"),
        ([*layer(), node("Transpose", ["h"], ["t"], perm=[0, 2, 1]), node("MatMul", ["h", "t"], ["s"]),
          node("Add", ["s", "h.mask"], ["y"])], {"h.mask": MASK}, "frozen: holds -inf or -3e38, as masks do"),
        ([*layer(), node("Transpose", ["h"], ["t"], perm=[0, 2, 1]), node("MatMul", ["h", "t"], ["s"]),
          node("Add", ["s", "val_9"], ["y"])], {"val_9": np.where(np.tri(4, dtype=bool), 0, -100).astype(np.float32)},
         "frozen: holds 0 and one other value, as masks do"),
        (layer(node("Mul", ["h", "cos_1"], ["y"])), {"cos_1": np.cos(POSITIONS[:4])},
         "frozen: a table of sines or of evenly spaced numbers"),
        (layer(node("Greater", ["h", "val_9"], ["c"]), node("Where", ["c", "h", "val_9"], ["y"])),
         {"val_9": random((8,), 3)}, "frozen: read by Greater, Where only"),
    ],
)  # fmt: skip
def test_one_constant(nodes: list, constants: dict, says: str, inferred: Inferred) -> None:
    found = verdicts(inferred(nodes, OWN | constants))
    assert found.pop("val_1") == "trained: read by MatMul"
    assert list(found.values()) == [says]


def test_frequencies_of_counted_positions_are_frozen_and_a_network_of_sines_is_trained(inferred: Inferred) -> None:
    angles = [node("MatMul", ["p", "inv_freq"], ["a"]), node("Sin", ["a"], ["s"]), node("MatMul", ["s", "w"], ["y"])]
    constants = {"inv_freq": random((1, 4), 1), "w": random((4, 3), 2)}
    counted = inferred(
        [node("Cast", ["ids"], ["p"], to=1), *angles], constants, data={"ids": np.zeros((5, 1), np.int64)}
    )
    assert verdicts(counted) == {"inv_freq": "frozen: read by MatMul only", "w": "trained: read by MatMul"}
    floats = inferred(angles, constants, data={"p": random((5, 1), 3)})
    assert floats.of(Verdict.TRAINED) == ("inv_freq", "w")


def test_a_weight_of_a_constant_node_is_trained(forward_model: Callable) -> None:
    weight = onnx.numpy_helper.from_array(random((8, 3), 2))
    nodes = [
        node("Constant", [], ["w"], value=weight),
        node("Constant", [], ["ones"], value_floats=[1.0, 1.0, 1.0]),
        node("MatMul", ["x", "w"], ["h"]),
        node("Add", ["h", "ones"], ["y"]),
    ]
    graph = forward_model(nodes, {}, X).graph()
    step = build_training_graph(graph, loss="mse", optimizer="sgd", learning_rate=0.1)
    assert [pair.current for pair in step.state] == ["w"]
    np.testing.assert_array_equal(step.initial["w"], random((8, 3), 2))
    assert verdicts(infer_parameters(graph, "y"))["ones"].startswith("frozen: one value throughout")


@pytest.mark.parametrize(("name", "is_clear"), [("val_83", False), ("positions.weight", True)])
def test_a_table_in_external_data_that_may_be_a_mask_is_not_taken_for_a_weight(
    name: str, is_clear: bool, forward_model: Callable
) -> None:
    graph = forward_model(layer(node("Add", ["h", name], ["y"])), OWN | {name: random((4, 8), 5)}, X).graph()
    graph = replace(graph, constants={**graph.constants, name: None})
    assert infer_parameters(graph, "y").of(Verdict.TRAINED)[-1] == name, "of a model without weights nothing is asked"
    graph = replace(graph, notes={EXTERNAL: json.dumps({name: {"location": "w.bin"}})})
    if is_clear:
        assert infer_parameters(graph, "y").of(Verdict.TRAINED)[-1] == name
        return
    with pytest.raises(UsageError) as caught:
        infer_parameters(graph, "y")
    assert caught.value.facts == (
        "'val_83' [4, 8]: Add reads it, its name tells nothing, and its values are external data",
    )
    assert verdicts(infer_parameters(graph, "y", freeze=["val_83"]))[name].startswith("frozen")


UNCLEAR = layer(node("Div", ["h", "val_7"], ["d"]), node("Mul", ["d", "val_8"], ["y"]))
TWO = OWN | {"val_7": random((8,), 4), "val_8": random((4, 8), 5)}


@pytest.mark.parametrize("in_nodes", [False, True])
def test_weights_are_trained_whatever_lies_before_their_reader(in_nodes: bool, forward_model: Callable) -> None:
    """Gates in another order, biases joined, and one table that is read twice: the same of initializers and nodes."""
    weights = {
        "table": random((7, 3), 1),
        "rnn.weight_ih": random((16, 3), 1),
        "rnn.weight_hh": random((16, 4), 1),
        "rnn.bias_ih": random((16,), 1),
        "rnn.bias_hh": random((16,), 2),
        "out.weight": random((3, 4), 1),
    }
    axis, middle, end, start = (np.array([number], np.int64) for number in (0, 8, 16, 0))
    numbers = {"axis": axis, "start": start, "middle": middle, "end": end}
    stated = [
        helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(value))
        for name, value in weights.items()
    ]
    model = forward_model(
        [
            *(stated if in_nodes else []),
            helper.make_node("Gather", ["table", "tokens"], ["x"]),
            helper.make_node("Slice", ["rnn.weight_ih", "start", "middle", "axis"], ["first"]),
            helper.make_node("Slice", ["rnn.weight_ih", "middle", "end", "axis"], ["second"]),
            helper.make_node("Concat", ["second", "first"], ["gates"], axis=0),
            helper.make_node("Unsqueeze", ["gates", "axis"], ["W"]),
            helper.make_node("Unsqueeze", ["rnn.weight_hh", "axis"], ["R"]),
            helper.make_node("Concat", ["rnn.bias_ih", "rnn.bias_hh"], ["biases"], axis=0),
            helper.make_node("Unsqueeze", ["biases", "axis"], ["B"]),
            helper.make_node("LSTM", ["x", "W", "R", "B"], ["", "h", ""], hidden_size=4),
            helper.make_node("Squeeze", ["h", "axis"], ["last"]),
            helper.make_node("Transpose", ["out.weight"], ["out"], perm=[1, 0]),
            helper.make_node("MatMul", ["last", "out"], ["hidden"]),
            helper.make_node("Transpose", ["table"], ["words"], perm=[1, 0]),
            helper.make_node("MatMul", ["hidden", "words"], ["y"]),
        ],
        numbers if in_nodes else {**numbers, **weights},
        {"tokens": np.zeros((5, 8), np.int64)},
    )
    step = build_training_graph(model.graph(), loss="mse", optimizer="sgd", learning_rate=0.1)
    assert {pair.current for pair in step.state} == set(weights)


def test_what_nothing_tells_is_refused_all_at_once_until_it_is_said(inferred: Inferred) -> None:
    with pytest.raises(UsageError, match="whether 2 constants") as raised:
        inferred(UNCLEAR, TWO)
    assert [fact.split(" ")[0] for fact in raised.value.facts] == ["'val_7'", "'val_8'"]
    assert "--train PATTERN" in raised.value.hint
    assert "--freeze PATTERN" in raised.value.hint
    said = inferred(UNCLEAR, TWO, train=["val_7"], freeze=["val_*"])
    assert verdicts(said) == {
        "val_1": "frozen: asked for by --freeze val_*",
        "val_7": "trained: asked for by --train val_7",
        "val_8": "frozen: asked for by --freeze val_*",
    }


def test_patterns_that_cannot_be_followed(inferred: Inferred) -> None:
    with pytest.raises(UsageError, match="fit no constant") as raised:
        inferred(UNCLEAR, TWO, train=["vall_7"], freeze=["x"])
    assert raised.value.facts == ("--train 'vall_7' fits nothing", "--freeze 'x' fits 'x', which is no constant")
    assert "did you mean 'val_7'?" in raised.value.hint
    with pytest.raises(UsageError, match="fit no constant") as broken:
        inferred([node("MatMul", ["x", "a\nb"], ["y"])], {"a\nb": OWN["val_1"]}, train=["unlike"])
    assert broken.value.hint == r"constants that could be: a\nb"
    with pytest.raises(UsageError, match="'val_7' is to be trained and frozen"):
        inferred(UNCLEAR, TWO, train=["val_7"], freeze=["val_7"])


MERGED = [
    node("BatchNormalization", ["x", "one", "zero", "zero", "one"], ["a"], name="first"),
    node("BatchNormalization", ["a", "one", "b.bias", "zero", "one"], ["y"], name="second"),
]
"""Two BatchNormalizations of a network that was never trained, as an exporter that merges equal constants has it."""


def test_merged_statistics_are_held_apart(forward_model: Callable) -> None:
    constants = {
        "one": np.ones(4, np.float32), "zero": np.zeros(4, np.float32), "b.bias": random((4,), 1),
    }  # fmt: skip
    model = forward_model(MERGED, constants, X)
    graph, parameters = decided(model.graph(), "y", train=["*@*"])
    assert {one.name: (one.verdict.value, "merged" in one.evidence) for one in parameters.decisions} == {
        "b.bias": ("trained", False),
        "one@first": ("trained", True),
        "zero@first": ("trained", True),
        "zero@first.2": ("statistic", True),
        "one@first.2": ("statistic", True),
        "one@second": ("trained", True),
        "zero@second": ("statistic", True),
        "one@second.2": ("statistic", True),
    }
    assert [op.inputs for op in graph.ops] == [
        ("x", "one@first", "zero@first", "zero@first.2", "one@first.2"),
        ("a", "one@second", "b.bias", "zero@second", "one@second.2"),
    ]
    step = build_training_graph(graph, loss="mse", optimizer="sgd", learning_rate=0.1, parameters=parameters)
    assert {pair.current for pair in step.state} == {one.name for one in parameters.decisions}


def test_statistics_of_two_normalisations_alone_stay_shared(forward_model: Callable) -> None:
    """Nothing says that they were merged: a module may be applied twice."""
    nodes = [
        node("BatchNormalization", ["x", "s", "b", "mean", "var"], ["a"]),
        node("BatchNormalization", ["a", "s", "b", "mean", "var"], ["y"]),
    ]
    constants = {name: random((4,), seed) for seed, name in enumerate(("s", "b", "mean", "var"))}
    graph = forward_model(nodes, constants, X).graph()
    assert unmerged(graph) == (graph, {})


def test_a_statistic_that_is_also_a_weight_by_another_name_is_refused(forward_model: Callable) -> None:
    nodes = [
        node("Identity", ["m"], ["i"]), node("BatchNormalization", ["x", "s", "b", "i", "v"], ["n"]),
        node("Transpose", ["n"], ["t"], perm=[0, 2, 1]), node("Mul", ["t", "m"], ["y"]),
    ]  # fmt: skip
    constants = {"s": random((4,), 1), "b": random((4,), 2), "m": np.zeros(4, np.float32), "v": np.ones(4, np.float32)}
    with pytest.raises(UnsupportedError, match="is a running statistic"):
        infer_parameters(forward_model(nodes, constants, X).graph(), "y")


def class_token(forward_model: Callable) -> Graph:
    nodes = [
        node("Expand", ["cls_token", "shape"], ["e"]), node("Concat", ["e", "x"], ["c"], axis=1),
        node("Add", ["c", "pos_embed"], ["h"]), node("MatMul", ["h", "w"], ["y"]),
    ]  # fmt: skip
    constants = {"cls_token": random((1, 1, 8), 1), "pos_embed": random((1, 5, 8), 2), "w": random((8, 3), 3)}
    return forward_model(nodes, constants, X, {"shape": np.array([2, 1, 8], np.int64)}).graph()


@pytest.mark.parametrize("batch", [None, 1, 2, 5])
def test_the_same_is_trained_for_every_batch(batch: int | None, forward_model: Callable) -> None:
    options = {"loss": "mse", "optimizer": "sgd", "learning_rate": 0.1}
    step = build_training_graph(class_token(forward_model), batch=batch, **options)
    assert [pair.current for pair in step.state] == ["cls_token", "pos_embed", "w"]
    assert step.tensors["y"].shape == (batch or 2, 5, 3)
    assert step.tensors["cls_token"].shape == (1, 1, 8)


def test_a_parameter_with_a_value_for_each_sample_keeps_the_batch(forward_model: Callable) -> None:
    nodes = layer(node("Add", ["h", "embedding_1"], ["y"]))
    graph = forward_model(nodes, OWN | {"embedding_1": random((2, 4, 8), 3)}, X).graph()
    options = {"loss": "mse", "optimizer": "sgd", "learning_rate": 0.1}
    with pytest.raises(UnsupportedError, match="the batch cannot be changed") as raised:
        build_training_graph(graph, batch=4, **options)
    assert "its parameter 'embedding_1' has a value for each sample" in raised.value.facts[0]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("encoder.layer.0.bias", True), ("dense/kernel:0", True), ("cls_token", True), ("b1", True), ("val_160", False),
     ("onnx::MatMul_123", False), ("/a/Constant_3_output_0", False), ("57", False), ("zeros", False)],
)  # fmt: skip
def test_names(name: str, is_one: bool) -> None:
    assert is_parameter_name(name) is is_one


def test_random_tables_are_no_waves() -> None:
    drawn = np.random.default_rng(0)
    assert not any(is_of_waves(drawn.standard_normal((6, 5))) for _ in range(500))
    assert is_of_waves(np.sin(POSITIONS))
    assert not is_of_waves(np.ones((8, 8)))


def exported(name: str) -> Graph:
    return read_model(ROOT / "tests" / "models" / "exports" / f"{name}.onnx")


LLAMA = 20 * 8 + 2 * 8 * 8 + 2 * 4 * 8 + 3 * 8 * 16 + 3 * 8 + 8 * 20
"""Elements: embedding, query and output, key and value, the three of the MLP, norms, head."""
VIT = (8 * 3 * 16 + 8) + 8 + 5 * 8 + 4 * (8 * 8 + 8) + (8 * 16 + 16) + (16 * 8 + 8) + 3 * 2 * 8 + (8 * 3 + 3)
"""Patches, class token, positions, attention, the two of the MLP, norms, head."""


@pytest.mark.parametrize(
    ("name", "elements", "batch"),
    [("llama", LLAMA, None), ("llama", LLAMA, 3), ("llama.raw", LLAMA, None), ("llama.raw", LLAMA, 3),
     ("vit.raw", VIT, None), ("vit.raw", VIT, 3), ("vit", VIT, None), ("vit", VIT, 3)],
)  # fmt: skip
def test_exports_train_the_parameters_of_their_model(name: str, elements: int, batch: int | None) -> None:
    """The optimized ViT holds its class token once for each of its 2 samples, and trains it as one."""
    step = build_training_graph(exported(name), loss="mse", optimizer="sgd", learning_rate=0.1, batch=batch)
    assert sum(step.tensors[pair.current].elements for pair in step.state) == elements


ONE = {"x": random((2, 8), 1)}
ZERO = {shape: np.zeros(shape, np.float32) for shape in ((1,), (1, 1), (3,), (8, 3), (1, 4, 8), (4, 4))}


@pytest.mark.parametrize(
    ("nodes", "constants", "says"),
    [
        pytest.param([node("MatMul", ["x", "coefs2"], ["h"]), node("Add", ["h", "intercepts2"], ["y"])],
                     {"coefs2": random((8, 1), 2), "intercepts2": np.full((1, 1), 0.3, np.float32)},
                     "trained: read by Add", id="bias-of-one-output"),
        pytest.param([node("Gemm", ["x", "coefs2", "intercepts2"], ["y"])],
                     {"coefs2": random((8, 1), 2), "intercepts2": ZERO[1,]}, "trained: read by Gemm", id="gemm"),
        pytest.param([node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "val_4"], ["y"])],
                     {"w": random((8, 3), 2), "val_4": ZERO[3,]}, "frozen: one value throughout",
                     id="zeros-behind-a-layer"),
        pytest.param([node("MatMul", ["x", "val_4"], ["y"])], {"val_4": ZERO[8, 3]}, "trained: read by MatMul",
                     id="matrix-of-zeros"),
        pytest.param([node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "val_4"], ["y"])],
                     {"w": random((8, 3), 2), "val_4": np.full(1, 0.5, np.float32)}, "frozen: one value throughout",
                     id="a-number-for-three-outputs"),
        pytest.param([node("MatMul", ["x", "w"], ["h"]), node("Mul", ["h", "offsets"], ["y"])],
                     {"w": random((8, 3), 2), "offsets": ZERO[3,]}, "trained: read by Mul", id="gate-of-zeros"),
        pytest.param([node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "attn_mask"], ["y"])],
                     {"w": random((8, 4), 2), "attn_mask": ZERO[1, 4, 8][:, :2, :4]}, "frozen: one value throughout",
                     id="mask-of-zeros"),
    ],
)  # fmt: skip
def test_one_number_and_zeros(nodes: list, constants: dict, says: str, inferred: Inferred) -> None:
    assert list(verdicts(inferred(nodes, constants, data=ONE)).values())[-1].startswith(says)


SCALED = [node("MatMul", ["x", "w"], ["h"]), node("Exp", ["s"], ["e"]), node("Mul", ["h", "e"], ["y"])]
PLAIN = [node("MatMul", ["x", "w"], ["h"]), node("Mul", ["h", "s"], ["y"])]
DIVIDED = [node("MatMul", ["x", "w"], ["h"]), node("Div", ["h", "s"], ["y"])]
NO_NAME = "frozen: a scalar whose name says of no parameter; --train NAME trains it"


@pytest.mark.parametrize(
    ("nodes", "name", "value", "says"),
    [
        (SCALED, "logit_scale", 2.6593, "trained: a scalar, read by Mul"),
        (PLAIN, "blocks.0.resweight", 0.0, "trained: a scalar, read by Mul"),
        (PLAIN, "encoder.gate1", 1.0, "trained: a scalar, read by Mul"),
        (PLAIN, "scale", 0.2, NO_NAME),
        (PLAIN, "embed_tokens.embed_scale", 8.0,
         "frozen: a scalar of a width's root, 8; --train NAME trains it"),
        (PLAIN, "norm.eps", 1e-5, NO_NAME),
        (DIVIDED, "temperature", 0.5, "frozen: a scalar that Div reads; --train NAME trains it"),
        (PLAIN, "val_3", 0.5, None),
        (PLAIN, "model/truediv/y:0", 0.5, None),
    ],
)  # fmt: skip
def test_scalars(nodes: list, name: str, value: float, says: str | None, inferred: Inferred) -> None:
    named = [node(one.op_type, [name if i == "s" else i for i in one.input], one.output) for one in nodes]
    constants = {"w": random((8, 3), 2), name: np.array(value, np.float32)}
    assert verdicts(inferred(named, constants, data=ONE)).get(name) == says
    assert verdicts(inferred(named, constants, data=ONE, train=[name]))[name] == f"trained: asked for by --train {name}"
    every = verdicts(inferred(named, constants, data=ONE, train=["*"]))
    assert (name in every) == (says is not None), "numbers of formulas are not meant by *"


def test_a_scalar_is_trained_as_its_formula_says(forward_model: Callable) -> None:
    """Its gradient, by hand: of loss Σ (e^s h - t)²/n it is Σ 2 (e^s h - t) e^s h / n."""
    constants = {"w": random((8, 3), 2), "logit_scale": np.array(0.5, np.float32)}
    nodes = [node(one.op_type, ["logit_scale" if i == "s" else i for i in one.input], one.output) for one in SCALED]
    graph = forward_model(nodes, constants, ONE).graph()
    step = build_training_graph(graph, loss="mse", optimizer="sgd", learning_rate=0.1)
    assert {pair.current for pair in step.state} == {"w", "logit_scale"}
    target = random((2, 3), 7)
    h = ONE["x"].astype(np.float64) @ constants["w"]
    slope = np.sum(2 * (np.exp(0.5) * h - target) * np.exp(0.5) * h) / 6
    found = run(to_model(step), {**ONE, "target": target, "learning_rate": np.array(0.1, np.float32)})
    assert found["logit_scale.next"] == pytest.approx(0.5 - 0.1 * slope, rel=1e-5)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_trained_scalar_is_no_constant_of_16_bits(precision: str, forward_model: Callable) -> None:
    constants = {"w": random((8, 3), 2), "gate": np.array(0.5, np.float32)}
    nodes = [node(one.op_type, ["gate" if i == "s" else i for i in one.input], one.output) for one in PLAIN]
    graph = forward_model(nodes, constants, ONE).graph()
    step = build_training_graph(graph, loss="mse", optimizer="sgd", learning_rate=0.1, precision=precision)
    assert {pair.current for pair in step.state} == {"w", "gate"}
