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

A file is YAML or JSON, which is YAML, too. It is read strictly (``planner.strict_yaml``): all findings at once, each
with its line. ``planner.runtime.measure.ops`` measures, ``planner.features.profile.run`` says what.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import yaml

from planner.errors import UsageError, did_you_mean
from planner.graph.model import DType, Shape
from planner.records import Kind, Positive
from planner.strict_yaml import Reader, read_text, shown
from planner.units import Quantity, parse_seconds, to_text

VERSION: Final = 1
_MOST_CHARACTERS: Final = 16_000_000
_MOST_DIGITS: Final = 18
_TENSOR: Final = re.compile(r"(?P<dtype>[a-z0-9_]+)\[(?P<sizes>|[0-9]{1,18}(,[0-9]{1,18})*)\]")
_ABSENT: Final = "-"
_DTYPES: Final = {dtype.value: dtype for dtype in DType}

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
    touched_bytes: int
    """Of what it reads and makes."""
    seconds: float
    """The median of its runs, less what a run takes beside its ops; not negative."""
    runs: int
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

    kind: Annotated[str, Kind(pattern="^(cpu|cuda)$")]
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

    def to_text(self, *, as_json: bool) -> str:
        """The file: an op on each line, in YAML or in JSON."""
        device = self.device
        head: dict[str, Any] = {
            "profile": VERSION,
            **({"source": self.source} if self.source else {}),
            **({"model": self.model} if self.model else {}),
            "device": {
                "kind": device.kind,
                "name": device.name,
                "threads": device.threads,
                "runtime": device.runtime,
                "overhead": _seconds_text(device.overhead_seconds),
            },
        }
        # Not written by a YAML library: a thousand ops stay a line each, which a person or a diff can compare.
        lists = {
            "ops": [_measured_entry(op) for op in self.ops],
            "unmeasured": [{**_entry(op.signature, op.shapes), "reason": op.reason} for op in self.unmeasured],
        }
        if as_json:
            parts = [f'  "{key}": {_json(value)}' for key, value in head.items()]
            for key, entries in lists.items():
                lines = ",\n".join(f"    {_json(entry)}" for entry in entries)
                parts.append(f'  "{key}": [\n{lines}\n  ]' if entries else f'  "{key}": []')
            return "{\n" + ",\n".join(parts) + "\n}\n"
        parts = [f"{key}: {_written(value)}" for key, value in head.items()]
        for key, entries in lists.items():
            parts.append(f"{key}:" if entries else f"{key}: []")
            parts += [f"  - {_written(entry)}" for entry in entries]
        return "\n".join(parts) + "\n"


def load_profile(path: Path) -> DeviceProfile:
    """Reads a profile's file.

    Raises:
        UsageError: there is no such file, or it is no profile; with every finding and its line.
    """
    return parse_profile(read_text(path, _MOST_CHARACTERS, "--profile "), str(path))


