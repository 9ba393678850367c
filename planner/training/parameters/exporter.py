"""What a file says of the exporter that wrote it, and of the network that the exporter was given.

PyTorch's exporter (``torch.onnx.export(..., dynamo=True)``) optimizes unless it is told ``optimize=False``: it computes
constants, merges those that are equal and folds BatchNormalizations into convolutions. It writes into the graph's
metadata what the network's parameters and buffers were called, and onto an op which rule of its optimizer made it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from onnx import ModelProto

_PYTORCH: Final = "pytorch"
"""How both of PyTorch's exporters call themselves as a model's producer."""
_SIGNATURE: Final = "pkg.torch.export.ExportedProgram.graph_signature"
"""Metadata of the graph: a line for each input of the exported program, as ``p_b: PARAMETER target='fc.bias'``."""
_ENTRY: Final = re.compile(r"^\w+: (PARAMETER|BUFFER) target='([^'\n]+)'", re.MULTILINE)
_RULE: Final = "pkg.onnxscript.rewriter.rule_name"
"""Metadata of an op: the rules of the optimizer that made it, as ``FuseBatchNormIntoConv``."""
_FOLDS_NORMS: Final = "BatchNorm"


@dataclass(frozen=True, slots=True)
class Exporter:
    """What a file says of its exporter. Of a file that another program wrote, or that says nothing, all is empty."""

    is_pytorch: bool = False
    is_optimized: bool = False
    """Whether the exporter may have optimized: nothing in the file speaks against it."""
    parameters: tuple[str, ...] = ()
    """What the network's parameters were called, tied ones by each name; () where the file does not say it."""
    buffers: tuple[str, ...] = ()
    folds_norms: bool = False
    """Whether the file says that BatchNormalizations were folded into other ops."""


def exporter_of(model: ModelProto) -> Exporter:
    """What a model says of its exporter, in its producer's name and in metadata."""
    if model.producer_name != _PYTORCH:
        return Exporter()
    nodes = model.graph.node
    signature = next((entry.value for entry in model.graph.metadata_props if entry.key == _SIGNATURE), "")
    found = _ENTRY.findall(signature)
    rules = set(_rules(model))
    # The optimizer makes initializers of Constant nodes; that of the older exporter ("/conv1/Conv") does not.
    is_traced = any(node.name.startswith("/") for node in nodes)
    has_constants = any(node.op_type == "Constant" for node in nodes)
    return Exporter(
        is_pytorch=True,
        is_optimized=bool(rules) or is_traced or not has_constants,
        parameters=tuple(name for kind, name in found if kind == "PARAMETER"),
        buffers=tuple(name for kind, name in found if kind == "BUFFER"),
        folds_norms=any(_FOLDS_NORMS in rule for rule in rules),
    )


def _rules(model: ModelProto) -> Iterator[str]:
    for node in model.graph.node:
        for entry in node.metadata_props:
            if entry.key == _RULE:
                yield entry.value
