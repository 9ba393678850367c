"""Measured times of ops on a device (ICML'18, section 5.1): data only, and the form of its file.

    profile: 1                                 # the version of this form
    source: tofu profile train.onnx --gpus 2
    model: train
    device: {kind: cpu, name: "AMD EPYC 7763", threads: 1, runtime: onnxruntime 1.31.0, overhead: 2.1us}
    ops:
      - {op: MatMul, inputs: "float32[64,128] float32[128,32]", outputs: "float32[64,32]",
         operations: 524288, bytes: 57344, seconds: 12.5us, runs: 50}
    unmeasured:
      - {op: Loop, inputs: "int64[]", outputs: "float32[8]", reason: no kernel}

A file is YAML; JSON is YAML, too. It is read strictly (``planner.strict_yaml``): all findings at once, each with its
line. ``planner.runtime.measure.ops`` measures, ``planner.features.profile.run`` says what.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar

import yaml

from planner.errors import UsageError, did_you_mean
from planner.graph.core.model import DType, Shape
from planner.machine.figures import read_fields, read_record, written
from planner.records import Kind, Positive
from planner.strict_yaml import Reader, read_text, shown

VERSION: Final = 1
_MOST_CHARACTERS: Final = 16_000_000
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TENSOR: Final = re.compile(r"(?P<dtype>[a-z0-9_]+)\[(?P<sizes>|[0-9]{1,18}(,[0-9]{1,18})*)\]")
_ABSENT: Final = "-"
_DTYPES: Final = {dtype.value: dtype for dtype in DType}

Op = TypeVar("Op", bound="LocalOp")
Places: TypeAlias = tuple[tuple[DType, Shape] | None, ...]
"""Element type and shape by position; None where there is no tensor, or nothing is read of it."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The subject of a measurement, but for sizes: ops of one signature differ in the shapes of their tensors alone."""

    told: ClassVar = "op attributes constants"

    op: str
    """The operator, with its domain where that is not ONNX's own: ``Conv``, ``my.domain.Scale``."""
    attributes: str
    """Those that the op states, by name; "" for none."""
    constants: str
    """Values of inputs that are no data (axes, a shape, an exponent), by position; "" for none."""
    inputs: tuple[tuple[DType, int] | None, ...]
    """Element type and rank by position; None: absent, or no data."""
    outputs: tuple[tuple[DType, int] | None, ...]


@dataclass(frozen=True, slots=True)
class LocalShapes:
    """The shapes of a worker's inputs and outputs of an op."""

    inputs: tuple[Shape | None, ...]
    """By position; None: absent, no data, or nothing of it is read."""
    outputs: tuple[Shape | None, ...]


@dataclass(frozen=True, slots=True)
class LocalOp:
    """One local op: what it is, and of which sizes."""

    signature: Signature
    shapes: LocalShapes

    @property
    def inputs(self) -> str:
        return places_text(self.signature.inputs, self.shapes.inputs)

    @property
    def outputs(self) -> str:
        return places_text(self.signature.outputs, self.shapes.outputs)


@dataclass(frozen=True, slots=True)
class MeasuredOp(LocalOp):
    """One local op on a device."""

    told: ClassVar = "*signature inputs outputs operations touched_bytes seconds runs"

    operations: int
    """Of the local op, as ``planner.cost.roofline`` counts them."""
    touched_bytes: Annotated[int, Kind(member="bytes")]
    """Of what it reads and makes."""
    seconds: float
    """The median of its runs, less what a run takes beside its ops; not negative."""
    runs: Positive
    """How many were timed."""

    @property
    def work(self) -> int:
        """The larger of operations and bytes: what a time is scaled by."""
        return max(self.operations, self.touched_bytes)


@dataclass(frozen=True, slots=True)
class UnmeasuredOp(LocalOp):
    """A local op that could not be measured."""

    told: ClassVar = "*signature inputs outputs reason"

    reason: str


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """The device that the times were measured on."""

    kind: Literal["cpu", "cuda"]
    name: str
    """The processor's or GPU's own."""
    threads: Positive
    """That computed one op together; 1 on a GPU."""
    runtime: str
    """``onnxruntime`` and its version."""
    overhead_seconds: float
    """What a run takes beside its ops; it is taken off every time."""


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """Measured times of local ops on one device."""

    device: MeasuredDevice
    model: str
    """Whose ops they are."""
    source: str
    """The command that measured."""
    ops: tuple[MeasuredOp, ...]
    unmeasured: tuple[UnmeasuredOp, ...] = ()

    def to_text(self) -> str:
        """The file: an op on each line, which a person or a diff can compare."""
        head = {"profile": VERSION, "source": self.source, "model": self.model, "device": written(self.device)}
        lines = [f"{key}: {_line(value)}" for key, value in head.items() if value]
        entries = {"ops": map(_entry, self.ops), "unmeasured": map(_entry, self.unmeasured)}
        for key, items in entries.items():
            rows = [f"  - {_line(item)}" for item in items]
            lines += [f"{key}:", *rows] if rows else [f"{key}: []"]
        return "\n".join(lines) + "\n"


def load_profile(path: Path) -> DeviceProfile:
    """Reads a profile's file.

    Raises:
        UsageError: there is no such file, or it is no profile; with every finding and its line.
    """
    return parse_profile(read_text(path, _MOST_CHARACTERS, "--profile "), str(path))


