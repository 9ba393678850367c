"""The models with which exports are tried: of the zoo, and of others' tools, small enough for a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from planner.api import grad, zoo

_MODELS: Final = Path(__file__).parents[1] / "models"
_ZOO: Final = {
    "mlp-5x300": ("mlp-5x300", None),
    "mlp-4x512": ("mlp-4x512", 64),
    "cnn-3x16-12": ("cnn-3x16-12", 8),
    "cnn-3x16-12 by rows": ("cnn-3x16-12", 8),
    "lenet-5": ("lenet-5", 16),
    "gpt-1x64": ("gpt-1x64-1h", 1),
    "gpt-1x64-lm": ("gpt-1x64-1h-lm", 1),
    "rnn-1-1k": ("rnn-1-1k", 8),
}
"""By name, the zoo's, and the batch."""
_ARTIFACTS: Final = {
    "ort-mlp": "ort_training_mlp",
    "ort-cnn": "ort_training_cnn",
    "ort-transformer": "ort_training_transformer",
}
_BY_ROWS: Final = {"x": "S(2)", "target": "S(2)", "conv*.y": "S(2)"}
_HEAD: Final = '<ir_version: 10, opset_import: ["" : 21]> '
SMALL: Final[dict[str, tuple[str, int, dict[str, str]]]] = {
    "outer": (
        _HEAD + 'g (float[4] x, float[6] z) => (float[4, 6] y) { y = Einsum <equation = "i,j->ij"> (x, z) }', 2, {},
    ),
    "sum of pairs": (
        _HEAD + 'g (float[4] x, float[6] z) => (float y) { y = Einsum <equation = "i,j->"> (x, z) }', 2, {},
    ),
    "three": (
        _HEAD + """g (float[2, 3, 4] x, float[4, 5] z, float[5] b) => (float[2] y) {
            y = Einsum <equation = "bij,jk,k->b"> (x, z, b)
        }""", 2, {},
    ),
    "trace": (_HEAD + 'g (float[6, 6] x) => (float y) { e = Einsum <equation = "ii->"> (x)  y = Tanh(e) }', 2, {}),
    "diagonal": (
        _HEAD + """g (float[6, 6] x) => (float[6] y) {
            t = Transpose <perm = [1, 0]> (x)  e = Tanh(t)  y = Einsum <equation = "ii->i"> (e)
        }""", 2, {"y": "S(0)", "x": "S(0)"},
    ),
    "places": (
        _HEAD + """g (float[2, 6, 9] x) => (float[2, 6, 4] y, int64[2, 6, 4] i) {
            y, i = MaxPool <kernel_shape = [3], strides = [2]> (x)
        }""", 3, {"y": "S(1)"},
    ),
    "places of rows": (
        _HEAD + """g (float[2, 3, 12, 10] x) => (float[2, 3, 6, 5] y, int64[2, 3, 6, 5] i) {
            y, i = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x)
        }""", 3, {"y": "S(2)"},
    ),
    "running": (
        _HEAD + """g (float[3, 50] x) => (float[3, 50] y)
        <int64 axis = {1}> { y = CumSum <exclusive = 1, reverse = 1> (x, axis) }""", 3, {"x": "S(1)", "y": "S(1)"},
    ),
    "ranked": (
        _HEAD + """g (float[3, 100] x) => (float[3, 4] y, int64[3, 4] i)
        <int64[1] k = {4}> { equals = Round (x)  y, i = TopK (equals, k) }""", 2, {"x": "S(1)"},
    ),
    "ranked from below": (
        _HEAD + """g (float[3, 100] x) => (float[3, 4] y, int64[3, 4] i)
        <int64[1] k = {4}> { y, i = TopK <largest = 0> (x, k) }""", 3, {"x": "S(1)"},
    ),
    "rare forms": (
        _HEAD + """g (float[8] x, float[2, 2, 6, 6] z) => (float[8, 6] y, float[2, 2, 4, 4] p, float[2, 2, 4, 4] q,
                float[2, 2, 6, 6] l1, float[2, 2, 6, 6] l2, float[2, 2, 6, 6] squares, float[2, 2, 6, 6] logs,
                int32[8, 1] total, int32[8] lengths, float[8, 0] e, float[8, 6] f, float[8, 6] back, float[8, 0] first)
        <float zero = {0}, int64[8] ids = {0, -1, 5, -6, 6, -7, 3, -2}, int64 depth = {6}, float[2] values = {2, 5},
         int64[2] sizes = {0, 6}, int64[1] last = {1}, int64[1] start = {-1}, int64[1] end = {-9}, int64[1] step = {-1},
         int64[0] none = {}> {
            nought = Mul (x, zero)  c = Cast <to = 7> (nought)  i = Add (c, ids)
            y = OneHot (i, depth, values)
            p = AveragePool <kernel_shape = [2, 2], dilations = [2, 2]> (z)
            q = AveragePool <kernel_shape = [3, 3], dilations = [2, 2], pads = [1, 1, 1, 1], count_include_pad = 1> (z)
            l1 = ReduceL1 <noop_with_empty_axes = 1> (z)
            l2 = ReduceL2 <noop_with_empty_axes = 1> (z)
            squares = ReduceSumSquare <noop_with_empty_axes = 1> (z)
            positive = Exp (z)
            logs = ReduceLogSum <noop_with_empty_axes = 1> (positive)
            w = Cast <to = 6> (y)
            total = ReduceL1 (w, last)
            lengths = ReduceMean <keepdims = 0> (w, last)
            e, f = Split <axis = 1> (y, sizes)
            back = Slice (y, start, end, last, step)
            first = Gather <axis = 1> (y, none)
        }""", 2, {"y": "S(1)"},
    ),
}  # fmt: skip
"""Of one op or two: their text, on how many workers, and what is pinned."""
_OF_ATTENTION: Final = '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]> '
ATTENTIONS: Final[dict[str, tuple[str, int, dict[str, str]]]] = {
    "one query": (
        _OF_ATTENTION + """g (float[1, 8, 1, 64] q, float[1, 2, 512, 64] k, float[1, 2, 512, 64] v)
        => (float[1, 8, 1, 64] y) { y = Attention (q, k, v) }""", 4, {"k": "S(2)", "v": "S(2)"},
    ),
    "a cache": (
        _OF_ATTENTION + """g (float[1, 1, 256] q, float[1, 1, 64] k, float[1, 1, 64] v,
                              float[1, 1, 96, 64] past_key, float[1, 1, 96, 64] past_value)
        => (float[1, 1, 256] y, float[1, 1, 96, 64] key, float[1, 1, 96, 64] value)
        <int32[1] lengths = {95}, int32 total = {96}> {
            y, key, value = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 1>
                (q, k, v, past_key, past_value, lengths, total)
        }""", 3, {"past_key": "S(2)", "past_value": "S(2)"},
    ),
    "training": (
        _OF_ATTENTION + """g (float[1, 4, 8] x, float[1, 64, 8] memory, float[8, 8] wq, float[8, 4] wk, float[8, 4] wv)
        => (float[1, 4, 8] y) {
            q = MatMul (x, wq)  k = MatMul (memory, wk)  v = MatMul (memory, wv)
            y = Attention <q_num_heads = 2, kv_num_heads = 1> (q, k, v)
        }""", 4, {"memory": "S(1)"},
    ),
}  # fmt: skip
"""As ``SMALL``: with keys of which each worker has some. The last one is to be trained, with weights ``w*``."""
NAMES: Final = (*_ZOO, *_ARTIFACTS, "bert")
"""Twelve."""


def pins_of(name: str) -> dict[str, str]:
    """What a model's plan is pinned to: images cut along their rows have halos."""
    return _BY_ROWS if name.endswith("by rows") else {}


def written(name: str, folder: Path) -> Path:
    """Writes a model.

    Args:
        name: one of ``NAMES``.
        folder: where.
    """
    target = folder / f"{name.replace(' ', '-')}.onnx"
    if name in _ZOO:
        called, batch = _ZOO[name]
        zoo(called, batch=batch, output=target)
    elif name in _ARTIFACTS:
        grad(_MODELS / _ARTIFACTS[name], output=target)
    else:
        target.write_bytes((_MODELS / "bert_step.onnx").read_bytes())
    return target
