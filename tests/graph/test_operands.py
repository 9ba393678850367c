"""Operands that contradict each other, where ONNX's own inference does not look."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import defs

from planner import opdefs
from planner.errors import ModelError
from planner.graph.core.model import Graph
from planner.graph.folding.operands import WORDS
from stock_runtime import NO_ERRORS, run

Read = Callable[..., Graph]
Parse = Callable[..., onnx.ModelProto]

CASES = {
    "Gemm (x, w, c)": ("[4, 6] [6, 3] [3]", "[4, 6] [6, 3] [2]", "input 2 is [2], which does not stretch to [4, 3]"),
    "Conv (x, w)": ("[1, 3, 8] [4, 3, 1]", "[1, 3, 8] [4, 5, 1]", "in 1 group(s) does not fit an input of 3 channels"),
    "Conv <group = 3> (x, w)": ("[1, 3, 8] [6, 1, 1]", "[1, 3, 8] [4, 1, 1]", "in 3 group(s) does not fit"),
    "Conv (x, w, b)": ("[1, 3, 8] [4, 3, 1] [4]", "[1, 3, 8] [4, 3, 1] [3]", "its input 2 is [3], and must be [4]"),
    "Conv <kernel_shape = [3]> (x, w)": (
        "[1, 3, 8] [4, 3, 3]", "[1, 3, 8] [4, 3, 2]", "its kernel_shape is [3], and its weight [4, 3, 2]",
    ),
    "ConvTranspose <kernel_shape = [2]> (x, w)": (
        "[1, 3, 8] [3, 5, 2]", "[1, 3, 8] [3, 5, 1]", "its kernel_shape is [2], and its weight [3, 5, 1]",
    ),
    "Transpose <perm = [0, 2, 1]> (x)": (
        "[2, 3, 4]", "[2, 3, 4, 5]", "its perm is [0, 2, 1], which does not order the dims of an input of [2, 3, 4, 5]",
    ),
    "ConvTranspose (x, w, b)": ("[1, 3, 8] [3, 5, 1] [5]", "[1, 3, 8] [3, 5, 1] [3]", "2 is [3], and must be [5]"),
    "GroupNormalization <num_groups = 2> (x, s, b)": (
        "[2, 6, 4] [6] [6]", "[2, 6, 4] [2] [2]", "its input 1 is [2], and must be [6]",
    ),
    "InstanceNormalization (x, s, b)": ("[2, 3, 4] [3] [3]", "[2, 3, 4] [3] [2, 3, 4]", "2 is [2, 3, 4], and must be"),
    "LayerNormalization (x, s)": ("[2, 3, 4] [4]", "[2, 3, 4] [3]", "which does not stretch to [2, 3, 4]"),
    "ReverseSequence (x, i)": ("[6, 5] [5]", "[6, 5] [6]", "its input 1 is [6], and must be [5]"),
    "ReverseSequence <time_axis = 1, batch_axis = -3> (x, i)": (
        "[6, 5, 2] [6]", "[6, 5] [6]", "its time_axis is 1 and its batch_axis -3, and must be 0 and 1, or 1 and 0",
    ),
    "PRelu (x, s)": ("[2, 3, 4] [3, 1]", "[2, 3, 4] [2, 2, 3, 4]", "which does not stretch to [2, 3, 4]"),
    "LSTM <hidden_size = 5> (x, w, r)": (
        "[7, 2, 3] [1, 20, 3] [1, 20, 5]", "[7, 2, 3] [1, 20, 4] [1, 20, 5]", "its input 1 is [1, 20, 4], and must be",
    ),
    "SoftmaxCrossEntropyLoss (x, i)": ("[4, 6] [4]", "[4, 6] [5]", "its input 1 is [5], and must be [4]"),
    "GatherElements (x, i)": ("[4, 6] [9, 6]", "[4, 6] [9, 7]", "which leave its data of [4, 6]"),
    "ScatterElements (x, i, u)": ("[4, 6] [3, 6] [3, 6]", "[4, 6] [3, 6] [2, 6]", "its input 2 is [2, 6], and must be"),
    "ScatterND (x, i, u)": ("[4, 6] [3, 1] [3, 6]", "[4, 6] [3, 1] [3]", "its input 2 is [3], and must be [3, 6]"),
}  # fmt: skip


def text(op: str, shapes: str) -> str:
    """A graph of one op whose operands have these shapes; ``i`` are indices."""
    names = op.rpartition("(")[2].rstrip(")").split(", ")
    types = ["int64" if name == "i" else "float" for name in names]
    inputs = [f"{kind}{shape}] {name}" for kind, shape, name in zip(types, shapes.split("]"), names, strict=False)]
    return f"g ({', '.join(inputs)}) => (y) {{ {'_, y' if op.startswith('LSTM') else 'y'} = {op} }}"


@pytest.mark.parametrize("op", CASES)
def test_what_fits_is_read_and_what_does_not_is_refused(op: str, read: Read) -> None:
    fits, contradicts, said = CASES[op]
    assert len(read(text(op, fits), state_pairs=()).ops) == 1
    with pytest.raises(ModelError, match="contradict what they read") as caught:
        read(text(op, contradicts), state_pairs=())
    assert said in caught.value.facts[0]


@pytest.mark.parametrize("flag", [2, 64, -1])
def test_a_flag_is_0_or_1(flag: int, read: Read) -> None:
    with pytest.raises(ModelError, match="contradict what they read") as caught:
        read(f"g (float[2, 3] x) => (y) {{ y = ReduceMax <keepdims = {flag}> (x) }}", state_pairs=())
    assert f"its attribute keepdims is {flag}, and must be 0 or 1" in caught.value.facts[0]


def test_a_pool_of_nothing_is_refused(read: Read) -> None:
    text = (
        "g (float[2, 3, 8, 8] x) => (float[2, 3, 1, 1] y)"
        " { h = MaxPool <kernel_shape = [1, 1], strides = [1, ROWS]> (x) p = MaxPool <kernel_shape = [1, 2]> (h)"
        " y = GlobalAveragePool (p) }"
    )
    assert len(read(text.replace("ROWS", "1"), state_pairs=()).ops) == 3
    with pytest.raises(ModelError, match="contradict what they read") as caught:
        read(text.replace("ROWS", "9"), state_pairs=())
    assert "its input 0 is [2, 3, 8, 0], which leaves nothing to be pooled" in caught.value.facts[0]


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_a_pad_of_nothing_has_nothing_to_repeat(mode: str, read: Read) -> None:
    text = f'g (float[2, 0] x) => (y) <int64[4] p = {{0, 1, 0, 1}}> {{ y = Pad <mode = "{mode}"> (x, p) }}'
    assert len(read(text.replace(mode, "constant"), state_pairs=()).ops) == 1
    assert len(read(text.replace("0, 1, 0, 1", "1, 0, 0, 0"), state_pairs=()).ops) == 1
    with pytest.raises(ModelError, match="contradict what they read") as caught:
        read(text, state_pairs=())
    assert f"its mode is {mode}, and its input is [2, 0], which has nothing to repeat" in caught.value.facts[0]


def test_a_split_states_as_many_outputs_as_it_has(read: Read) -> None:
    """ONNX's inference ends the process at this."""
    text = "g (float[4, 6] x) => (a, b, c) { a, b, c = Split <axis = 1, num_outputs = N> (x) }"
    assert len(read(text.replace("N", "3"), state_pairs=()).ops) == 1
    for stated in ("1", "2", "4"):
        with pytest.raises(ModelError, match="contradict what they read") as caught:
            read(text.replace("N", stated), state_pairs=())
        assert f"its num_outputs is {stated}, and it has 3 outputs" in caught.value.facts[0]