def parse_profile(text: str, origin: str) -> DeviceProfile:
    """Reads the text of a profile.

    Args:
        text: YAML.
        origin: what errors call it, e.g. its path.

    Raises:
        UsageError: it is no profile; with every finding and its line.
    """
    reader = Reader("profile", _MOST_CHARACTERS)
    found = _read(reader, reader.compose(text, origin))
    if found is None or reader.findings:
        facts = tuple(f"line {line}: {finding}" for line, finding in sorted(dict.fromkeys(reader.findings)))
        raise UsageError(
            f"{origin}: not a usable profile", facts=facts, hint="a profile is written by `tofu profile MODEL`"
        )
    return found


def _read(reader: Reader, root: yaml.Node) -> DeviceProfile | None:
    fields = reader.mapping(
        root, "the file", required=("profile", "device", "ops"), optional=("source", "model", "unmeasured")
    )
    if fields is None:
        return None
    version = reader.count(fields.get("profile"), "profile")
    if version is not None and version != VERSION:
        reader.found(fields["profile"], f"profile: the form has version {version}, and this tofu reads {VERSION}")
    device = read_record(reader, fields.get("device"), "device", MeasuredDevice)
    ops: list[MeasuredOp] = []
    first: dict[tuple[Signature, LocalShapes], int] = {}
    for number, node in enumerate(reader.sequence(fields.get("ops"), "ops")):
        op = _read_op(reader, node, f"ops[{number}]", MeasuredOp)
        if op is None:
            continue
        key, line = (op.signature, op.shapes), node.start_mark.line + 1
        if first.setdefault(key, line) != line:
            reader.found(node, f"ops[{number}]: the same op and shapes were given on line {first[key]}")
        ops.append(op)
    unmeasured = [
        _read_op(reader, node, f"unmeasured[{number}]", UnmeasuredOp)
        for number, node in enumerate(reader.sequence(fields.get("unmeasured"), "unmeasured"))
    ]
    source, model = (reader.text(fields.get(key), key) or "" for key in ("source", "model"))
    if device is None:
        return None
    return DeviceProfile(device, model, source, tuple(ops), tuple(op for op in unmeasured if op is not None))


_APART = ("signature", "shapes")
_NAMED = ("op", "inputs", "outputs")
_CONTENT = ("attributes", "constants")


def _read_op(reader: Reader, node: yaml.Node, where: str, record: type[Op]) -> Op | None:
    nodes, values = read_fields(reader, node, where, record, apart=_APART, required=_NAMED, optional=_CONTENT)
    named = _read_named(reader, nodes, where)
    return None if named is None or values is None else record(*named, **values)


def _read_named(reader: Reader, fields: Mapping[str, yaml.Node], where: str) -> tuple[Signature, LocalShapes] | None:
    op = reader.text(fields.get("op"), f"{where}.op")
    attributes, constants = (reader.text(fields.get(key), f"{where}.{key}") or "" for key in _CONTENT)
    inputs, outputs = (_read_places(reader, fields.get(key), f"{where}.{key}") for key in ("inputs", "outputs"))
    if op is None or inputs is None or outputs is None:
        return None
    return named(op, attributes, constants, inputs, outputs)


def named(op: str, attributes: str, constants: str, inputs: Places, outputs: Places) -> tuple[Signature, LocalShapes]:
    """A signature and its shapes out of element types and shapes by position.

    Args:
        op: see ``Signature``; so are the next two.
        attributes: as text.
        constants: as text.
        inputs: by position.
        outputs: by position.
    """
    ranks = [
        tuple(None if place is None else (place[0], len(place[1])) for place in places) for places in (inputs, outputs)
    ]
    shapes = [tuple(None if place is None else place[1] for place in places) for places in (inputs, outputs)]
    return Signature(op, attributes, constants, *ranks), LocalShapes(*shapes)


def _read_places(reader: Reader, node: yaml.Node | None, where: str) -> Places | None:
    if isinstance(node, yaml.ScalarNode) and not node.value:
        return ()
    text = reader.text(node, where)
    if node is None or text is None:
        return None
    found: list[tuple[DType, Shape] | None] = []
    for part in text.split():
        match = _TENSOR.fullmatch(part)
        if part == _ABSENT:
            found.append(None)
        elif match is None:
            reader.found(node, f"{where}: {shown(part)} is no tensor, such as float32[64,128], and no {_ABSENT}")
        elif match["dtype"] not in _DTYPES:
            advice = did_you_mean(match["dtype"], list(_DTYPES))
            what = f"{where}: there is no element type {shown(match['dtype'])}"
            reader.found(node, what + (f"; {advice}" if advice else ""))
        else:
            sizes = match["sizes"].split(",") if match["sizes"] else []
            found.append((_DTYPES[match["dtype"]], tuple(map(int, sizes))))
    return tuple(found)


def _entry(op: MeasuredOp | UnmeasuredOp) -> dict[str, Any]:
    content = {"attributes": op.signature.attributes, "constants": op.signature.constants}
    stated = {key: text for key, text in content.items() if text}
    return {"op": op.signature.op, **stated, "inputs": op.inputs, "outputs": op.outputs, **written(op, _APART)}


def _line(value: Any) -> str:
    """YAML of a value on one line."""
    text: str = yaml.dump(
        value, Dumper=_DUMPER, default_flow_style=True, width=2**30, sort_keys=False, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...")


def places_text(kinds: Sequence[tuple[DType, int] | None], shapes: Sequence[Shape | None]) -> str:
    """Tensors by position as a file says them: ``float32[64,128] - float32[64]``."""
    return " ".join(
        _ABSENT if kind is None or shape is None else f"{kind[0].value}[{','.join(map(str, shape))}]"
        for kind, shape in zip(kinds, shapes, strict=True)
    )


def rounded_seconds(seconds: float) -> float:
    """A time as a file says it: four digits."""
    return float(f"{seconds:.3e}")
