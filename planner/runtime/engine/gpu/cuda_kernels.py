"""Ops with a CUDA kernel in ONNX Runtime, listed without a GPU.

``cuda_kernels.txt`` is the provider's own registry, of the version that pyproject.toml asks for
(``tests/tools/cuda_kernel_table.py``). A kernel is registered for a range of an operator's versions and for types; one
without an end is for the version that it begins with. What the registry does not say, since a kernel refuses it when
it is made, is in ``_refused``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from typing import Final, NamedTuple

from onnx import AttributeProto, NodeProto, TensorProto, defs

from planner.graph.core.traits import RECURRENT
from planner.graph.files.protos import dtype_of

_ONNX: Final = "ai.onnx"


class _Kernel(NamedTuple):
    first: int
    last: int | None
    types: Mapping[str, frozenset[str]]

    def is_of(self, version: int) -> bool:
        return self.first == version if self.last is None else self.first <= version <= self.last


@functools.cache
def _kernels() -> Mapping[tuple[str, str], tuple[_Kernel, ...]]:
    """By domain and operator."""
    by_operator: dict[tuple[str, str], list[_Kernel]] = {}
    text = resources.files("planner.runtime.engine.gpu").joinpath("cuda_kernels.txt").read_text(encoding="ascii")
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        domain, name, versions, *constraints = line.split()
        first, _, last = versions.partition("-")
        types = (constraint.partition("=") for constraint in constraints)
        kernel = _Kernel(
            int(first), int(last) if last else None, {key: frozenset(kinds.split("|")) for key, _, kinds in types}
        )
        by_operator.setdefault(("" if domain == _ONNX else domain, name), []).append(kernel)
    return {key: tuple(kernels) for key, kernels in by_operator.items()}


def is_of_runtime(domain: str) -> bool:
    """Whether operators of a domain are ONNX Runtime's, not of a user's library."""
    return domain in ("", _ONNX, "ai.onnx.ml", "com.microsoft")


def has_cuda_kernel(node: NodeProto, kinds: Mapping[str, int], opsets: Mapping[str, int]) -> bool:
    """Whether ONNX Runtime's CUDA provider takes a node.

    Args:
        node: of a standard operator or of ``com.microsoft``.
        kinds: by tensor, its ``TensorProto.DataType``; a tensor that is not there may be of any.
        opsets: the model's, by domain.
    """
    domain = "" if node.domain == _ONNX else node.domain
    kernels = _kernels().get((domain, node.op_type), ())
    if domain in ("", "ai.onnx.ml") and defs.has(node.op_type, domain):  # not ONNX Runtime's own, such as FusedConv
        schema = defs.get_schema(node.op_type, opsets[domain], domain)
        version, types = schema.since_version, _types(node, schema, kinds)
    else:
        version, first = 1, next((kinds[name] for name in node.input if name in kinds), None)
        types = {} if first is None else {"T": _name(first)}
    return not _refused(node) and any(
        kernel.is_of(version) and all(types.get(key, "") in ("", *allowed) for key, allowed in kernel.types.items())
        for kernel in kernels
    )


def _types(node: NodeProto, schema: defs.OpSchema, kinds: Mapping[str, int]) -> dict[str, str]:
    """The types of a node, by type variable and by parameter."""
    types: dict[str, str] = {}
    for names, parameters in ((node.input, schema.inputs), (node.output, schema.outputs)):
        for number, name in enumerate(names):
            parameter = parameters[min(number, len(parameters) - 1)]
            if name and name in kinds:
                for key in (parameter.type_str, parameter.name):
                    types.setdefault(key, _name(kinds[name]))
    return types


def _name(kind: int) -> str:
    dtype = dtype_of(kind)
    return "unknown" if dtype is None else dtype.value


def fails_when_run(node: NodeProto, kinds: Mapping[str, int]) -> bool:
    """Whether a node's kernel is made, and fails or gives wrong numbers when it runs.

    Found with ONNX Runtime 1.31.1 on an H200 by ``tests/tools/gpu_ops.py`` (bench/results/gpu.md). What depends on
    shapes, such as the least width of experts, is not told.

    Args:
        node: that ``has_cuda_kernel`` finds a kernel for.
        kinds: by tensor, its ``TensorProto.DataType``.
    """
    attributes, first = _attributes(node), kinds.get(node.input[0], 0) if node.input else 0
    match node.op_type:
        case "ScatterND":
            is_joining = "reduction" in attributes and attributes["reduction"].s != b"none"
            return is_joining and first not in (TensorProto.FLOAT, TensorProto.FLOAT16)
        case "Attention" if node.domain != "com.microsoft":
            has_scores = any(node.output[3:4]) and _number(attributes, "qk_matmul_output_mode") != 0
            # Its numbers are wrong in bfloat16 behind a past; float16 could not be tried.
            return has_scores or (any(node.input[4:6]) and first in (TensorProto.FLOAT16, TensorProto.BFLOAT16))
        case "DequantizeLinear":
            return _number(attributes, "block_size") > 0 and first in (TensorProto.INT8, TensorProto.UINT8)
        case "QuantizeLinear":
            return _number(attributes, "block_size") > 0
        case "LpPool":
            return _number(attributes, "ceil_mode") == 1
        case "ReduceSumSquare" | "ReduceL1" | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp":
            # Without axes the operand comes back as it is; only the squares were tried.
            return _number(attributes, "noop_with_empty_axes") == 1
    return False


def _attributes(node: NodeProto) -> Mapping[str, AttributeProto]:
    return {attribute.name: attribute for attribute in node.attribute}


def _number(attributes: Mapping[str, AttributeProto], name: str) -> int:
    return attributes[name].i if name in attributes else 0


def _refused(node: NodeProto) -> bool:
    attributes = _attributes(node)
    match node.op_type:
        case "ArgMax" | "ArgMin":
            return _number(attributes, "select_last_index") == 1
        case "ConvTranspose":
            return "auto_pad" in attributes and attributes["auto_pad"].s != b"NOTSET"
        case "GRU" if _number(attributes, "linear_before_reset") == 0:
            return True
        case "LSTM" if _number(attributes, "input_forget") == 1 or any(node.input[7:8]):
            return True
        case "GRU" | "LSTM" | "RNN":
            usual = RECURRENT[node.op_type].activations  # cuDNN has no others
            named = [name.decode() for name in attributes["activations"].strings] if "activations" in attributes else []
            return (
                any(name != usual[place % len(usual)] for place, name in enumerate(named))
                or bool(attributes.keys() & {"activation_alpha", "activation_beta", "clip"})
                or _number(attributes, "layout") == 1
            )
    return _number(attributes, "training_mode") == 1  # no kernel updates running statistics
