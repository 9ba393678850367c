"""The reader from a file to a checked ModelProto: what is no ONNX model is refused here, once and clearly."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no types
from onnx import ModelProto, NodeProto, OperatorSetIdProto, TensorProto, defs, helper, version_converter

from planner.errors import DescriptionError, ModelError, UnsupportedError
from planner.graph.core.model import of_types, qualified
from planner.graph.core.subgraph import graphs_of, obstacle
from planner.graph.core.traits import CONTROL_FLOW, SEQUENCES
from planner.graph.core.wellformed import every_node, node_label
from planner.graph.decompositions.registry import Purpose, decompositions
from planner.graph.files.protos import MAX_OPSET, refused_forms
from planner.graph.folding.foreign import Operators
from planner.graph.reading.named_file import require_model
from planner.graph.reading.older_forms import restated
from planner.regular_file import read_regular

MIN_OPSET: Final = 13
"""Older operators are converted: from 13 on, axes are inputs and Softmax works along one dim."""
CONVERTED_OPSET: Final = 21
"""The opset that older models are brought to; it has kernels for all that a training graph needs."""
_OLDEST_OPSET: Final = 7
_LAST_VERSION: Final = 2**31 - 1
_MAX_FILE_BYTES: Final = 2**31 - 1
_CONVERTER_DATA_BYTES: Final = 4096
_ZIPMAP: Final = (
    "ZipMap makes a list of dictionaries: export the model without it, in skl2onnx "
    "to_onnx(model, X, options={'zipmap': False})"
)
_EXPORT: Final = "name an ONNX model, as torch.onnx.export writes it; copy a truncated file once more"
_OTHER_FILES: Final = {
    b"version https://git-lfs": "it is a pointer of Git LFS, and not the file: `git lfs pull` fetches that",
    b"PK\x03\x04": "if it is PyTorch's, export the model: torch.onnx.export(model, args, 'model.onnx', dynamo=True, "
    "optimize=False) (docs/export-from-pytorch.md)",
}
"""How files begin that are taken for models."""


def load_model(path: str | os.PathLike[str]) -> ModelProto:
    """Read a model file, without the external data that it may refer to.

    Args:
        path: a binary ONNX file.

    Returns:
        The model; that it has a graph and an opset is checked, nothing else.

    Raises:
        ModelError: no such file, a directory, empty, not ONNX, truncated, larger than protobuf allows.
    """
    file = Path(path)
    if file.is_dir():
        raise ModelError(f"{file}: is a directory, not an ONNX file")
    require_model(file)
    if not file.is_file():
        raise ModelError(f"{file}: is not a regular file")
    try:
        size_bytes = file.stat().st_size
        if size_bytes > _MAX_FILE_BYTES:
            raise ModelError(
                f"{file}: {size_bytes} bytes are more than the 2 GiB that protobuf allows",
                hint="save the model with external data: onnx.save_model(..., save_as_external_data=True)",
            )
        data = read_regular(file, most_bytes=_MAX_FILE_BYTES)
    except OSError as error:
        raise ModelError(f"{file}: cannot be read: {error.strerror}") from None
    if not data:
        raise ModelError(f"{file}: is empty")
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        fault = f"{file}: is not an ONNX model, or is truncated (protobuf cannot parse it)"
        hint = next((advice for first, advice in _OTHER_FILES.items() if data.startswith(first)), _EXPORT)
        raise ModelError(fault, hint=hint) from None
    # Other files may parse, too, as a message of unknown fields alone.
    if not model.HasField("graph") and not model.opset_import and not model.ir_version:
        raise ModelError(f"{file}: is not an ONNX model (no IR version, no operator set, no graph)")
    if not model.HasField("graph") or not model.opset_import:
        missing = "graph" if not model.HasField("graph") else "operator set"
        raise ModelError(f"{file}: has no {missing}; the file may be truncated")
    return model


def default_opset(model: ModelProto) -> int:
    """The version of the default domain that a model imports.

    A model without a node of that domain need not import it; what is written in the place of its nodes is of
    ``CONVERTED_OPSET`` then.

    Raises:
        ModelError: none though it has such nodes, a domain that is imported twice, or a version that there cannot be.
    """
    versions: dict[str, int] = {}
    for entry in (entry for function in model.functions for entry in function.opset_import):
        _check_version(entry)
    for entry in model.opset_import:
        _check_version(entry)
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if versions.setdefault(domain, int(entry.version)) != entry.version:
            name = domain or "the default one"
            raise ModelError(f"the model imports operator domain {name} twice (versions {versions[domain]} and "
                             f"{entry.version})")  # fmt: skip
    if "" in versions:
        return versions[""]
    of_functions = {(function.domain, function.name) for function in model.functions}
    nodes = every_node((*model.graph.node, *(node for function in model.functions for node in function.node)))
    if any(node.domain in ("", "ai.onnx") and (node.domain, node.op_type) not in of_functions for node in nodes):
        raise ModelError("the model imports no version of ONNX's default operator domain")
    return CONVERTED_OPSET


def _check_version(entry: OperatorSetIdProto) -> None:
    if not 1 <= entry.version <= _LAST_VERSION:
        raise ModelError(f"version {entry.version} of operator domain {entry.domain or 'ai.onnx'!r} is imported")


def refuse_unsupported(model: ModelProto, nodes: Iterable[NodeProto], operators: Operators | None = None) -> None:
    """Refuse the forms of ONNX that cannot be planned, all findings at once.

    Control flow and sequences may vanish once values are known (see ``fold``). If they are the only findings, nothing
    is refused here: ``fold`` refuses what is left of them.

    Args:
        model: its training information, sparse initializers and types of inputs and outputs are looked at.
        nodes: the graph's, and those of the local functions that it reaches.
        operators: which operators can be planned. Operators of other domains without a description are told beside
            other findings. Alone they do not refuse the model here: ``fold`` does, and its error counts the ops that
            are left once values are known, and says how an operator is described.

    Raises:
        UnsupportedError: control flow, sequences, optionals, strings, sparse tensors, training information.
        DescriptionError: the user describes a local function.
    """
    facts: dict[str, None] = {}
    perhaps: dict[str, None] = {}
    unknown: dict[str, None] = {}
    functions = {(function.domain, function.name) for function in model.functions}
    for node in nodes:
        key = (node.domain, node.op_type)
        if operators is not None and key in functions and key in operators.own:
            raise DescriptionError(
                f"{qualified(*key)} is read as other operators, those of its function in the model, so that its "
                "description would not be used",
                hint="leave out the description, or the function",
            )
        # Whether control flow is taken is said with all else that nothing describes.
        reason = refused_forms(node, takes_graphs=operators is not None)
        if not reason and operators is not None and of_types(node, CONTROL_FLOW):
            reason = obstacle(node, functions)
        if reason:
            is_told = of_types(node, CONTROL_FLOW | SEQUENCES)
            (perhaps if is_told else facts)[f"{node_label(node)}: {reason}"] = None
        elif operators is not None and node.domain not in ("", "ai.onnx"):
            is_replaced = qualified(*key) in decompositions(Purpose.READING)
            if key not in functions and not is_replaced and not operators.takes(*key):
                unknown[f"{node_label(node)}: operator {qualified(*key)} has no description"] = None
    for sparse in model.graph.sparse_initializer:
        facts[f"initializer {sparse.values.name!r}: a sparse tensor"] = None
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.STRING:
            facts[f"initializer {tensor.name!r}: strings"] = None
    for kind, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            form = value.type.WhichOneof("value")
            if form is not None and form != "tensor_type":
                facts[f"{kind} {value.name!r}: a {form.removesuffix('_type').replace('_', ' ')}"] = None
    if model.training_info:
        facts["the model carries training information (TrainingInfoProto)"] = None
    if facts:
        raise UnsupportedError(
            "the model uses forms of ONNX that cannot be planned",
            facts=(*facts, *perhaps, *unknown),
            hint=_ZIPMAP if any(node.op_type == "ZipMap" for node in model.graph.node) else "",
        )


def convert_opset(model: ModelProto, initializers: dict[str, TensorProto], opset: int) -> tuple[ModelProto, int]:
    """Bring a model without local functions to an opset that both tofu and the runtime take.

    Args:
        model: without initializers, which are kept apart so that no weight is copied.
        initializers: those of the model; what the conversion adds is added here.
        opset: version of the default domain that the model imports.

    Where every operator has the form that it has at the opset wanted, the model needs another stamp only.

    Returns:
        The model itself where nothing is to be done; and its opset.

    Raises:
        UnsupportedError: older than opset 7, or an operator that the converter cannot bring over.
    """
    if MIN_OPSET <= opset <= MAX_OPSET:
        return model, opset
    target = CONVERTED_OPSET if opset < MIN_OPSET else MAX_OPSET
    is_known = opset <= defs.onnx_opset_version()
    if is_known and all(_has_same_form(node, opset, target) for node in model.graph.node):
        stamped = ModelProto()
        stamped.CopyFrom(model)
        for entry in stamped.opset_import:
            if entry.domain in ("", "ai.onnx"):
                entry.version = target
        return stamped, target
    if opset < _OLDEST_OPSET:
        raise UnsupportedError(
            f"the model is of opset {opset}; the oldest that can be converted is {_OLDEST_OPSET}",
            hint=f"export the model again at opset {CONVERTED_OPSET}",
        )
    staged = ModelProto()
    staged.CopyFrom(model)
    staged.ir_version = 10
    inputs = {value.name for value in model.graph.input}
    for name, tensor in initializers.items():
        if name in inputs:
            continue
        # The converter rewrites ops by what small constants say (axes, scales). Weights go in as inputs: it copies what
        # it gets, and takes no more than the 2 GiB of a protobuf.
        if tensor.data_location != TensorProto.EXTERNAL and tensor.ByteSize() <= _CONVERTER_DATA_BYTES:
            staged.graph.initializer.append(tensor)
        else:
            staged.graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
    try:
        converted = version_converter.convert_version(staged, target)
    except Exception as error:  # noqa: BLE001 -- RuntimeError, ConvertError, ValueError and more, under no common type
        raise UnsupportedError(
            f"the model is of opset {opset}, which cannot be converted to {target}",
            facts=(str(error).strip().splitlines()[0],),
            hint=f"export the model again at opset {CONVERTED_OPSET}",
        ) from None
    restated(staged, opset, converted)
    for tensor in converted.graph.initializer:
        initializers.setdefault(tensor.name, tensor)
    model_inputs = [value for value in converted.graph.input if value.name in inputs]
    del converted.graph.initializer[:]
    del converted.graph.input[:]
    converted.graph.input.extend(model_inputs)
    return converted, target


_READ_AGAIN: Final = frozenset(
    {
        *(
            ("BitShift", 28),
            ("Cast", 28),
            ("Celu", 28),
            ("Compress", 28),
            ("DepthToSpace", 28),
            ("DequantizeLinear", 28),
        ),
        *(("Einsum", 28), ("Mod", 28), ("OneHot", 28), ("QuantizeLinear", 28), ("Range", 27)),
        *(("ReduceLogSum", 28), ("ReduceLogSumExp", 28), ("ReverseSequence", 28), ("SpaceToDepth", 28), ("Unique", 28)),
    }
)
"""Versions of operators that came after the runtime's opset, of which ONNX's text was read: without the attributes that
are new, an op does at that version what it did before, on more dtypes. Mod of floats has a form of its own since then,
see ``known_forms.mod_for``. Names do not tell: an operator that ONNX changes again is refused until it is read."""


def _has_same_form(node: NodeProto, opset: int, target: int) -> bool:
    """Whether a node says at another opset what it says at its own.

    An operator that did not change in between does. One that a model newer than the runtime uses does where that
    version of it was read (``_READ_AGAIN``) and the node states no attribute that is new.
    """
    if not all(_has_same_form(inner, opset, target) for graph in graphs_of(node) for inner in graph.node):
        return False
    if node.domain not in ("", "ai.onnx"):
        return True
    try:
        schema, target_schema = (defs.get_schema(node.op_type, version, "") for version in (opset, target))
    except defs.SchemaError:
        return False
    if schema.since_version == target_schema.since_version:
        return True
    is_read = opset > target and (node.op_type, schema.since_version) in _READ_AGAIN
    return is_read and all(attribute.name in target_schema.attributes for attribute in node.attribute)
