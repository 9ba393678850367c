"""Data parallelism moves each trained byte twice to every worker but one, whatever layers a network has.

Statistics of normalisations over the batch move, too: the running ones are as large, and state as well. Samples may lie
in the second dim of the input; then all costs the same. The layers are those of ``torch.nn``, as its exporter writes
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser, save_model

from fast_suite import chosen
from planner import api, opdefs
from planner.features.zoo.models import build
from planner.graph.core.model import Graph
from planner.graph.reading.from_onnx import read_model
from planner.graph.rewriting.canonical import canonical
from planner.planning.bodies import decide_with_bodies
from planner.search.decision import Decision
from planner.search.request import SearchRequest

STANDARD = opdefs.standard()
SAMPLES, WORKERS = 16, 4
KINDS: Mapping[str, tuple[tuple[int, ...], str, str]] = {
    # a sample; a layer in front, which makes h; a layer behind, which reads m
    "vector": ((24,), "h = MatMul(x, wa[24,32])", "y = MatMul(m, wb[32,16])"),
    "sequence": ((8, 24), "h = MatMul(x, wa[24,32])", "y = MatMul(m, wb[32,16])"),
    "line": ((3, 32), "h = Conv <pads = [1, 1]> (x, wa[8,3,3])", "y = Conv(m, wb[4,8,1])"),
    "image": ((3, 12, 12), "h = Conv <pads = [1, 1, 1, 1]> (x, wa[8,3,3,3])", "y = Conv(m, wb[4,8,1,1])"),
    "volume": ((3, 8, 8, 8), "h = Conv <pads = [1, 1, 1, 1, 1, 1]> (x, wa[8,3,3,3,3])", "y = Conv(m, wb[4,8,1,1,1])"),
    "tokens": ((8,), "h = Gather(wa[40,32], x)", "y = MatMul(m, wb[32,16])"),
}
ACTIVATIONS = (
    "Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "LogSoftmax", "Mish", "Relu", "Selu", "Shrink",
    "Sigmoid", "Softmax", "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
)  # fmt: skip
HEADS = """
    qx = MatMul({q}, wq[32,32]) kx = MatMul({k}, wk[32,32]) vx = MatMul({k}, wv[32,32])
    qh = Reshape(qx, {{0,0,4,8}}) kh = Reshape(kx, {{0,0,4,8}}) vh = Reshape(vx, {{0,0,4,8}})
    qt = Transpose <perm = [0, 2, 1, 3]> (qh) kt = Transpose <perm = [0, 2, 3, 1]> (kh)
    vt = Transpose <perm = [0, 2, 1, 3]> (vh) s = MatMul(qt, kt) p = Softmax(s) c = MatMul(p, vt)
    ct = Transpose <perm = [0, 2, 1, 3]> (c) cr = Reshape(ct, {{0,0,32}}) o = MatMul(cr, wo[32,32])"""
ATTENTION = HEADS.format(q="h", k="h")
FEED_FORWARD = "f = MatMul(n, wf[32,48]) fa = Relu(f) fb = MatMul(fa, wg[48,32])"
STEPS = [", ".join(f"{name}{step}" for step in range(8)) for name in "pq"]
CELL = """
    a{0} = Squeeze(p{0}, {{1}}) i{0} = Gemm <transB = 1> (a{0}, wc[32,32], wd[32])
    r{0} = Gemm <transB = 1> (s{0}, we[32,32]) b{0} = Add(i{0}, r{0}) s{1} = Tanh(b{0}) q{0} = Unsqueeze(s{1}, {{1}})"""
"""A recurrent cell of PyTorch, at one of eight steps."""
LAYERS: Mapping[str, tuple[str, str]] = {
    **{name: ("vector", f"m = {name}(h)") for name in ACTIVATIONS},
    "PReLU": ("vector", "m = PRelu(h, wp[32])"),
    "Hardtanh": ("vector", "m = Clip(h, lowest, highest)"),
    "SiLU": ("vector", "s = Sigmoid(h) m = Mul(h, s)"),
    "LogSigmoid": ("vector", "n = Neg(h) s = Softplus(n) m = Neg(s)"),
    "Tanhshrink": ("vector", "t = Tanh(h) m = Sub(h, t)"),
    "GLU": ("vector", "g, u = Split <axis = -1, num_outputs = 2> (h) s = Sigmoid(u) p = Mul(g, s)"
            "m = MatMul(p, wc[16,32])"),
    "bias": ("vector", "m = Add(h, wc[32])"),
    "Gemm": ("vector", "m = Gemm <transB = 1> (h, wc[32,32], wd[32])"),
    "Bilinear": ("vector", 'm = Einsum <equation = "bi,oij,bj->bo"> (h, wc[32,32,32], h)'),
    "weight norm": ("vector", "n = ReduceL2(wc[32,32], {0}) d = Div(wc[32,32], n) v = Mul(wd[1,32], d)"
                    "m = MatMul(h, v)"),
    "BatchNorm1d": ("vector", "m = BatchNormalization(h, wc[32], wd[32], mean[32], variance[32])"),
    "linear": ("sequence", "m = Add(h, wc[32])"),
    "LayerNorm": ("sequence", "m = LayerNormalization(h, wc[32], wd[32])"),
    "LayerNorm of two dims": ("sequence", "m = LayerNormalization <axis = -2> (h, wc[8,32], wd[8,32])"),
    "RMSNorm": ("sequence", "s = Mul(h, h) a = ReduceMean(s, {-1}) q = Sqrt(a) d = Div(h, q) m = Mul(d, wc[32])"),
    "positions": ("sequence", "m = Add(h, wc[8,32])"),
    "token in front": ("sequence", "e = Expand(wc[1,1,32], {16,1,32}) m = Concat <axis = 1> (e, h)"),
    "flat rows": ("sequence", "r = Reshape(h, {-1,32}) g = Gemm(r, wc[32,32], wd[32]) m = Reshape(g, {16,8,32})"),
    "MultiheadAttention": ("sequence", f"{ATTENTION} m = Identity(o)"),
    "TransformerEncoderLayer": ("sequence", f"{ATTENTION} a = Add(h, o) n = LayerNormalization(a, wc[32], wd[32])"
                                f"{FEED_FORWARD} b = Add(n, fb) m = LayerNormalization(b, we[32], wh[32])"),
    "norm first": ("sequence", f"l = LayerNormalization(h, wc[32], wd[32]) {HEADS.format(q='l', k='l')} n = Add(h, o)"
                   f"{FEED_FORWARD} m = Add(n, fb)"),
    "cross attention": ("sequence", f"l = Tanh(h) {HEADS.format(q='h', k='l')} m = Add(h, o)"),
    "GRU": ("sequence", "t = Transpose <perm = [1, 0, 2]> (h)"
            "g = GRU <hidden_size = 32, linear_before_reset = 1> (t, wc[1,96,32], wd[1,96,32], we[1,192])"
            "q = Squeeze(g, {1}) m = Transpose <perm = [1, 0, 2]> (q)"),
    "LSTM": ("sequence", "t = Transpose <perm = [1, 0, 2]> (h)"
             "g = LSTM <hidden_size = 32> (t, wc[1,128,32], wd[1,128,32], we[1,256])"
             "q = Squeeze(g, {1}) m = Transpose <perm = [1, 0, 2]> (q)"),
    "LSTM both ways": ("sequence", "t = Transpose <perm = [1, 0, 2]> (h) g = LSTM"
                       '<hidden_size = 16, direction = "bidirectional"> (t, wc[2,64,32], wd[2,64,16], we[2,128])'
                       "q = Transpose <perm = [2, 0, 1, 3]> (g) m = Reshape(q, {0,0,32})"),
    "RNN": ("sequence", "t = Transpose <perm = [1, 0, 2]> (h)"
            "g = RNN <hidden_size = 32> (t, wc[1,32,32], wd[1,32,32], we[1,64])"
            "q = Squeeze(g, {1}) m = Transpose <perm = [1, 0, 2]> (q)"),
    "RNNCell": ("sequence", f"{STEPS[0]} = Split <axis = 1, num_outputs = 8> (h) s0 = ConstantOfShape({{16,32}})"
                f"{' '.join(map(CELL.format, range(8), range(1, 9)))} m = Concat <axis = 1> ({STEPS[1]})"),
    "Embedding": ("tokens", "m = Tanh(h)"),
    "EmbeddingBag": ("tokens", "m = ReduceSum <keepdims = 0> (h, {1})"),
    "tied embedding": ("tokens", "t = Transpose(wa[40,32]) l = MatMul(h, t) m = MatMul(l, wc[40,32])"),
    "MaxPool1d": ("line", "m = MaxPool <kernel_shape = [2], strides = [2]> (h)"),
    "AvgPool1d": ("line", "m = AveragePool <kernel_shape = [2], strides = [2]> (h)"),
    "InstanceNorm1d": ("line", "m = InstanceNormalization(h, wc[8], wd[8])"),
    "Conv1d": ("line", "m = Conv <group = 8, pads = [3, 0]> (h, wc[8,1,4])"),
    "MaxPool2d": ("image", "m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (h)"),
    "MaxPool2d of 3": ("image", "m = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (h)"),
    "AvgPool2d": ("image", "m = AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (h)"),
    "LPPool2d": ("image", "m = LpPool <kernel_shape = [2, 2], strides = [2, 2]> (h)"),
    "AdaptiveAvgPool2d": ("image", "m = GlobalAveragePool(h)"),
    "AdaptiveMaxPool2d": ("image", "m = GlobalMaxPool(h)"),
    "squeeze and excitation": ("image", "g = GlobalAveragePool(h) a = Conv(g, wc[2,8,1,1], wd[2]) b = Relu(a)"
                               "c = Conv(b, we[8,2,1,1], wf[8]) s = Sigmoid(c) m = Mul(h, s)"),
    "BatchNorm2d": ("image", "m = BatchNormalization(h, wc[8], wd[8], mean[8], variance[8])"),
    "GroupNorm": ("image", "m = GroupNormalization <num_groups = 2> (h, wc[8], wd[8])"),
    "InstanceNorm2d": ("image", "m = InstanceNormalization(h, wc[8], wd[8])"),
    "LocalResponseNorm": ("image", "m = LRN <size = 3> (h)"),
    "channels last": ("image", "t = Transpose <perm = [0, 2, 3, 1]> (h) l = LayerNormalization(t, wc[8], wd[8])"
                      "m = Transpose <perm = [0, 3, 1, 2]> (l)"),
    "Softmax2d": ("image", "m = Softmax <axis = 1> (h)"),
    "ReflectionPad2d": ("image", 'm = Pad <mode = "reflect"> (h, {0,0,1,1,0,0,1,1})'),
    "ReplicationPad2d": ("image", 'm = Pad <mode = "edge"> (h, {0,0,1,1,0,0,1,1})'),
    "CircularPad2d": ("image", 'm = Pad <mode = "wrap"> (h, {0,0,1,1,0,0,1,1})'),
    "ZeroPad2d": ("image", "m = Pad(h, {0,0,1,1,0,0,1,1})"),
    "nearest Upsample": ("image", 'm = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric",'
                         'nearest_mode = "floor"> (h, , , {16,8,24,24})'),
    "bilinear Upsample": ("image", 'm = Resize <mode = "linear"> (h, , , {16,8,24,24})'),
    "aligned Upsample": ("image", 'm = Resize <mode = "linear", coordinate_transformation_mode = "align_corners">'
                         "(h, , , {16,8,17,17})"),
    "bicubic Upsample": ("image", 'm = Resize <mode = "cubic"> (h, , , {16,8,24,24})'),
    "PixelShuffle": ("image", 'd = DepthToSpace <blocksize = 2, mode = "CRD"> (h) m = Conv(d, wc[8,2,1,1])'),
    "PixelUnshuffle": ("image", "d = SpaceToDepth <blocksize = 2> (h) m = Conv(d, wc[8,32,1,1])"),
    "ChannelShuffle": ("image", "r = Reshape(h, {0,2,4,12,12}) t = Transpose <perm = [0, 2, 1, 3, 4]> (r)"
                       "m = Reshape(t, {0,8,12,12})"),
    "Flatten": ("image", "f = Flatten(h) g = MatMul(f, wc[1152,8]) m = Unsqueeze(g, {2,3})"),
    "patches": ("image", "p = Conv <strides = [4, 4]> (h, wc[8,8,4,4]) r = Reshape(p, {0,8,9})"
                "t = Transpose <perm = [0, 2, 1]> (r) q = Add(t, wd[1,9,8]) u = Transpose <perm = [0, 2, 1]> (q)"
                "m = Reshape(u, {0,8,3,3})"),
    "MaxPool3d": ("volume", "m = MaxPool <kernel_shape = [2, 2, 2], strides = [2, 2, 2]> (h)"),
    "AvgPool3d": ("volume", "m = AveragePool <kernel_shape = [2, 2, 2], strides = [2, 2, 2]> (h)"),
    "BatchNorm3d": ("volume", "m = BatchNormalization(h, wc[8], wd[8], mean[8], variance[8])"),
}  # fmt: skip
FAST = ("GLU", "LayerNorm", "token in front", "tied embedding")
SLOW = (
    "Relu", "Softmax", "PReLU", "Gemm", "Bilinear", "weight norm", "BatchNorm1d", "LayerNorm of two dims", "flat rows",
    "MultiheadAttention", "GRU", "LSTM both ways", "RNN", "EmbeddingBag", "AvgPool1d", "MaxPool2d of 3", "GroupNorm",
    "LocalResponseNorm", "ReflectionPad2d", "aligned Upsample", "PixelShuffle", "ChannelShuffle", "Flatten", "patches",
)  # fmt: skip
MODELS = Path(__file__).parents[1] / "models"
EXPORTED: Mapping[str, int | None] = {
    # samples, where they are more than the file has
    **dict.fromkeys(("bert.raw", "exports/llama.raw", "exports/vit.raw", "fresh/cnn", "fresh/gpt-2", "fresh/llama"), 8),
    **dict.fromkeys(("fresh/vit", "resnet50.raw"), 8),
    **dict.fromkeys(("t5", "world/detector", "world/gru", "world/hf-bert", "world/hf-gpt2", "world/hf-llama")),
    **dict.fromkeys(("world/hf-t5", "world/hf-vit", "world/lstm-2-both-ways", "world/recommender")),
    "world/unet-bilinear": None,
}
ZOO: Mapping[str, int | None] = {
    # layers, where they are fewer than the model has
    **dict.fromkeys(("mlp-5x300", "cnn-5x64-24", "lenet-5", "alexnet", "vgg-16", "resnet-50", "rnn-2-1k")),
    **dict.fromkeys(("gpt-2x64-4h", "gpt-2x64-4h-lm")),
    **dict.fromkeys(("vit-h", "dit-xl", "whisper-large"), 2),
}


def layer_step(layer: str, folder: Path, *, second: bool = False, unread: bool = False) -> Graph:
    """A training step of a layer between two others.

    Args:
        layer: its name.
        folder: where to write it.
        second: samples lie in the second dim, and a Transpose brings them to the front.
        unread: there is an input before x that nobody reads.
    """
    kind, body = LAYERS[layer]
    sample, front, behind = KINDS[kind]
    rng = np.random.default_rng(1)
    constants: dict[str, np.ndarray] = {"lowest": np.array(-1, np.float32), "highest": np.array(1, np.float32)}

    def weight(found: re.Match[str]) -> str:
        shape = tuple(map(int, found[2].split(",")))
        drawn = np.abs(rng.standard_normal(shape)) if found[1] == "variance" else rng.standard_normal(shape) / 4
        constants.setdefault(found[1], drawn.astype(np.float32))
        return found[1]

    def integers(found: re.Match[str]) -> str:
        name = f"at{found.start()}"
        constants[name] = np.array(found[1].split(","), np.int64)
        return name

    text = f"{front} {body} {behind}"
    text = re.sub(r"\{([-\d,]+)\}", integers, re.sub(r"(\w+)\[([\d,]+)\]", weight, text))
    shape, given = (SAMPLES, *sample), "x"
    if second:
        shape, given = (sample[0], SAMPLES, *sample[1:]), "moved"
        perm = [1, 0, *range(2, len(shape))]
        text = f"x = Transpose <perm = {perm}> (moved) {text}"
    ahead = f"float[3, {SAMPLES}] other, " if unread else ""
    dtype = "int64" if kind == "tokens" else "float"
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        net ({ahead}{dtype}[{", ".join(map(str, shape))}] {given}) => (float y) {{ {text} }}"""
    )
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    read = {name for node in model.graph.node for name in node.input}
    kept = [numpy_helper.from_array(value, name) for name, value in constants.items() if name in read]
    model.graph.initializer.extend(kept)
    save_model(model, folder / "m.onnx")
    api.grad(folder / "m.onnx", loss="mse", optimizer="sgd", train=("w*",), output=folder / "step.onnx")
    return canonical(read_model(folder / "step.onnx")).graph


