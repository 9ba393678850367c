"""Operands and flags of an op that contradict each other, where ONNX's own inference does not look.

It computes an output's shape from some operands and leaves others unread: a Gemm's C, the channels of a convolution's
weight, the labels of a loss. Kernels refuse them when they run; here they are refused before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final, TypeAlias

from onnx import NodeProto

from planner.graph.core.model import Shape
from planner.graph.core.traits import RECURRENT, STATISTICS

Shapes: TypeAlias = Sequence[Shape | None]
"""Of an op's inputs or outputs by position; None where it has none."""
_Rule: TypeAlias = Callable[[Shapes, Shapes, Mapping[str, Any]], str]


MOST_DIMS: Final = 64
"""Of an array in NumPy, and of any tensor that somebody means."""

_FLAGS: Final = frozenset(
    {
        *("ceil_mode", "count_include_pad", "exclusive", "fmod", "is_causal", "keepdims", "largest", "layout"),
        *("noop_with_empty_axes", "reverse", "select_last_index", "sorted", "storage_order", "transA", "transB"),
    }
)
"""Attributes that are true or false. Other numbers are true to some readers and false to others."""


WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    name: tuple(words.split())
    for name, words in (
        ("activation", "none silu swish"), ("approximate", "none tanh"), ("BitShift.direction", "LEFT RIGHT"),
        ("auto_pad", "NOTSET SAME_UPPER SAME_LOWER VALID"), ("direction", "forward reverse bidirectional"),
        ("coordinate_transformation_mode", "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric"
                                           " tf_crop_and_resize tf_half_pixel_for_nn"),
        ("RoiAlign.coordinate_transformation_mode", "half_pixel output_half_pixel"), ("RoiAlign.mode", "avg max"),
        ("keep_aspect_ratio_policy", "stretch not_larger not_smaller"), ("padding_mode", "zeros border reflection"),
        ("nearest_mode", "round_prefer_floor round_prefer_ceil floor ceil"), ("round_mode", "up down nearest"),
        ("update_rule", "linear gated delta gated_delta"), ("reduction", "none add mul max min"),
        ("SoftmaxCrossEntropyLoss.reduction", "none sum mean"), ("Pad.mode", "constant reflect edge wrap"),
        ("NegativeLogLikelihoodLoss.reduction", "none sum mean"), ("DepthToSpace.mode", "DCR CRD"),
        ("GridSample.mode", "linear nearest cubic"), ("GridSample.mode.16", "bilinear nearest bicubic"),
        ("SpaceToDepth.mode", "DCR CRD"),
        ("Resize.mode", "nearest linear cubic"), ("Upsample.mode", "nearest linear"),
        ("TensorScatter.mode", "linear circular"), ("TfIdfVectorizer.mode", "TF IDF TFIDF"),
        ("activations", "Relu Tanh Sigmoid Affine LeakyRelu ThresholdedRelu ScaledTanh HardSigmoid Elu Softsign "
                        "Softplus"),
    )
}  # fmt: skip
"""The words that an attribute may be, by its name, or by operator and name, or by operator, name and version."""


def form_fault(node: NodeProto, rank: int) -> str:
    """The contradiction of a node's attributes and its outputs or operands where ONNX's inference errs beyond its
    memory.

    Args:
        node: any node.
        rank: of its input 0, or the most that it can be.
    """
    if node.domain not in ("", "ai.onnx"):
        return ""
    stated = {attribute.name: attribute.i for attribute in node.attribute}
    if node.op_type == "Split" and stated.get("num_outputs", len(node.output)) != len(node.output):
        return f"its num_outputs is {stated['num_outputs']}, and it has {len(node.output)} outputs"
    # As a number of 32 bits, which ONNX makes of it, it would be another axis.
    if abs(stated.get("axis", 0)) > MOST_DIMS:
        return f"its axis is {stated['axis']}, which no tensor has"
    if stated.get("batch_dims", 0) < 0:
        return f"its batch_dims is {stated['batch_dims']}, and must not be negative"
    if node.op_type in ("LayerNormalization", "RMSNormalization") and not -rank <= stated.get("axis", -1) < rank:
        return f"its axis is {stated['axis']}, and its input has {rank} dims"
    return ""


