"""Another batch gives chunk by chunk what the old one gave, or is refused."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from drawn import random
from planner.errors import UnsupportedError
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.training.batch.change import with_batch

node = helper.make_node
OLD = 2


def ints(*values):
    return np.array(values, np.int64)


def check(forward, reference, batches=(1, 3, 4, 6)):
    """The changed model gives for each chunk what the original gives; its shapes are what ONNX infers."""
    graph = forward.graph()
    original = to_model(graph)
    for batch in batches:
        changed = with_batch(graph, batch)
        model = to_model(changed)
        again = graph_from_proto(model)
        assert again.tensors == changed.tensors
        whole = {name: random((batch, *value.shape[1:])).astype(value.dtype) for name, value in forward.data.items()}
        found = reference(model, whole)
        padded = -(-batch // OLD) * OLD
        for start in range(0, padded, OLD):
            rows = np.arange(start, start + OLD) % batch
            chunk = reference(original, {name: value[rows] for name, value in whole.items()})
            for name, expected in chunk.items():
                assert expected.shape[1:] == found[name].shape[1:]
                inner = expected.shape[0] // OLD
                part = found[name].reshape(batch, inner, *expected.shape[1:])[rows].reshape(expected.shape)
                np.testing.assert_allclose(part, expected, rtol=1e-9, atol=1e-12)


GOOD = [
    ("residual", [node("Exp", ["x"], ["e"]), node("Add", ["e", "x"], ["y"])], {}),
    ("broadcast constant", [node("Mul", ["x", "c"], ["y"])], {"c": random((6, 4))}),
    ("one value for each sample", [node("Mul", ["x", "c"], ["y"])], {"c": np.repeat(random((1, 6, 1)), 2, 0)}),
    ("merge and split", [
        node("Reshape", ["x", "m"], ["flat"]), node("MatMul", ["flat", "w"], ["p"]),
        node("Add", ["p", "c"], ["q"]), node("Reshape", ["q", "s"], ["y"]),
    ], {"m": ints(-1, 4), "w": random((4, 5)), "c": random((5,)), "s": ints(2, 6, 5)}),
    ("merged behind", [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]), node("Reshape", ["t", "m"], ["flat"]),
        node("Relu", ["flat"], ["r"]), node("Reshape", ["r", "s"], ["u"]),
        node("Transpose", ["u"], ["y"], perm=[1, 0, 2]),
    ], {"m": ints(12, 4), "s": ints(6, 2, 4)}),
    ("heads", [
        node("Reshape", ["x", "h"], ["a"]), node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3]),
        node("Transpose", ["a"], ["c"], perm=[0, 2, 3, 1]), node("MatMul", ["b", "c"], ["d"]),
        node("Softmax", ["d"], ["e"]), node("MatMul", ["e", "b"], ["f"]), node("Reshape", ["f", "g"], ["y"]),
    ], {"h": ints(2, 6, 2, -1), "g": ints(-1, 6, 4)}),
    ("flatten", [node("Flatten", ["x"], ["f"]), node("Gemm", ["f", "w", "b"], ["y"])],
     {"w": random((24, 3)), "b": random((3,))}),
    ("reductions", [
        node("ReduceMean", ["x", "a"], ["m"], keepdims=0), node("ReduceMax", ["m", "a"], ["y"], keepdims=1),
    ], {"a": ints(-1)}),
    ("squeeze", [
        node("Unsqueeze", ["x", "a"], ["u"]), node("Transpose", ["u"], ["t"], perm=[0, 1, 3, 2]),
        node("Squeeze", ["t", "b"], ["y"]),
    ], {"a": ints(1), "b": ints(1)}),
    ("concat", [node("Concat", ["x", "c"], ["y"], axis=1)], {"c": np.ones((2, 1, 4))}),
    ("split", [node("Split", ["x", "s"], ["a", "b"], axis=1), node("Concat", ["b", "a"], ["y"], axis=1)],
     {"s": ints(1, 5)}),
    ("slice", [node("Slice", ["x", "s", "e"], ["y"])], {"s": ints(0, 1), "e": ints(2, 5)}),
    ("expand", [node("Unsqueeze", ["x", "a"], ["u"]), node("Expand", ["u", "s"], ["y"])],
     {"a": ints(2), "s": ints(2, 6, 3, 4)}),
    ("pad", [node("Pad", ["x", "p"], ["y"])], {"p": ints(0, 1, 0, 0, 0, 2)}),
    ("gather", [node("Gather", ["x", "i"], ["y"], axis=1)], {"i": ints(1, 3)}),
    ("pick", [node("Gather", ["x", "i"], ["y"], axis=1)], {"i": np.array(0)}),
    ("positions for each sample", [
        node("Transpose", ["table"], ["turned"]), node("GatherND", ["turned", "i"], ["p"]),
        node("Identity", ["p"], ["q"]), node("Add", ["x", "q"], ["a"]), node("Mul", ["a", "q"], ["y"]),
    ], {"table": random((4, 9)), "i": np.tile(np.arange(1, 7), (2, 1))[..., None]}),
    ("rows by their number", [node("GatherND", ["x", "i"], ["y"])], {"i": ints(*[[0, 5], [1, 5]])}),
    ("a table for each row", [node("Gather", ["table", "i"], ["t"]), node("Reshape", ["t", "s"], ["u"]),
                              node("Add", ["u", "x"], ["y"])],
     {"table": random((3, 4)), "i": np.tile(ints(0, 1, 2, 0, 1, 2), 2), "s": ints(2, 6, 4)}),
    ("tiled", [node("Tile", ["x", "t"], ["y"])], {"t": ints(1, 2, 1)}),
    ("resized", [node("Resize", ["x", "", "", "s"], ["y"])], {"s": ints(2, 6, 8)}),
    ("sum of products", [node("Einsum", ["x", "w"], ["y"], equation="bij,jk->bik")], {"w": random((4, 3))}),
    ("cropped", [node("CenterCropPad", ["x", "s"], ["y"])], {"s": ints(2, 4, 4)}),
    ("scattered", [node("ScatterElements", ["x", "i", "x"], ["y"], axis=1)],
     {"i": np.tile(np.arange(6)[::-1, None], (2, 1, 4))}),
    ("layer norm", [node("LayerNormalization", ["x", "c"], ["y"])], {"c": random((4,))}),
    ("frozen batch norm", [node("BatchNormalization", ["x", "c", "c", "c", "v"], ["y"])],
     {"c": random((6,)), "v": abs(random((6,))) + 1}),
    ("where", [node("Greater", ["x", "z"], ["c"]), node("Where", ["c", "x", "z"], ["y"])], {"z": np.array(0.5)}),
    ("convolution", [node("Conv", ["x", "w"], ["c"]), node("MaxPool", ["c"], ["y"], kernel_shape=[2])],
     {"w": random((2, 6, 2))}),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "constants"), [case[1:] for case in GOOD], ids=[case[0] for case in GOOD])
def test_chunk_by_chunk(nodes, constants, reference, forward_model):
    check(forward_model(nodes, data={"x": random((OLD, 6, 4))}, constants=constants), reference)


def test_tokens(reference, forward_model):
    nodes = [node("Gather", ["table", "tokens"], ["e"]), node("Gather", ["places", "range"], ["p"]),
             node("Add", ["e", "p"], ["y"])]  # fmt: skip
    parameters = {"table": random((7, 4)), "places": random((9, 4))}
    constants = {"range": np.arange(5)[None]}
    check(forward_model(nodes, parameters, {"tokens": np.zeros((OLD, 5), np.int64)}, constants), reference)


def test_two_inputs(reference, forward_model):
    nodes = [node("MatMul", ["x", "z"], ["y"])]
    check(forward_model(nodes, data={"x": random((OLD, 6, 4)), "z": random((OLD, 4, 3))}), reference)


def test_mask_of_the_batch_alone(reference, forward_model):
    nodes = [node("Cast", ["x"], ["b"], to=TensorProto.BOOL), node("Cast", ["b"], ["y"], to=TensorProto.DOUBLE)]
    check(forward_model(nodes, data={"x": random((OLD, 3))}), reference)


BAD = [
    ("sum over samples", node("ReduceSum", ["x", "a"], ["y"]), {"a": ints(0)}, "reduces over the samples"),
    ("softmax over samples", node("Softmax", ["x"], ["y"], axis=0), {}, "mixes samples"),
    ("torn apart", node("Reshape", ["x", "s"], ["y"]), {"s": ints(3, 16)}, "tears the batch apart"),
    ("a constant for each sample", node("Mul", ["x", "c"], ["y"]), {"c": random((2, 6, 4))}, "differs between samples"),
    ("samples beside others", node("Concat", ["x", "x"], ["y"], axis=0), {}, "along the batch"),
    ("some of the samples", node("Slice", ["x", "s", "e"], ["y"]), {"s": ints(0), "e": ints(1)}, "some of the samples"),
    ("the first sample", node("Gather", ["x", "i"], ["y"]), {"i": np.array(0)}, "picks among the samples"),
    ("padded batch", node("Pad", ["x", "p"], ["y"]), {"p": ints(1, 0, 0, 0, 0, 0)}, "puts other elements beside them"),
    ("training mode", node("BatchNormalization", ["x", "c", "c", "c", "c"], ["y", "m", "v"], training_mode=1),
     {"c": np.ones(6)}, "mixes samples"),
    ("contracted", node("MatMul", ["c", "x"], ["y"]), {"c": random((2, 3, 6))}, "differs between samples"),
    ("layer norm over all", node("LayerNormalization", ["x", "c"], ["y"], axis=0), {"c": random((2, 6, 4))},
     "mixes samples"),
    ("samples by samples", node("Einsum", ["x", "x"], ["y"], equation="bij,cij->bc"), {}, "at different places"),
    ("sum of an Einsum", node("Einsum", ["x"], ["y"], equation="bij->ij"), {}, "reduces over the samples"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "constants", "reason"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_refused(bad, constants, reason, forward_model):
    bad.name = "bad"
    forward = forward_model([bad], data={"x": random((OLD, 6, 4))}, constants=constants)
    with pytest.raises(UnsupportedError) as error:
        with_batch(forward.graph(), 4)
    assert error.value.what == "the batch cannot be changed from 2 to 4"
    assert "op 'bad'" in error.value.facts[0]
    assert reason in error.value.facts[0]


def test_all_ops_in_the_way(forward_model):
    nodes = [
        node("ReduceSum", ["x", "a"], ["s"], name="one"),
        node("Exp", ["s"], ["y"], name="after it"),
        node("Softmax", ["x"], ["z"], name="two", axis=0),
    ]
    forward = forward_model(nodes, data={"x": random((2, 3))}, constants={"a": ints(0)}, outputs=["y", "z"])
    with pytest.raises(UnsupportedError) as error:
        with_batch(forward.graph(), 4)
    assert [fact.split(" (")[0] for fact in error.value.facts] == ["op 'one'", "op 'two'"]


def test_the_single_sample_of_a_batch_of_one(reference, forward_model):
    """A batch of 1 merges with what follows it, and comes apart again."""
    nodes = [node("Reshape", ["x", "m"], ["f"]), node("Relu", ["f"], ["r"]), node("Reshape", ["r", "s"], ["y"])]
    graph = forward_model(nodes, data={"x": random((1, 6, 4))}, constants={"m": ints(6, 4), "s": ints(1, 6, 4)}).graph()
    changed = with_batch(graph, 3)
    assert changed.tensors["f"].shape == (18, 4)
    x = random((3, 6, 4))
    np.testing.assert_array_equal(reference(to_model(changed), {"x": x})["y"], np.maximum(x, 0))


def test_a_batch_of_one_that_is_broadcast(forward_model):
    forward = forward_model(
        [node("Add", ["x", "c"], ["y"])], data={"x": random((1, 4))}, constants={"c": random((5, 4))}
    )
    with pytest.raises(UnsupportedError) as error:
        with_batch(forward.graph(), 3)
    assert "repeats them" in error.value.facts[0]


def test_a_squeeze_without_axes_would_drop_a_batch_of_one(forward_model):
    forward = forward_model([node("Squeeze", ["x"], ["y"])], data={"x": random((2, 1, 4))})
    assert with_batch(forward.graph(), 3).tensors["y"].shape == (3, 4)
    with pytest.raises(UnsupportedError):
        with_batch(forward.graph(), 1)


def test_the_same_batch_is_the_same_graph(forward_model):
    graph = forward_model([node("Exp", ["x"], ["y"])], data={"x": random((2, 3))}).graph()
    assert with_batch(graph, 2) is graph


def test_no_batch_at_all(forward_model):
    graph = forward_model([node("Exp", ["x"], ["y"])], data={"x": np.array(1.0)}).graph()
    with pytest.raises(UnsupportedError, match="no input of the model has dims"):
        with_batch(graph, 2)