def planned(graph: Graph, strategy: str) -> Decision:
    return decide_with_bodies(graph, STANDARD, SearchRequest(WORKERS, strategy=strategy, effort="quick"))


def overhead(graph: Graph, plan: Decision) -> float:
    """What moves, over twice the state that all workers hold, to every worker but one."""
    state = [pair.current for pair in graph.state]
    held = sum(graph.tensors[name].size_bytes for name in state if "S" not in str(plan.tilings[name]))
    return plan.moved_bytes / (2 * (WORKERS - 1) * held)


@pytest.mark.parametrize("layer", chosen(LAYERS, FAST, LAYERS.keys() - {*FAST, *SLOW}))
def test_the_trained_bytes_move_and_layouts_cost_the_same(layer: str, tmp_path: Path) -> None:
    costs = []
    for second in (False, True):
        graph = layer_step(layer, tmp_path, second=second)
        by_data, found = planned(graph, "data"), planned(graph, "tofu")
        assert 0.95 <= overhead(graph, by_data) <= 1.05
        assert found.cost <= by_data.cost
        costs.append((by_data.cost, found.cost))
    if LAYERS[layer][0] == "tokens":
        assert costs[0][0] == costs[1][0]
        assert costs[0][1] == pytest.approx(costs[1][1], rel=0.1), "every worker turns all tokens"
    else:
        assert costs[0] == costs[1]