def test_the_condition_of_an_if_is_one_value(read: Read) -> None:
    text = (
        "g (float[2] x) => (float[2] y) <bool[SIZE] c = {VALUES}> { y = If (c) <"
        "then_branch = t () => (float[2] u) { u = Abs (x) }, else_branch = e () => (float[2] v) { v = Neg (x) }> }"
    )
    assert [op.op_type for op in read(text.replace("SIZE", "1").replace("VALUES", "1"), state_pairs=()).ops] == ["Abs"]
    with pytest.raises(ModelError, match=r"\(If\): its condition has 2 elements, and must have one"):
        read(text.replace("SIZE", "2").replace("VALUES", "1, 0"), state_pairs=())


def test_an_axis_is_no_other_one_in_32_bits(read: Read) -> None:
    text = "g (float[4, 6] x) => (a, b, c) { a, b, c = Split <axis = AXIS, num_outputs = 3> (x) }"
    assert len(read(text.replace("AXIS", "1"), state_pairs=()).ops) == 1
    with pytest.raises(ModelError, match="contradict what they read") as caught:
        read(text.replace("AXIS", str(2**62)), state_pairs=())
    assert f"its axis is {2**62}, which no tensor has" in caught.value.facts[0]


@pytest.mark.parametrize("axis", [3, 64, -4])
def test_the_axis_of_a_normalisation_is_one_of_its_dims(axis: int, read: Read) -> None:
    """ONNX's inference reads beyond its memory."""
    text = "g (float[3, 4, 6] x, float[6] w) => (y, m, d) { y, m, d = LayerNormalization <axis = AXIS> (x, w) }"
    assert len(read(text.replace("AXIS", "2"), state_pairs=()).ops) == 1
    with pytest.raises(ModelError, match="contradict what they read") as caught:
        read(text.replace("AXIS", str(axis)), state_pairs=())
    assert f"its axis is {axis}, and its input has 3 dims" in caught.value.facts[0]


