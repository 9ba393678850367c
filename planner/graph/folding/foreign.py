"""Operators that ONNX does not define: which of them are taken, and where their outputs' shapes come from.

ONNX has no shape inference for them. What the file states (value_info, outputs) is believed, and so is what an
operator's description implies; where both are there, they must agree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
from onnx import ModelProto

from planner.errors import ModelError
from planner.graph.core.model import Implied, Op, Tensor
from planner.graph.files.protos import dtype_of, shape_fault

IN_DEFAULT_DOMAIN: Final = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
"""Operators that ONNX Runtime has in ONNX's own domain, where ONNX has none of this name, or not at every opset."""


class Operators(Protocol):
    """Operators beyond ONNX's own facts: ``planner.tdl.descriptions.Descriptions`` is one."""

    @property
    def own(self) -> Collection[tuple[str, str]]:
        """(domain, op type) of the operators that the user describes."""

    @property
    def reasons(self) -> Mapping[tuple[str, str], str]:
        """The reason why an operator has no description, by (domain, op type)."""

    def takes(self, domain: str, op_type: str) -> bool:
        """True if ops of this type can be planned."""

    def implied_outputs(
        self, op: Op, tensors: Mapping[str, Tensor], constants: Mapping[str, np.ndarray | None], opset: int
    ) -> Sequence[Implied | None]:
        """Shape and dtype of each output of an op, in order, as far as its description implies them."""


class _EveryOperator:
    """Takes every operator whose shapes ONNX infers or the file states."""

    own: Collection[tuple[str, str]] = ()
    reasons: Mapping[tuple[str, str], str] = MappingProxyType({})

    def takes(self, domain: str, op_type: str) -> bool:
        """See ``Operators.takes``."""
        return True

    def implied_outputs(
        self, op: Op, tensors: Mapping[str, Tensor], constants: Mapping[str, np.ndarray | None], opset: int
    ) -> Sequence[Implied | None]:
        """See ``Operators.implied_outputs``: nothing is known."""
        return (None,) * len(op.outputs)


EVERY_OPERATOR: Final[Operators] = _EveryOperator()
"""For reading a model that was planned already."""


def declared_types(model: ModelProto, dims: Mapping[str, int]) -> dict[str, Tensor]:
    """Shape and dtype of the tensors that a file states them of, where they are static once symbolic dims are bound.

    Args:
        model: its value_info and outputs are looked at.
        dims: sizes of symbolic dims.
    """
    tensors: dict[str, Tensor] = {}
    for value in (*model.graph.value_info, *model.graph.output):
        kind = value.type.tensor_type
        dtype = dtype_of(kind.elem_type)
        if value.type.WhichOneof("value") != "tensor_type" or dtype is None or not kind.HasField("shape"):
            continue
        sizes = [int(dim.dim_value) if dim.HasField("dim_value") else dims.get(dim.dim_param) for dim in kind.shape.dim]
        shape = tuple(size for size in sizes if size is not None)
        if len(shape) == len(sizes) and not shape_fault(shape):
            tensors[value.name] = Tensor(value.name, shape, dtype)
    return tensors


def foreign_outputs(
    op: Op, tensors: Mapping[str, Tensor], implied: Sequence[Implied | None], declared: Mapping[str, Tensor]
) -> dict[str, Tensor | None]:
    """The tensors that an op makes which ONNX has no inference for; None where nobody says it.

    A dtype that neither the file nor the description states is that of the op's first input.

    Args:
        op: all of whose inputs are in ``tensors``.
        tensors: by name.
        implied: what the op's description says of its outputs, in order.
        declared: what the file says of tensors.

    Raises:
        ModelError: file and description contradict each other.
    """
    first = next((tensors[name].dtype for name in op.inputs if name), None)
    outputs: dict[str, Tensor | None] = {}
    for name, kind in zip(op.outputs, implied, strict=True):
        stated = declared.get(name)
        shape, dtype = kind or (None, None)
        dtype = dtype or first
        if not name:
            continue
        if stated is not None and shape is not None and stated.shape != shape:
            raise ModelError(
                f"its output {name!r} is {list(stated.shape)} in the model's value_info, "
                f"and {list(shape)} by its description"
            )
        if stated is None and shape is not None and dtype is not None:
            stated = Tensor(name, shape, dtype)
        outputs[name] = stated
    return outputs
