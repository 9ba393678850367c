"""The reader from an ONNX file to a Graph.

Nothing that a file says is taken on trust: what it defines is checked, inner shapes are inferred anew, what it says of
its outputs and of dtypes must agree, what it would expand to is bounded before it is expanded, and no other file is
ever opened.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import IR_VERSION, ModelProto, TensorProto, TensorShapeProto, ValueInfoProto, helper

from planner.errors import ModelError, UnsupportedError, UsageError, did_you_mean
from planner.graph.core.check import check_graph
from planner.graph.core.model import Graph, Tensor
from planner.graph.core.notes import (
    EVIDENCE,
    EXTERNAL,
    FOLDED,
    LEFT,
    PREFIX,
    STATE,
    UNLOADED,
    UNLOADED_INITIAL,
    VALUES,
    is_structural,
    names_of,
    pairs_of,
)
from planner.graph.core.wellformed import (
    check_names,
    check_text,
    every_node,
    initializers_of,
    live_nodes,
    unique_op_names,
)
from planner.graph.files.protos import (
    MAX_IR_VERSION,
    array_of,
    dtype_of,
    elem_type_name,
    external_location,
    shape_fault,
    tensor_shape,
)
from planner.graph.folding.fold import Rewriting, fold
from planner.graph.folding.foreign import Operators, declared_types
from planner.graph.reading.inline import inline_functions, reachable_nodes
from planner.graph.reading.load import convert_opset, default_opset, load_model, refuse_unsupported
from planner.graph.reading.values import fixed_inputs, note_of, values_of
from planner.graph.step.roles import find_state, with_state
from planner.printable import printable


def read_model(
    path: str | os.PathLike[str],
    *,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, str] | None = None,
    state_pairs: Sequence[tuple[str, str]] | None = None,
    operators: Operators | None = None,
) -> Graph:
    """Read an ONNX file into a graph whose every tensor has a static shape and dtype.

    Args:
        path: a binary ONNX file. External data that it refers to is not opened.
        dims: sizes for the symbolic dims of its inputs, by name; a dim without a name is ``input[index]``.
        values: inputs that become constants, see ``values.fixed_inputs``.
        state_pairs: (state, next state) by name; if None, what the file's ``tofu.state`` metadata says, and if there
            is none, what ``roles.find_state`` finds.
        operators: which operators can be planned, and what descriptions say of shapes; None: every operator is taken
            whose shapes ONNX infers or the file states.

    Returns:
        The graph; ``Graph.initial`` holds the default values of inputs, ``Graph.constants`` the other initializers.

    Raises:
        ModelError: it cannot be read, is malformed, or some tensor has no static shape or, not being a constant, no
            elements.
        UnsupportedError: control flow, sequences, strings, sparse tensors, unknown operators or dtypes.
        UsageError: ``dims`` names a dim that the model does not have; ``values`` cannot be those of inputs;
            ``state_pairs`` names a tensor that cannot be paired; or which input an output replaces cannot be told.
    """
    file = Path(path)
    model = load_model(file)
    try:
        return graph_from_proto(
            model, dims=dims, values=values, state_pairs=state_pairs, name=file.stem, operators=operators
        )
    except ModelError as error:
        raise type(error)(f"{file}: {error.what}", facts=error.facts, hint=error.hint) from error


def graph_from_proto(
    model: ModelProto,
    *,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, str] | None = None,
    state_pairs: Sequence[tuple[str, str]] | None = None,
    name: str = "graph",
    operators: Operators | None = None,
    rewriting: Rewriting | None = None,
) -> Graph:
    """The graph of a ModelProto, which is left as it is.

    Args:
        model: with or without weights.
        dims: see ``read_model``.
        values: see ``read_model``.
        state_pairs: see ``read_model``.
        name: of the graph, where the model gives it none.
        operators: see ``read_model``.
        rewriting: see ``fold``.

    Raises:
        ModelError, UnsupportedError, UsageError: see ``read_model``.
    """
    check_text(model)
    if model.ir_version > IR_VERSION:
        # Up to that one it is read, and written in a version that the runtime takes.
        raise UnsupportedError(
            f"the model is of IR version {model.ir_version}; the newest that can be read is {IR_VERSION}",
            hint="export the model again with an older version of onnx",
        )
    if not model.graph.node:
        raise ModelError("the graph has no nodes: there is nothing to be divided")
    opset = default_opset(model)
    refuse_unsupported(model, reachable_nodes(model), operators)
    initializers = initializers_of(model)
    check_names(model.graph, initializers)
    bare = _with_short_names(_without_weights(model, initializers), opset)
    bare, opset = convert_opset(inline_functions(bare), initializers, opset)
    check_names(bare.graph, initializers)

    metadata = {entry.key: entry.value for entry in model.metadata_props if entry.key.startswith(PREFIX)}
    unloaded = names_of(metadata, UNLOADED)
    declared = _inputs(model, initializers, dims or {})
    inputs = {key: tensor for key, tensor in declared.items() if key not in unloaded}
    constants = {key: tensor for key, tensor in declared.items() if key in unloaded}
    fixed = fixed_inputs(values or {}, inputs)
    constants |= {key: inputs.pop(key) for key in fixed}
    arrays: dict[str, np.ndarray | None] = {**dict.fromkeys(constants), **fixed}
    initial: dict[str, np.ndarray | None] = {}
    external: dict[str, dict[str, str]] = {}
    for key, proto in initializers.items():
        owner = f"initializer {key!r}"
        shape, dtype = tensor_shape(proto, owner)
        value = array_of(proto, owner)
        if value is None:
            external[key] = external_location(proto, owner)
        if key in fixed:
            continue
        if key in inputs:
            _check_default(inputs[key], proto)
            initial[key] = value
        else:
            constants[key] = Tensor(key, shape, dtype)
            arrays[key] = value

    nodes = live_nodes(bare.graph)
    opsets = _opsets(model, bare)
    outputs = tuple(value.name for value in model.graph.output)
    stated = declared_types(model, dims or {})
    folded = fold(
        list(zip(unique_op_names(nodes), nodes, strict=True)),
        inputs=inputs,
        initializers=constants,
        values=arrays,
        outputs=outputs,
        computed=names_of(metadata, FOLDED) | fixed.keys(),
        opsets=opsets,
        ir_version=min(max(int(model.ir_version), 8), MAX_IR_VERSION),
        written_at=default_opset(model),
        declared=stated,
        operators=operators,
        rewriting=rewriting,
    )
    if not dims:
        # Sizes that are given change what is stated for others.
        _refuse_lies(stated, folded.tensors, outputs)
    # Where values lie is what the initializers say, and nothing else.
    notes = {key: value for key, value in metadata.items() if not is_structural(key) and key != EXTERNAL}
    if fixed:
        notes[VALUES] = note_of([*values_of(notes), *(values or {}).items()])
    if external:
        notes[EXTERNAL] = json.dumps(external, sort_keys=True)
    for key in sorted((names_of(metadata, UNLOADED_INITIAL) & inputs.keys()) - initial.keys()):
        initial[key] = None
    graph = Graph(
        name=model.graph.name or name,
        tensors=folded.tensors,
        ops=folded.ops,
        inputs=tuple(inputs),
        outputs=outputs,
        constants=folded.constants,
        folded=folded.folded,
        initial=initial,
        opset=opset,
        domains={domain: opsets[domain] for domain in sorted({op.domain for op in folded.ops} - {""})},
        notes=notes,
    )
    return _with_state(graph, metadata, state_pairs)


def _refuse_lies(stated: Mapping[str, Tensor], inferred: Mapping[str, Tensor], outputs: Sequence[str]) -> None:
    """Of what the file states of tensors nothing is believed; what contradicts the ops is a fault of one or the other.

    Shapes of inner tensors are left out: they stay behind when a model is given another batch size, and the runtime,
    too, goes by what the ops make.

    Raises:
        ModelError: outputs of another shape, or tensors of another dtype, than is stated: all of them.
    """
    facts = tuple(
        f"{name!r}: stated {_type(tensor)}, made {_type(inferred[name])}"
        for name, tensor in stated.items()
        if name in inferred
        and (tensor.dtype is not inferred[name].dtype or (name in outputs and tensor.shape != inferred[name].shape))
    )
    if facts:
        raise ModelError(
            "the model states other tensors than its ops make",
            facts=facts,
            hint="export the model again, or remove what it states (value_info, shapes of outputs)",
        )


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype.value} {list(tensor.shape)}"


def _opsets(model: ModelProto, bare: ModelProto) -> dict[str, int]:
    """Versions of all operator domains: those that the model imports, and what only its local functions do."""
    functions = [
        entry for function in model.functions for entry in function.opset_import if entry.domain not in ("", "ai.onnx")
    ]
    versions: dict[str, int] = {}
    for entry in (*bare.opset_import, *functions):
        versions.setdefault(entry.domain, int(entry.version))
    return versions


def _without_weights(model: ModelProto, initializers: Mapping[str, TensorProto]) -> ModelProto:
    """What the model computes, without its weights and without what it says about inner tensors."""
    bare = ModelProto(ir_version=model.ir_version)
    bare.opset_import.extend(model.opset_import)
    bare.functions.extend(model.functions)
    bare.graph.name = model.graph.name or "graph"
    bare.graph.node.extend(model.graph.node)
    bare.graph.input.extend(
        value for value in model.graph.input if model.ir_version >= 4 or value.name not in initializers
    )
    bare.graph.output.extend(model.graph.output)
    for value in (*bare.graph.input, *bare.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if _is_unknown(dim):
                dim.ClearField("value")
    for function in bare.functions:
        del function.value_info[:]
    return bare


def _with_short_names(bare: ModelProto, opset: int) -> ModelProto:
    """A model, changed in place, that calls ONNX's default domain "" everywhere, and imports it.

    ONNX has ``ai.onnx`` for another name of it; its checker and inference look only for the name that a node has.
    """
    nodes = [node for function in bare.functions for node in function.node]
    for named in (*bare.opset_import, *bare.functions, *every_node((*bare.graph.node, *nodes))):
        if named.domain == "ai.onnx":
            named.domain = ""
    for entry in (entry for function in bare.functions for entry in function.opset_import):
        if entry.domain == "ai.onnx":
            entry.domain = ""
    for owner in (bare, *bare.functions):  # a file may import it under both names
        versions = {entry.domain: entry.version for entry in owner.opset_import}
        del owner.opset_import[:]
        owner.opset_import.extend(map(helper.make_opsetid, versions.keys(), versions.values()))
    if not any(entry.domain == "" for entry in bare.opset_import):
        bare.opset_import.append(helper.make_opsetid("", opset))
    return bare


def _inputs(model: ModelProto, initializers: Mapping[str, TensorProto], dims: Mapping[str, int]) -> dict[str, Tensor]:
    """The graph's inputs, symbolic dims bound. Before IR version 4 an initializer had to be listed as an input, too."""
    values = [value for value in model.graph.input if model.ir_version >= 4 or value.name not in initializers]
    _check_dims(values, dims)
    tensors: dict[str, Tensor] = {}
    faults: list[str] = []
    unsupported: list[str] = []
    unbound: dict[str, None] = {}
    open_shapes: list[str] = []
    for value in values:
        kind = value.type.tensor_type
        dtype = dtype_of(kind.elem_type)
        if dtype is None:
            unsupported.append(f"input {value.name!r} is of {elem_type_name(kind.elem_type)}")
            continue
        if not kind.HasField("shape"):
            faults.append(f"input {value.name!r} has no shape, not even its number of dims")
            continue
        names = _symbols(value)
        sizes = [
            dims.get(symbol) if symbol else int(dim.dim_value)
            for symbol, dim in zip(names, kind.shape.dim, strict=True)
        ]
        if None in sizes:
            shown = ", ".join(symbol if size is None else str(size) for symbol, size in zip(names, sizes, strict=True))
            open_shapes.append(f"input {value.name!r}: [{shown}]")
            unbound.update(dict.fromkeys(symbol for symbol, size in zip(names, sizes, strict=True) if size is None))
            continue
        shape = tuple(size for size in sizes if size is not None)
        fault = shape_fault(shape)
        if fault:
            faults.append(f"input {value.name!r} {fault}")
        tensors[value.name] = Tensor(value.name, shape, dtype)
    if unsupported:
        raise UnsupportedError("inputs of the model are of dtypes that cannot be planned", facts=tuple(unsupported))
    if faults:
        raise ModelError("inputs of the model have no usable shape", facts=tuple(faults))
    # Sizes of symbolic dims are asked for last: a user who gives them should not then hear that no size helps.
    if open_shapes:
        count = f"{len(open_shapes)} inputs have" if len(open_shapes) > 1 else "1 input has"
        raise ModelError(
            f"{count} no static shape",
            facts=tuple(open_shapes),
            hint="give sizes to the symbolic dims: " + " ".join(map(_dim_option, unbound)),
        )
    return tensors