@pytest.mark.parametrize("name", chosen(ZOO, ["mlp-5x300", "gpt-2x64-4h-lm"], night=["vgg-16", "vit-h", "dit-xl"]))
def test_models_of_the_zoo_move_the_trained_bytes(name: str) -> None:
    graph = canonical(build(name, optimizer="sgd", layers=ZOO[name])).graph
    assert 0.95 <= overhead(graph, planned(graph, "data")) <= 1.05


@pytest.mark.parametrize("name", chosen(EXPORTED, ["fresh/cnn"], night=[*EXPORTED][::2]))
def test_exported_models_move_the_trained_bytes(name: str, tmp_path: Path) -> None:
    forward = read_model(MODELS / f"{name}.onnx")
    target = next(made for made in forward.outputs if forward.tensors[made].shape)
    file, step = MODELS / f"{name}.onnx", tmp_path / "step.onnx"
    api.grad(file, loss="mse", optimizer="sgd", loss_input=target, batch=EXPORTED[name], output=step)
    graph = canonical(read_model(step)).graph
    assert 0.95 <= overhead(graph, planned(graph, "data")) <= 1.05


def test_an_input_that_nobody_reads_has_no_samples(tmp_path: Path) -> None:
    graph = layer_step("GLU", tmp_path, unread=True)
    assert overhead(graph, planned(graph, "data")) >= 1


@pytest.mark.parametrize("layer", ["GRU", "LSTM", "RNN", "RNNCell"])
def test_the_gradient_of_a_recurrent_matrix_is_one_product(layer: str, tmp_path: Path) -> None:
    """No matrices are added up over time steps: every worker would do that with whole ones."""
    graph = layer_step(layer, tmp_path)
    added = [graph.tensors[op.outputs[0]].shape for op in graph.ops if op.op_type == "Add"]
    assert all(SAMPLES in shape or len(shape) < 2 for shape in added)
