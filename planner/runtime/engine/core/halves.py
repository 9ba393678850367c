"""16-bit floats on a CPU, whose runtime has few kernels of float16 and none of bfloat16.

Every op that reads or makes them computes in float32 and rounds its results, as a GPU's kernels do that add up in
float32. For float16 ONNX Runtime would insert such Casts itself, but then leave out those that cancel: what is rounded
would depend on where a model is cut into segments. Casts that stand in the model stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

HALVES: Final = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
"""16-bit floats, as ``TensorProto.DataType``."""
_STATED: Final = frozenset({"dtype", "output_datatype", "stash_type"})
"""Attributes that name a dtype."""


def in_float32(model: ModelProto) -> ModelProto:
    """A model that gives the same numbers with kernels of float32 alone; the model itself if it has no 16-bit floats.

    Args:
        model: of standard operators, without local functions. Is left as it is.
    """
    if not any(_mentioned(model)):
        return model
    kinds = kinds_of(onnx.shape_inference.infer_shapes(model))
    nodes: list[NodeProto] = []
    widening = Widening(model, kinds)
    for node in model.graph.node:
        # A Cast and a Constant have kernels of every float type.
        if node.op_type in ("Cast", "Constant") or any(attribute.HasField("g") for attribute in node.attribute):
            nodes.append(node)
        else:
            nodes.extend(widening.of(node))
    return with_nodes(model, nodes)


class Widening:
    """Nodes of one model, made to compute in wider dtypes.

    Args:
        model: that they are of.
        kinds: by tensor, its ``TensorProto.DataType``.
    """

    def __init__(self, model: ModelProto, kinds: Mapping[str, int]) -> None:
        self._kinds = kinds
        self._names = {name for node in model.graph.node for name in node.output} | kinds.keys()
        self._wide: dict[tuple[str, int], str] = {}
        """By tensor and dtype: the same numbers in that dtype."""

    def of(
        self,
        node: NodeProto,
        narrow: Collection[int] = HALVES,
        wider: int = TensorProto.FLOAT,
        operands: Collection[str] | None = None,
    ) -> list[NodeProto]:
        """A node and the Casts around it; the node alone if it has nothing narrow.

        Args:
            node: the node.
            narrow: ``TensorProto.DataType`` of what is widened.
            wider: what it computes in instead.
            operands: those that are widened; None: all.
        """
        nodes: list[NodeProto] = []
        wide = {name: self._wide.get((name, wider), "") for name in node.input
                if self._kinds.get(name) in narrow and (operands is None or name in operands)}  # fmt: skip
        for name in [name for name in wide if not wide[name]]:
            wide[name] = self._wide[name, wider] = self.name(f"{name}.wide")
            nodes.append(helper.make_node("Cast", [name], [wide[name]], to=wider))
        exact = {name: self.name(f"{name}.exact") for name in node.output if self._kinds.get(name) in narrow}
        if not wide and not exact:
            return [node]
        widened = rewired(node, wide, exact)
        for attribute in widened.attribute:
            if attribute.name in _STATED and attribute.i in narrow:
                attribute.i = wider
            elif attribute.HasField("t") and attribute.t.data_type in narrow:
                value = numpy_helper.to_array(attribute.t).astype(helper.tensor_dtype_to_np_dtype(wider))
                attribute.t.CopyFrom(numpy_helper.from_array(value, attribute.t.name))
        casts = [helper.make_node("Cast", [inner], [name], to=self._kinds[name]) for name, inner in exact.items()]
        return [*nodes, widened, *casts]

    def name(self, wanted: str) -> str:
        """A name that no tensor of the model has."""
        while wanted in self._names:
            wanted += "_"
        self._names.add(wanted)
        return wanted


def has_halves(node: NodeProto, kinds: Mapping[str, int]) -> bool:
    """Whether a node reads or makes 16-bit floats."""
    return any(kinds.get(name) in HALVES for name in (*node.input, *node.output))


def rewired(node: NodeProto, inputs: Mapping[str, str], outputs: Mapping[str, str] = MappingProxyType({})) -> NodeProto:
    """A copy of a node that reads and makes tensors under other names."""
    result = NodeProto()
    result.CopyFrom(node)
    result.input[:] = [inputs.get(name, name) for name in node.input]
    result.output[:] = [outputs.get(name, name) for name in node.output]
    return result


def with_nodes(model: ModelProto, nodes: Iterable[NodeProto]) -> ModelProto:
    """A copy of the model with other nodes, which are not held against the types of the former ones."""
    result = ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:], result.graph.value_info[:]
    result.graph.node.extend(nodes)
    return result


def _mentioned(model: ModelProto) -> Iterable[bool]:
    """Where a 16-bit float can come from: inputs, constants, Casts, fills."""
    graph = model.graph
    for value in (*graph.input, *graph.output):
        yield value.type.tensor_type.elem_type in HALVES
    for tensor in graph.initializer:
        yield tensor.data_type in HALVES
    for node in graph.node:
        for attribute in node.attribute:
            yield (
                attribute.t.data_type in HALVES
                if attribute.HasField("t")
                else (attribute.name in (*_STATED, "to") and attribute.i in HALVES)
            )


def kinds_of(model: ModelProto) -> Mapping[str, int]:
    """The ``TensorProto.DataType`` of each tensor, as far as the model says."""
    graph = model.graph
    values = (*graph.input, *graph.value_info, *graph.output)
    kinds = {value.name: value.type.tensor_type.elem_type for value in values}
    return kinds | {tensor.name: tensor.data_type for tensor in graph.initializer}