def _dim_option(symbol: str) -> str:
    """How the size of a symbolic dim is given: quoted where a shell would read brackets."""
    return f"--dim {shlex.quote(printable(symbol) + '=' + ('SIZE' if symbol == 'N' else 'N'))}"


def _is_unknown(dim: TensorShapeProto.Dimension) -> bool:
    """Whether a dim has neither a size nor a symbol; older exporters write -1 for that, as ONNX Runtime reads it."""
    return dim.dim_value == -1 if dim.HasField("dim_value") else not dim.dim_param


def _symbols(value: ValueInfoProto) -> list[str]:
    """The symbol of each dim of an input: "" where it has a size, ``input[index]`` where it has neither."""
    return [
        f"{value.name}[{index}]" if _is_unknown(dim) else dim.dim_param
        for index, dim in enumerate(value.type.tensor_type.shape.dim)
    ]


def _check_dims(values: Sequence[ValueInfoProto], dims: Mapping[str, int]) -> None:
    symbols = list(dict.fromkeys(symbol for value in values for symbol in _symbols(value) if symbol))
    unknown = [name for name in dims if name not in symbols]
    if unknown:
        raise UsageError(
            f"the model has no symbolic dim named {', '.join(map(repr, unknown))}",
            facts=(f"its symbolic dims: {', '.join(symbols)}" if symbols else "none of its inputs has a symbolic dim",),
            hint=" ".join(filter(None, (did_you_mean(name, symbols) for name in unknown)))
            or " ".join(map(_dim_option, symbols)),
        )
    small = [f"{name}={size}" for name, size in dims.items() if size < 1]
    if small:
        raise UsageError(f"a dim must be at least 1: {', '.join(small)}")