def parse_profile(text: str, origin: str) -> DeviceProfile:
    """Reads the text of a profile.

    Args:
        text: YAML or JSON.
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
    device = _read_device(reader, fields.get("device"))
    ops: list[MeasuredOp] = []
    first: dict[tuple[Signature, LocalShapes], int] = {}
    for number, node in enumerate(reader.sequence(fields.get("ops"), "ops")):
        op = _read_op(reader, node, f"ops[{number}]")
        if op is None:
            continue
        key, line = (op.signature, op.shapes), node.start_mark.line + 1
        if first.setdefault(key, line) != line:
            reader.found(node, f"ops[{number}]: the same op and shapes were given on line {first[key]}")
        ops.append(op)
    unmeasured = [
        _read_unmeasured(reader, node, f"unmeasured[{number}]")
        for number, node in enumerate(reader.sequence(fields.get("unmeasured"), "unmeasured"))
    ]
    source, model = (reader.text(fields.get(key), key) or "" for key in ("source", "model"))
    if device is None:
        return None
    return DeviceProfile(device, model, source, tuple(ops), tuple(op for op in unmeasured if op is not None))


def _read_device(reader: Reader, node: yaml.Node | None) -> MeasuredDevice | None:
    fields = reader.mapping(node, "device", required=("kind", "name", "threads", "runtime", "overhead"))
    if fields is None:
        return None
    kind, name, runtime = (reader.text(fields.get(key), f"device.{key}") for key in ("kind", "name", "runtime"))
    threads = reader.count(fields.get("threads"), "device.threads")
    overhead = reader.quantity(fields.get("overhead"), "device.overhead", parse_seconds)
    if kind is not None and kind not in ("cpu", "cuda"):
        reader.found(fields["kind"], f"device.kind: {shown(kind)} is neither cpu nor cuda")
    if kind is None or name is None or runtime is None or threads is None or overhead is None:
        return None
    return MeasuredDevice(kind, name, threads, runtime, float(overhead))


_NAMED = ("op", "inputs", "outputs")
_CONTENT = ("attributes", "constants")


def _read_op(reader: Reader, node: yaml.Node, where: str) -> MeasuredOp | None:
    fields = reader.mapping(
        node, where, required=(*_NAMED, "operations", "bytes", "seconds", "runs"), optional=_CONTENT
    )
    if fields is None:
        return None
    named = _read_named(reader, fields, where)
    operations, touched = (
        reader.count(fields.get(key), f"{where}.{key}", least=0, digits=_MOST_DIGITS) for key in ("operations", "bytes")
    )
    runs = reader.count(fields.get("runs"), f"{where}.runs")
    seconds = reader.quantity(fields.get("seconds"), f"{where}.seconds", parse_seconds)
    if named is None or operations is None or touched is None or runs is None or seconds is None:
        return None
    return MeasuredOp(*named, operations, touched, float(seconds), runs)


def _read_unmeasured(reader: Reader, node: yaml.Node, where: str) -> UnmeasuredOp | None:
    fields = reader.mapping(node, where, required=(*_NAMED, "reason"), optional=_CONTENT)
    if fields is None:
        return None
    named = _read_named(reader, fields, where)
    reason = reader.text(fields.get("reason"), f"{where}.reason")
    return None if named is None or reason is None else UnmeasuredOp(*named, reason)


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


def _measured_entry(op: MeasuredOp) -> dict[str, Any]:
    return {
        **_entry(op.signature, op.shapes),
        "operations": op.operations,
        "bytes": op.touched_bytes,
        "seconds": _seconds_text(op.seconds),
        "runs": op.runs,
    }


def _entry(signature: Signature, shapes: LocalShapes) -> dict[str, Any]:
    return {
        "op": signature.op,
        **({"attributes": signature.attributes} if signature.attributes else {}),
        **({"constants": signature.constants} if signature.constants else {}),
        "inputs": places_text(signature.inputs, shapes.inputs),
        "outputs": places_text(signature.outputs, shapes.outputs),
    }


def places_text(kinds: Sequence[tuple[DType, int] | None], shapes: Sequence[Shape | None]) -> str:
    """Tensors by position as a file says them: ``float32[64,128] - float32[64]``."""
    return " ".join(
        _ABSENT if kind is None or shape is None else f"{kind[0].value}[{','.join(map(str, shape))}]"
        for kind, shape in zip(kinds, shapes, strict=True)
    )


def rounded_seconds(seconds: float) -> float:
    """A time as a file says it: four digits."""
    return float(f"{seconds:.3e}")


def _seconds_text(seconds: float) -> str:
    assert 0 <= seconds < math.inf, f"{seconds} is no time"
    return to_text(Fraction(f"{seconds:.3e}"), Quantity.SECONDS)


_UNPRINTABLE = re.compile("[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def _json(value: Any) -> str:
    """JSON that is YAML, too: which does not join halves of a character, and has other line breaks."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./ ]*[A-Za-z0-9]|[0-9]+(\.[0-9]+)?[a-z]+")
_NOT_TEXT = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def _written(value: Any) -> str:
    """YAML of a mapping on one line; what might be read as something else is quoted."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, str) and not (_PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT):
        return _json(value)
    return str(value)