def test_what_onnx_itself_fails_at_is_refused(read: Read) -> None:
    text = (
        "g (float[2, 16, 1] x) => (float[2, 4, 5, 2] y) <int64[N] s = {VALUES}, int64 n = {8}> { y = STFT (x, s, , n) }"
    )
    with pytest.raises(ModelError, match="contradict what they read"):
        read(text.replace("N", "0").replace("VALUES", ""), state_pairs=())


SPELT = {
    'MaxPool <kernel_shape = [2], auto_pad = "SAME_UPPER"> (x)': ("[1, 2, 6]", "SAME_UPPER", "SAME"),
    'Conv <auto_pad = "VALID"> (x, w)': ("[1, 3, 8] [4, 3, 1]", "VALID", ""),
    'DepthToSpace <blocksize = 2, mode = "CRD"> (x)': ("[1, 4, 2, 2]", "CRD", "crd"),
    'LSTM <hidden_size = 5, direction = "reverse"> (x, w, r)': ("[7, 2, 3] [1, 20, 3] [1, 20, 5]", "reverse", "back"),
    'RNN <hidden_size = 5, activations = ["Relu"]> (x, w, r)': ("[7, 2, 3] [1, 5, 3] [1, 5, 5]", "Relu", "relu"),
    'GRU <hidden_size = 5, activations = ["relu", "Tanh"]> (x, w, r)': (
        "[7, 2, 3] [1, 15, 3] [1, 15, 5]", "relu", "swish",
    ),
    'Gelu <approximate = "tanh"> (x)': ("[4]", "tanh", "erf"),
    'ScatterElements <reduction = "max"> (x, i, u)': ("[4, 6] [3, 6] [3, 6]", "max", "sum"),
}  # fmt: skip


@pytest.mark.parametrize("op", SPELT)
def test_a_word_is_one_that_onnx_knows(op: str, read: Read) -> None:
    shapes, word, other = SPELT[op]
    form = text(op, shapes).replace("_, y = ", "y = ")
    if op.split()[0] in ("LSTM", "GRU", "RNN"):
        form = form.replace("=> (y) { y = ", "=> (h) { y, h = ")
    assert len(read(form, state_pairs=()).ops) == 1
    with pytest.raises(ModelError, match="contradict what they read") as caught:
        read(form.replace(f'"{word}"', f'"{other}"'), state_pairs=())
    assert repr(other) in caught.value.facts[0]
    assert "its attribute " in caught.value.facts[0]


FREE = {"Einsum.equation", "TfIdfVectorizer.pool_strings", "Constant.value_string", "Constant.value_strings"}


def test_every_attribute_of_words_has_its_words() -> None:
    """By ONNX's schemas of what is described: each string is of a list, and each of its words stands in the text."""
    described = [op_type for domain, op_type in opdefs.standard().described if not domain and defs.has(op_type)]
    assert len(described) > 100
    for op_type in described:
        schema = defs.get_schema(op_type)
        for name, attribute in schema.attributes.items():
            if "STRING" in attribute.type.name and f"{op_type}.{name}" not in FREE:
                words = WORDS.get(f"{op_type}.{name}") or WORDS[name]
                said = schema.doc + attribute.description
                assert [word for word in words if word not in said] in ([], ["tf_half_pixel_for_nn"]), op_type


OPTIONS = [("nearest", 1, 0), ("nearest", 0, 1), ("linear", 0, 1), ("linear", 1, 0), ("linear", 1, 1), ("cubic", 1, 1)]


@pytest.mark.parametrize(("mode", "smooths", "excludes"), OPTIONS)
def test_a_resize_has_the_options_of_its_mode(mode: str, smooths: int, excludes: int, read: Read, parse: Parse) -> None:
    form = (
        "g (float[1, 1, 6, 6] x) => (y) <float[4] s = {1, 1, 0.5, 0.5}> "
        f'{{ y = Resize <mode = "{mode}", antialias = {smooths}, exclude_outside = {excludes}> (x, , s) }}'
    )
    try:
        run(parse(form), {"x": np.ones((1, 1, 6, 6), np.float32)}, log_level=NO_ERRORS)
    except Exception:  # noqa: BLE001 -- whatever the runtime raises, it refuses
        with pytest.raises(ModelError, match="contradict what they read") as caught:
            read(form, state_pairs=())
        assert f"mode {mode} has" in caught.value.facts[0]
    else:
        assert len(read(form, state_pairs=()).ops) == 1