def _check_default(tensor: Tensor, value: TensorProto) -> None:
    if tuple(value.dims) != tensor.shape or dtype_of(value.data_type) is not tensor.dtype:
        raise ModelError(
            f"the default value of input {tensor.name!r} is {list(value.dims)} of {elem_type_name(value.data_type)}; "
            f"the input is {list(tensor.shape)} of {tensor.dtype.value}"
        )


def _with_state(graph: Graph, metadata: Mapping[str, str], state_pairs: Sequence[tuple[str, str]] | None) -> Graph:
    check_graph(graph)
    _refuse_empty(graph)
    if state_pairs is not None:
        # What was inferred once is not what is said now.
        bare = {key: value for key, value in graph.notes.items() if key not in (EVIDENCE, LEFT)}
        return with_state(replace(graph, notes=bare), state_pairs)
    stated = pairs_of(metadata, STATE)
    if stated is None:
        findings = find_state(graph)
        reasons = {pair.following: [pair.evidence, pair.why] for pair in findings.pairs}
        notes = {**graph.notes, EVIDENCE: json.dumps(reasons)} if reasons else dict(graph.notes)
        if findings.guesses:
            notes[LEFT] = json.dumps(findings.guesses)
        return with_state(replace(graph, notes=notes), [(pair.current, pair.following) for pair in findings.pairs])
    try:
        return with_state(graph, stated)
    except UsageError as error:
        raise ModelError(f"metadata {STATE}: {error.what}", facts=error.facts) from None


def _refuse_empty(graph: Graph) -> None:
    """Nothing of an empty tensor can be given to a worker. What is empty is known, so it has become a constant.

    An input or output may be empty: ops read the constant in its place.
    """
    empty = [
        tensor
        for name, tensor in graph.tensors.items()
        if not tensor.elements and name not in graph.constants and graph.consumers[name]
    ]
    if empty:
        fault = f"tensor {empty[0].name!r} is empty" if len(empty) == 1 else f"{len(empty)} tensors are empty"
        raise ModelError(fault, facts=tuple(f"{tensor.name!r}: {list(tensor.shape)}" for tensor in empty))
