"""Committed networks, rewritten at random: ``python bench/twins.py --drawn 40 --seed 0``.

A rewriting writes some nodes of a network otherwise, and computes the same. Which networks, which kinds of rewriting
and which nodes is drawn. The column matrix of a convolution (im2col) is none of the kinds: it is in the table beside.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
import onnx.version_converter
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from planner.features.zoo.models import mlp
from planner.features.zoo.models.convolutional import cnn, lenet_5
from planner.features.zoo.models.recurrent import rnn
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.core.traits import ACTIVATIONS, ANGLES
from planner.graph.files.to_onnx import to_model

_MODELS = Path(__file__).parent.parent / "tests" / "models"
_OPSETS: Final = range(13, 25)

STEPS: Final[Mapping[str, Callable[[], ModelProto]]] = {
    "mlp": lambda: to_model(mlp(3, 64, 64)),
    "cnn": lambda: to_model(cnn(3, 8, 16, batch=8)),
    "lenet-5": lambda: to_model(lenet_5(batch=16)),
    "rnn": lambda: to_model(rnn(1, 16, batch=8, steps=2)),
    "gpt": lambda: to_model(gpt("gpt", GptShape(1, 64, 4, 32), batch=4)),
}
"""Training steps of the zoo, at small sizes."""
FORWARD: Final = (
    "fresh/cnn.optimized", "fresh/gpt-2.optimized", "fresh/llama.optimized", "fresh/vit.optimized",
    "ort_training_mlp/forward", "accumulated/cnn", "world/detector", "world/recommender", "world/unet-bilinear",
    "world/hf-bert", "world/hf-vit", "t5",
)  # fmt: skip
"""Exported networks, but for those of width 8, of which a row more is a tenth; forward, or their step of SGD."""
Rewriting: TypeAlias = "Callable[[Text, NodeProto], list[NodeProto] | None]"


class Text:
    """A network whose nodes are being rewritten.

    Args:
        model: is changed.
        roll: draws.
        scope: begins new names.
    """

    def __init__(self, model: ModelProto, roll: random.Random, scope: str) -> None:
        self.model, self.random, self.scope = model, roll, scope
        known = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        self.types: dict[str, tuple[int, tuple[int, ...]]] = {}
        """Element type and sizes, where they are known."""
        for value in (*known.input, *known.value_info, *known.output):
            tensor = value.type.tensor_type
            sizes = [dim.dim_value for dim in tensor.shape.dim]
            if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
                self.types[value.name] = tensor.elem_type, tuple(sizes)
        self.weights = {one.name: one for one in model.graph.initializer}
        self.types |= {one.name: (one.data_type, tuple(one.dims)) for one in model.graph.initializer}
        self.count = 0

    @property
    def opset(self) -> int:
        """Version of the default domain."""
        return next(int(one.version) for one in self.model.opset_import if one.domain in ("", "ai.onnx"))

    def fresh(self) -> str:
        """A new name."""
        self.count += 1
        return f"{self.scope}.{self.count}"

    def constant(self, value: Any) -> str:
        """A new initializer."""
        name = self.fresh()
        self.weights[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    def node(self, op_type: str, inputs: list[str], made: str = "", **attributes: Any) -> NodeProto:
        """A node of one output."""
        return helper.make_node(op_type, inputs, [made or self.fresh()], **attributes)

    def shape(self, name: str) -> tuple[int, ...]:
        """Sizes of a tensor of float32; () of others."""
        dtype, sizes = self.types.get(name, (0, ()))
        return sizes if dtype == TensorProto.FLOAT and all(sizes) else ()

    def weight(self, name: str) -> np.ndarray | None:
        """The numbers of a matrix; None of another tensor."""
        known = self.weights.get(name)
        is_matrix = known is not None and len(known.dims) == 2 and known.data_type == TensorProto.FLOAT
        return numpy_helper.to_array(known) if is_matrix and not known.external_data else None  # type: ignore[arg-type, union-attr]

    def finish(self, nodes: list[NodeProto]) -> None:
        """Takes the nodes into the model."""
        graph = self.model.graph
        del graph.node[:], graph.initializer[:], graph.value_info[:]
        graph.node.extend(nodes)
        read = {name for node in nodes for name in _read(node)} | {one.name for one in graph.output}
        graph.initializer.extend(one for name, one in self.weights.items() if name in read)


def _read(node: NodeProto) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _read(inner)


def _behind(text: Text, node: NodeProto, *between: Callable[[str], NodeProto]) -> list[NodeProto] | None:
    """A node, and ops one after the other that make its output of what it makes."""
    made, nodes = node.output[0], [NodeProto()]
    nodes[0].CopyFrom(node)
    nodes[0].output[0] = name = text.fresh()
    for add in between:
        nodes.append(add(name))
        name = nodes[-1].output[0]
    nodes[-1].output[0] = made
    return nodes


def turned_twice(text: Text, node: NodeProto) -> list[NodeProto] | None:
    """A Transpose, and another one back."""
    shape = text.shape(node.output[0])
    perm = text.random.sample(range(len(shape)), len(shape))
    if len(shape) < 2:
        return None
    back = [perm.index(dim) for dim in range(len(shape))]
    return _behind(
        text, node, *(lambda x, perm=perm: text.node("Transpose", [x], perm=perm) for perm in (perm, back))
    )  # fmt: skip


def reshaped(text: Text, node: NodeProto) -> list[NodeProto] | None:
    """Dims merged, and told apart again."""
    shape = text.shape(node.output[0])
    if len(shape) < 2:
        return None
    at = text.random.randrange(len(shape) - 1)
    merged = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    sizes = [np.array(one, np.int64) for one in (merged, shape)]
    return _behind(text, node, *(lambda x, to=to: text.node("Reshape", [x, text.constant(to)]) for to in sizes))


def halved(text: Text, node: NodeProto) -> list[NodeProto] | None:
    """Taken apart along a dim, and put together."""
    shape = text.shape(node.output[0])
    dims = [dim for dim, size in enumerate(shape) if size > 1]
    if not dims:
        return None
    dim = text.random.choice(dims)
    first, second = text.fresh(), text.fresh()
    size = text.random.randrange(1, shape[dim])
    sizes = text.constant(np.array([size, shape[dim] - size], np.int64))
    return _behind(
        text, node, lambda x: helper.make_node("Split", [x, sizes], [first, second], axis=dim),
        lambda _: text.node("Concat", [first, second], axis=dim),
    )  # fmt: skip


def put_together(text: Text, node: NodeProto) -> list[NodeProto] | None:
    """Put before itself, and taken of that."""
    shape = text.shape(node.output[0])
    if not shape:
        return None
    dim = text.random.randrange(len(shape))
    sizes = text.constant(np.array([shape[dim], shape[dim]], np.int64))
    return _behind(
        text, node, lambda x: text.node("Concat", [x, x], axis=dim),
        lambda x: helper.make_node("Split", [x, sizes], [text.fresh(), text.fresh()], axis=dim),
    )  # fmt: skip


def multiplied(text: Text, node: NodeProto) -> list[NodeProto] | None:
    """Times the identity, on one side or the other."""
    shape = text.shape(node.output[0])
    if len(shape) < 2 or max(shape[-2:]) > 512:
        return None
    side = text.random.choice((-2, -1))
    eye = text.constant(np.eye(shape[side], dtype=np.float32))
    return _behind(text, node, lambda x: text.node("MatMul", [x, eye] if side == -1 else [eye, x]))


def channels_last(text: Text, node: NodeProto) -> list[NodeProto] | None:
    """A function of each element, with channels last."""
    shape = text.shape(node.output[0])
    if len(shape) != 4 or len(node.input) != 1 or node.op_type not in ACTIVATIONS | ANGLES:
        return None
    before = text.node("Transpose", [node.input[0]], perm=(0, 2, 3, 1))
    inner = NodeProto()
    inner.CopyFrom(node)
    inner.input[0], inner.output[0] = before.output[0], text.fresh()
    return [before, inner, text.node("Transpose", [inner.output[0]], node.output[0], perm=(0, 3, 1, 2))]


def as_product(text: Text, node: NodeProto) -> list[NodeProto] | None:
    """A convolution of 1x1 as a product."""
    if node.op_type != "Conv":
        return None
    shape, kernel = (text.shape(name) for name in node.input[:2])
    stated = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    is_plain = stated.get("group", 1) == 1 and not any(stated.get("pads", ()))
    is_plain &= stated.get("auto_pad", b"NOTSET") == b"NOTSET"
    if not is_plain or len(shape) != 4 or kernel[2:] != (1, 1) or {*stated.get("strides", (1,))} != {1}:
        return None
    columns = text.node("Reshape", [node.input[0], text.constant(np.array((*shape[:2], -1), np.int64))])
    matrix = text.node("Reshape", [node.input[1], text.constant(np.array(kernel[:2], np.int64))])
    product = text.node("MatMul", [matrix.output[0], columns.output[0]])
    whole = text.constant(np.array((shape[0], kernel[0], *shape[2:]), np.int64))
    nodes = [columns, matrix, product, text.node("Reshape", [product.output[0], whole])]
    if len(node.input) > 2:
        bias = text.node("Reshape", [node.input[2], text.constant(np.array((-1, 1, 1), np.int64))])
        nodes += [bias, text.node("Add", [nodes[-1].output[0], bias.output[0]])]
    nodes[-1].output[0] = node.output[0]
    return nodes


def unpacked(text: Text, node: NodeProto) -> list[NodeProto] | None:
    """A product with a matrix as two, with its columns in two parts."""
    matrix = text.weight(node.input[1]) if node.op_type == "MatMul" else None
    if matrix is None or matrix.shape[1] < 2:
        return None
    cut = matrix.shape[1] // 2
    halves = (text.constant(np.ascontiguousarray(half)) for half in (matrix[:, :cut], matrix[:, cut:]))
    parts = [text.node("MatMul", [node.input[0], half]) for half in halves]
    return [*parts, text.node("Concat", [part.output[0] for part in parts], node.output[0], axis=-1)]


def as_other_product(text: Text, node: NodeProto) -> list[NodeProto] | None:
    """A MatMul as an Einsum; a Gemm as a Transpose, a MatMul and an Add."""
    ranks = [len(text.shape(name)) for name in node.input]
    if node.op_type == "MatMul" and min(ranks) > 1:
        stack = "abcdefg"[: max(ranks) - 2]
        left, right = (stack[len(stack) + 2 - rank :] for rank in ranks)
        return [text.node("Einsum", list(node.input), node.output[0], equation=f"{left}xz,{right}zy->{stack}xy")]
    stated = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    if node.op_type != "Gemm" or any(stated.get(name, 1.0) != 1.0 for name in ("alpha", "beta")):
        return None
    nodes, operands = [], list(node.input)
    for at, name in enumerate(("transA", "transB")):
        if stated.get(name):
            nodes.append(text.node("Transpose", [operands[at]], perm=(1, 0)))
            operands[at] = nodes[-1].output[0]
    nodes.append(text.node("MatMul", operands[:2]))
    if len(operands) > 2:
        nodes.append(text.node("Add", [nodes[-1].output[0], operands[2]]))
    nodes[-1].output[0] = node.output[0]
    return nodes


def by_body(text: Text, node: NodeProto) -> list[NodeProto] | None:
    """An op as the body that ONNX gives of it."""
    if node.domain or not onnx.defs.has(node.op_type):
        return None
    schema: Any = onnx.defs.get_schema(node.op_type, text.opset)  # whose stubs know no functions
    if schema.has_function:
        versions = [version for version in schema.function_opset_versions if version <= text.opset]
        body = schema.get_function_with_opset_version(max(versions)) if versions else b""
    elif schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= text.opset]
        if not versions or not all(name in text.types for name in node.input if name):
            return None
        types = [_typed(*text.types.get(name, (0, ()))).SerializeToString() for name in node.input]
        body = schema.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), types)
    else:
        return None
    return _inlined(text, node, FunctionProto.FromString(body)) if body else None


def _typed(dtype: int, shape: tuple[int, ...]) -> Any:
    return helper.make_tensor_type_proto(dtype, shape)


def _inlined(text: Text, node: NodeProto, body: FunctionProto) -> list[NodeProto] | None:
    if any(attribute.HasField("g") for inner in body.node for attribute in inner.attribute):
        return None
    names = dict(zip(body.output, node.output, strict=False)) | {"": ""}
    names |= dict.fromkeys(body.input, "") | dict(zip(body.input, node.input, strict=False))
    stated = {one.name: one for one in (*body.attribute_proto, *node.attribute)}
    scope, nodes = text.fresh(), []
    for inner in body.node:
        copy = NodeProto(op_type=inner.op_type, domain=inner.domain)
        copy.input.extend(names.get(name, f"{scope}/{name}") for name in inner.input)
        copy.output.extend(names.get(name) or f"{scope}/{name}" for name in inner.output)
        for attribute in inner.attribute:
            source = stated.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
            if source is not None:
                copy.attribute.add().CopyFrom(source)
                copy.attribute[-1].name = attribute.name
        nodes.append(copy)
    return nodes


REWRITINGS: Final[Mapping[str, Rewriting]] = {
    "turned twice": turned_twice,
    "reshaped": reshaped,
    "halved": halved,
    "put together": put_together,
    "times the identity": multiplied,
    "channels last": channels_last,
    "1x1 as product": as_product,
    "unpacked": unpacked,
    "other product": as_other_product,
    "body": by_body,
}
"""Of single nodes. Beside them a network may be written in another opset."""


def in_opset(model: ModelProto, version: int) -> ModelProto | None:
    """The network in another opset; None where ONNX's converter has no way."""
    try:
        found = onnx.version_converter.convert_version(model, version)
        onnx.checker.check_model(found, full_check=True)
    except (RuntimeError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    del found.metadata_props[:]
    found.metadata_props.extend(model.metadata_props)
    return found


def rewritten(model: ModelProto, kinds: Iterable[str], roll: random.Random) -> tuple[ModelProto, list[str]] | None:
    """The network written otherwise by some kinds of rewriting, and those that fitted; None where none did."""
    found, told = ModelProto(), []
    found.CopyFrom(model)
    for kind in kinds:
        if kind == "opset":
            version = roll.choice(_OPSETS)
            other = in_opset(found, version)
            if other is not None and other.graph != found.graph:
                found = other
                told.append(f"opset {version}")
            continue
        text = Text(found, roll, f"again.{kind}".replace(" ", "."))
        nodes = list(found.graph.node)
        fitting = {at: new for at in range(len(nodes)) if (new := REWRITINGS[kind](text, nodes[at]))}
        chosen = roll.sample([*fitting], min(len(fitting), roll.randint(1, 4)))
        if chosen:
            text.finish([one for at, node in enumerate(nodes) for one in (fitting[at] if at in chosen else [node])])
            told.append(kind)
    return (found, told) if told else None


def drawn(count: int, seed: int) -> Iterator[tuple[str, bool, dict[str, ModelProto]]]:
    """Pairs: what they are called, whether the network's step is meant, and the network as it was and rewritten."""
    roll = random.Random(seed)
    while count:
        name = roll.choice([*STEPS, *FORWARD])
        is_step = name not in STEPS and roll.random() < 0.5
        model = STEPS[name]() if name in STEPS else onnx.load(_MODELS / f"{name}.onnx")
        # A matrix that is trained is no identity.
        kinds = [kind for kind in (*REWRITINGS, "opset") if not is_step or kind != "times the identity"]
        other = rewritten(model, roll.sample(kinds, roll.randint(1, 3)), roll)
        if other is not None:
            count -= 1
            yield f"{name}{', step' if is_step else ''}", is_step, {"as it was": model, ", ".join(other[1]): other[0]}
