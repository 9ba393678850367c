"""The exporter of a file, and the network that it was given.

PyTorch's exporter (``torch.onnx.export(..., dynamo=True)``) optimizes unless it is told ``optimize=False``: it computes
constants, merges those that are equal and folds BatchNormalizations into convolutions. It writes into the graph's
metadata what the network's parameters and buffers were called, and onto an op which rule of its optimizer made it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from onnx import ModelProto, TensorProto

from planner.graph.core.traits import RECURRENT

_PYTORCH: Final = "pytorch"
"""How both of PyTorch's exporters call themselves as a model's producer."""
_SIGNATURE: Final = "pkg.torch.export.ExportedProgram.graph_signature"
"""Metadata of the graph: a line for each input of the exported program, as ``p_b: PARAMETER target='fc.bias'``."""
_ENTRY: Final = re.compile(r"^(\w+): (PARAMETER|BUFFER) target='([^'\n]+)'", re.MULTILINE)
_CALL: Final = "pkg.torch.onnx.fx_node"
"""Metadata of an op: the call of the exported program that it was made for, with the call's arguments."""
_INTEGERS: Final = frozenset({TensorProto.BOOL, TensorProto.INT32, TensorProto.INT64})
_RULE: Final = "pkg.onnxscript.rewriter.rule_name"
"""Metadata of an op: the rules of the optimizer that made it, as ``FuseBatchNormIntoConv``."""
_FOLDS_NORMS: Final = "BatchNorm"


@dataclass(frozen=True, slots=True)
class Exporter:
    """The exporter that a file names. Of a file that another program wrote, or that says nothing, all is empty."""

    is_pytorch: bool = False
    is_optimized: bool = False
    """Whether the exporter may have optimized: nothing in the file speaks against it."""
    parameters: tuple[str, ...] = ()
    """What the network's parameters were called, tied ones by each name; () where the file does not say it."""
    buffers: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Of parameters that the file has no constant of by their name, the constant that their layer reads."""
    names_calls: bool = False
    """Whether the file says which layer an op is of, so that such constants are found."""
    folds_norms: bool = False
    """Whether the file says that BatchNormalizations were folded into other ops."""


UNSAID: Final = Exporter()


def exporter_of(model: ModelProto) -> Exporter:
    """What a model says of its exporter, in its producer's name and in metadata."""
    if model.producer_name != _PYTORCH:
        return UNSAID
    nodes = model.graph.node
    signature = next((entry.value for entry in model.graph.metadata_props if entry.key == _SIGNATURE), "")
    entries = _ENTRY.findall(signature)
    rules = {entry.value for node in nodes for entry in node.metadata_props if entry.key == _RULE}
    # The optimizer makes initializers of Constant nodes; that of the older exporter ("/conv1/Conv") does not.
    is_traced = any(node.name.startswith("/") for node in nodes)
    has_constants = any(node.op_type == "Constant" for node in nodes)
    return Exporter(
        is_pytorch=True,
        is_optimized=bool(rules) or is_traced or not has_constants,
        parameters=tuple(name for _, kind, name in entries if kind == "PARAMETER"),
        buffers=tuple(name for _, kind, name in entries if kind == "BUFFER"),
        renamed=_renamed(model, {argument: name for argument, kind, name in entries if kind == "PARAMETER"}),
        names_calls=any(entry.key == _CALL for node in nodes for entry in node.metadata_props),
        folds_norms=any(_FOLDS_NORMS in rule for rule in rules),
    )


def _renamed(model: ModelProto, parameters: Mapping[str, str]) -> dict[str, str]:
    """The constants of parameters that are not called after them, by the calls that have them as arguments.

    A call is several ops, and its parameters are what its last ones read: a GroupNorm normalises by ones and zeros
    first. An exporter that optimizes leaves out biases only. States with which a recurrent op begins are none.

    Args:
        model: the file.
        parameters: names by argument of the exported program.
    """
    stated = {proto.name for proto in model.graph.initializer}
    arrays = {proto.name for proto in model.graph.initializer if proto.dims and proto.data_type not in _INTEGERS}
    read: dict[str, dict[str, None]] = {}
    for node in model.graph.node:
        weights = node.input[:4] if node.op_type in RECURRENT else node.input
        for entry in node.metadata_props:
            if entry.key == _CALL:
                read.setdefault(entry.value, {}).update(dict.fromkeys(name for name in weights if name in arrays))
    renames: dict[str, str] = {}
    for call, constants in read.items():
        inputs = [parameters[name] for name in re.findall(r"%(\w+)", call) if name in parameters]
        missing = sorted(dict.fromkeys(name for name in inputs if name not in stated), key=lambda name: "bias" in name)
        renames.update(zip(missing, [name for name in constants if name not in inputs][-len(missing) :], strict=False))
    return renames