def operand_fault(op_type: str, version: int, inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
    """The contradiction among the operands of an op of the default domain, or ""; the version is its operator's."""
    for name in sorted(_FLAGS & attributes.keys()):
        if attributes[name] not in (0, 1):
            return f"its attribute {name} is {attributes[name]}, and must be 0 or 1"
    for name, value in sorted(attributes.items()):
        kind = f"{op_type}.{name}"
        words = WORDS.get(f"{kind}.{version}") or WORDS.get(kind) or WORDS.get(name)
        if words and isinstance(value, bytes) and value.decode() not in words:
            return f"its attribute {name} is {value.decode()!r}, and must be {', '.join(words[:-1])} or {words[-1]}"
    rule = _OLDER_RULES.get((op_type, version)) or _RULES.get(op_type)
    return "" if rule is None else rule([*inputs, *[None] * 9], outputs, attributes)


def _must_be(slot: int, shape: Shape | None, wanted: Shape) -> str:
    return "" if shape is None or shape == wanted else f"its input {slot} is {list(shape)}, and must be {list(wanted)}"


def _must_stretch(slot: int, shape: Shape | None, wanted: Shape | None) -> str:
    """Broadcasting towards one side alone (ONNX calls it unidirectional)."""
    if shape is None or wanted is None:
        return ""
    aligned = (1,) * (len(wanted) - len(shape)) + shape
    fits = len(aligned) == len(wanted) and all(size in (1, full) for size, full in zip(aligned, wanted, strict=True))
    return "" if fits else f"its input {slot} is {list(shape)}, which does not stretch to {list(wanted)}"


def _first(*faults: str) -> str:
    return next(filter(None, faults), "")


def _convolution(weight: int = 1, bias: int | None = None, *, is_transposed: bool = False) -> _Rule:
    """Of a convolution with its weight and its bias in these slots, None for no bias of its channels."""

    def rule(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
        x, w, group = inputs[0], inputs[weight], int(attributes.get("group", 1))
        if x is None or w is None or len(x) < 3 or len(w) != len(x):
            return f"its weight has {0 if w is None else len(w)} dims, and its input {0 if x is None else len(x)}"
        in_channels, out_channels = (w[0], w[1] * group) if is_transposed else (w[1] * group, w[0])
        if group < 1 or in_channels != x[1] or w[0] % group:
            return f"its weight is {list(w)}, which in {group} group(s) does not fit an input of {x[1]} channels"
        # A convolution may state its kernel, which its weight has, too.
        stated = tuple(attributes.get("kernel_shape", ()))
        if stated and stated != w[2:]:
            return f"its kernel_shape is {list(stated)}, and its weight {list(w)}"
        return "" if bias is None else _must_be(bias, inputs[bias], (out_channels,))

    return rule


def _pool(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
    x = inputs[0] or ()
    return f"its input 0 is {list(x)}, which leaves nothing to be pooled" if 0 in x[1:] else ""


def _pad(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
    x, y, mode = inputs[0] or (), outputs[0] or (), attributes.get("mode", b"constant").decode()
    is_hollow = mode != "constant" and any(before == 0 < after for before, after in zip(x, y, strict=False))
    return f"its mode is {mode}, and its input is {list(x)}, which has nothing to repeat" if is_hollow else ""


def _transpose(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
    x, perm = inputs[0] or (), tuple(attributes.get("perm", ()))
    fits = not perm or sorted(perm) == list(range(len(x)))
    return "" if fits else f"its perm is {list(perm)}, which does not order the dims of an input of {list(x)}"


def _by_channel(*slots: int) -> _Rule:
    def rule(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
        x = inputs[0] or ()
        channels = (x[1],) if len(x) > 1 else (1,)
        return _first(*(_must_be(slot, inputs[slot], channels) for slot in slots))

    return rule


def _group_normalization(*, by_group: bool) -> _Rule:
    """With a scale and a bias for each group, or for each channel."""

    def rule(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
        x, groups = inputs[0] or (), int(attributes.get("num_groups", 1))
        if len(x) < 2 or groups < 1 or x[1] % groups:
            return f"its input is {list(x)}, which has no channels that make {groups} groups"
        return _first(*(_must_be(slot, inputs[slot], (groups if by_group else x[1],)) for slot in (1, 2)))

    return rule


def _stretched_to_first(*slots: int) -> _Rule:
    def rule(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
        return _first(*(_must_stretch(slot, inputs[slot], inputs[0]) for slot in slots))

    return rule


def _reshape(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
    before, after = inputs[0] or (), outputs[0]
    if after is None or prod(before) == prod(after):
        return ""
    return f"cannot reshape {list(before)} ({prod(before)} elements) to {list(after)} ({prod(after)} elements)"


def _resize(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
    """Options that are of some modes alone."""
    mode, smooths = attributes.get("mode", b"nearest").decode(), bool(attributes.get("antialias"))
    if smooths and mode == "nearest":
        return "its attribute antialias is 1, which mode nearest has not"
    if attributes.get("exclude_outside") and mode != "cubic" and not smooths:
        return f"its attribute exclude_outside is 1, which mode {mode} has only with antialias"
    return ""


def _attention(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
    """ONNX Runtime joins a past to the keys in the outputs for that."""
    is_known, past = outputs[0] is not None, inputs[4]
    lacks = is_known and past is not None and 0 not in past and (len(outputs) < 3 or None in outputs[1:3])
    return "its present keys and values (outputs 1 and 2) have no names, and it has past ones" if lacks else ""


def _gemm(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
    return _must_stretch(2, inputs[2], outputs[0])


def _loss(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
    x = inputs[0] or ()
    if len(x) < 2:
        return f"its input 0 is {list(x)}, and must have a batch and classes"
    return _first(_must_be(1, inputs[1], (x[0], *x[2:])), _must_be(2, inputs[2], (x[1],)))


def _activations(gates: int, directions: int, attributes: Mapping[str, Any]) -> str:
    """A function for what each direction makes of its gates; ONNX Runtime takes any case of letters but in an RNN."""
    stated, count = [name.decode() for name in attributes.get("activations", ())], directions * max(1, gates - 1)
    spellings = {spelling for name in WORDS["activations"] for spelling in (name, name.lower() if gates > 1 else name)}
    if unknown := [name for name in stated if name not in spellings]:
        return f"its attribute activations has {unknown[0]!r}, and must have {', '.join(WORDS['activations'])}"
    fits = len(stated) in (0, count)
    return "" if fits else f"its attribute activations has {len(stated)} names, and must have {count}"


def _recurrent(gates: int) -> _Rule:
    def rule(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
        x, w, r = inputs[0] or (), inputs[1] or (), inputs[2] or ()
        if (len(x), len(w), len(r)) != (3, 3, 3):
            return "its input, weight and recurrence must have 3 dims each"
        if gates == 3 and x[0] == 0:
            return f"its input 0 is {list(x)}, which has no step, and ONNX Runtime ends the process"
        directions, hidden = 2 if attributes.get("direction") == b"bidirectional" else 1, r[2]
        return _first(
            _must_be(1, w, (directions, gates * hidden, x[2])),
            _must_be(2, r, (directions, gates * hidden, hidden)),
            _must_be(3, inputs[3], (directions, 2 * gates * hidden)),
            _activations(gates, directions, attributes),
        )

    return rule


def _gather_elements(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
    data, indices = inputs[0] or (), inputs[1] or ()
    axis = int(attributes.get("axis", 0)) % max(1, len(data))
    fits = len(data) == len(indices) and all(
        size <= full for dim, (size, full) in enumerate(zip(indices, data, strict=True)) if dim != axis
    )
    return "" if fits else f"its indices are {list(indices)}, which leave its data of {list(data)}"


def _reverse_sequence(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
    x, time, batch = inputs[0] or (), int(attributes.get("time_axis", 0)), int(attributes.get("batch_axis", 1))
    # The runtime takes any time_axis but 1 for 0, as it does of negative ones.
    if len(x) < 2 or {time, batch % len(x)} != {0, 1}:
        return f"its time_axis is {time} and its batch_axis {batch}, and must be 0 and 1, or 1 and 0"
    return _must_be(1, inputs[1], (x[batch],))


def _scatter_elements(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
    return _gather_elements(inputs, outputs, attributes) or _must_be(2, inputs[2], inputs[1] or ())


def _scatter_nd(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> str:
    data, indices = inputs[0] or (), inputs[1] or ()
    if not indices or indices[-1] > len(data):
        return f"its indices are {list(indices)}, which leave its data of {list(data)}"
    return _must_be(2, inputs[2], (*indices[:-1], *data[indices[-1] :]))


_RULES: Final[Mapping[str, _Rule]] = {
    "Attention": _attention,
    "AveragePool": _pool,
    **{name: _by_channel(1, 2, *slots.values()) for name, slots in STATISTICS.items()},
    "Conv": _convolution(bias=2),
    "ConvInteger": _convolution(),
    "ConvTranspose": _convolution(bias=2, is_transposed=True),
    **{name: _recurrent(cell.gates) for name, cell in RECURRENT.items()},
    "GatherElements": _gather_elements,
    "Gemm": _gemm,
    "GlobalAveragePool": _pool,
    "GlobalLpPool": _pool,
    "GlobalMaxPool": _pool,
    "GroupNormalization": _group_normalization(by_group=False),
    "InstanceNormalization": _by_channel(1, 2),
    "LayerNormalization": _stretched_to_first(1, 2),
    "LpPool": _pool,
    "MaxPool": _pool,
    "NegativeLogLikelihoodLoss": _loss,
    "PRelu": _stretched_to_first(1),
    "Pad": _pad,
    "QLinearConv": _convolution(weight=3),
    "Reshape": _reshape,
    "Resize": _resize,
    "ReverseSequence": _reverse_sequence,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "SoftmaxCrossEntropyLoss": _loss,
    "Transpose": _transpose,
}
_OLDER_RULES: Final[Mapping[tuple[str, int], _Rule]] = {("GroupNormalization", 18): _group_normalization(by_group=True)}
"""Of versions of operators that take other operands."""
