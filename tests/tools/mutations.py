"""Mutations of files as they come to strangers: bytes, fields of protobufs, values of JSON, lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from google.protobuf.message import Message
from onnx import ModelProto

INTEGERS = (0, 1, -1, 2, 3, 5, 7, 13, 14, 64, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
TEXTS = ("", "x", "\x00", "é", "../../etc/passwd", "x" * 3000, "\x1b[31m", "[conv1]", "NaN", "ai.onnx", "If", "Shape")
JSON_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 1.5, 10**30, "", "x", "S(0)/2", "R", [], {}, [[]], [1, 2], {"a": 1},
)  # fmt: skip


def of_bytes(rng: Random, content: bytes) -> bytes:
    """A few bytes changed, cut out, doubled or put in; or all from some place on cut off."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        if not data:
            break
        place, length = rng.randrange(len(data)), rng.choice((1, 1, 2, 8, 64))
        match rng.choice(("flip", "flip", "flip", "set", "cut", "double", "insert", "end")):
            case "flip":
                data[place] ^= 1 << rng.randrange(8)
            case "set":
                data[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case "cut":
                del data[place : place + length]
            case "double":
                data[place:place] = data[place : place + length]
            case "insert":
                data[place:place] = rng.randbytes(length)
            case "end":
                del data[place:]
    return bytes(data)


def of_text(rng: Random, text: str) -> str:
    """Lines that are gone, doubled or in another place, and values that are others."""
    lines = text.splitlines(keepends=True)
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(len(lines)) if lines else 0
        match rng.choice(("drop", "double", "move", "indent", "value", "bytes")):
            case "drop" if lines:
                del lines[place]
            case "double" if lines:
                lines.insert(place, lines[place])
            case "move" if lines:
                lines.insert(rng.randrange(len(lines)), lines.pop(place))
            case "indent" if lines:
                lines[place] = "  " + lines[place]
            case "value" if lines and ":" in lines[place]:
                key, _, _ = lines[place].partition(":")
                value = rng.choice((*map(str, INTEGERS), *TEXTS, "[]", "{}", "12GiB", "-3GB/s", "&a", "*a", "!!x 1"))
                lines[place] = f"{key}: {value}\n"
            case _:
                return of_bytes(rng, "".join(lines).encode()).decode("utf-8", "surrogateescape")
    return "".join(lines)


def of_json(rng: Random, text: str) -> str:
    """Values that are gone, of other kinds or in other places."""
    data = json.loads(text)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_json_places(data))
        if not places:
            break
        holder, key = rng.choice(places)
        match rng.choice(("other", "other", "drop", "swap", "rename", "number")):
            case "other":
                holder[key] = rng.choice(JSON_VALUES)
            case "drop":
                del holder[key]
            case "swap":
                other_holder, other_key = rng.choice(places)
                holder[key], other_holder[other_key] = other_holder[other_key], holder[key]
            case "rename" if isinstance(holder, dict):
                holder[rng.choice(TEXTS)] = holder.pop(key)
            case _:
                if isinstance(holder[key], int):
                    holder[key] += rng.choice((-1, 1, 2))
    try:
        return json.dumps(data, indent=1)
    except (ValueError, RecursionError):  # a swap can put a list into itself
        return "["


def _json_places(data: Any) -> Iterator[tuple[Any, Any]]:
    waiting, seen = [data], 0
    while waiting and seen < 20_000:
        value = waiting.pop()
        seen += 1
        pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in list(pairs):
            yield value, key
            waiting.append(inner)


def of_model(rng: Random, content: bytes) -> bytes:
    """A model with fields changed: dims, names, types, attributes, nodes, versions."""
    model = ModelProto.FromString(content)
    names = [name for node in model.graph.node for name in (*node.input, *node.output)]
    names += [tensor.name for tensor in model.graph.initializer]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        match rng.choice(("field", "field", "field", "field", "name", "name", "node", "op", "dim", "data")):
            case "name" if model.graph.node and names:
                node = rng.choice(model.graph.node)
                slots = rng.choice((node.input, node.output))
                if slots:
                    slots[rng.randrange(len(slots))] = rng.choice((*names, ""))
            case "node" if model.graph.node:
                _of_repeated(rng, model.graph.node)
            case "op" if model.graph.node:
                rng.choice(model.graph.node).op_type = rng.choice(model.graph.node).op_type
            case "dim" if model.graph.input:
                values = rng.choice((model.graph.input, model.graph.output, model.graph.value_info))
                dims = [dim for value in values for dim in value.type.tensor_type.shape.dim]
                if dims:
                    rng.choice(dims).dim_value = rng.choice(INTEGERS)
            case "data" if model.graph.initializer:
                tensor = rng.choice(model.graph.initializer)
                tensor.raw_data = of_bytes(rng, tensor.raw_data)
            case _:
                _of_field(rng, model, names)
    return model.SerializeToString(deterministic=True)


def _of_field(rng: Random, model: Message, names: list[str]) -> None:
    """A field of a message that is drawn on a way down from the model."""
    message = model
    for _ in range(rng.randrange(1, 8)):
        inner = [value for field, value in message.ListFields() if field.type == field.TYPE_MESSAGE]
        if not inner:
            break
        value = rng.choice(inner)
        if isinstance(value, Message):
            message = value
        elif len(value):
            message = rng.choice(value)
    fields = [field for field, _ in message.ListFields()] or list(message.DESCRIPTOR.fields)
    if rng.random() < 0.15:
        fields = list(message.DESCRIPTOR.fields)
    field = rng.choice(fields)
    value = getattr(message, field.name)
    if rng.random() < 0.15:
        message.ClearField(field.name)
    elif isinstance(value, Message):
        value.SetInParent()
    elif hasattr(value, "append") or hasattr(value, "add"):
        if len(value) and field.type != field.TYPE_MESSAGE and rng.random() < 0.6:
            value[rng.randrange(len(value))] = _scalar(rng, field, names)
        elif len(value):
            _of_repeated(rng, value)
        elif field.type != field.TYPE_MESSAGE:
            value.append(_scalar(rng, field, names))
        else:
            value.add()
    else:
        setattr(message, field.name, _scalar(rng, field, names))


def _of_repeated(rng: Random, values: Any) -> None:
    place = rng.randrange(len(values))
    match rng.choice(("drop", "double", "swap")):
        case "drop":
            del values[place]
        case "double":
            values.append(values[place])
        case "swap":
            order = list(values)
            other = rng.randrange(len(order))
            order[place], order[other] = order[other], order[place]
            kept = [type(value).FromString(value.SerializeToString()) if isinstance(value, Message) else value
                    for value in order]  # fmt: skip
            del values[:]
            values.extend(kept)


def _scalar(rng: Random, field: Any, names: list[str]) -> Any:
    if field.type == field.TYPE_STRING:
        return rng.choice((*TEXTS, *names[:50]))
    if field.type == field.TYPE_BYTES:
        return rng.choice((b"", b"\xff", b"SAME_UPPER", rng.randbytes(16)))
    if field.type == field.TYPE_ENUM:
        return rng.choice([value.number for value in field.enum_type.values])
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return rng.choice((0.0, -1.0, 1e38, float("nan"), float("inf")))
    if field.type == field.TYPE_BOOL:
        return rng.random() < 0.5
    number = rng.choice((*INTEGERS, rng.randrange(-4, 40)))
    if field.type in (field.TYPE_INT32, field.TYPE_SINT32, field.TYPE_SFIXED32):
        return max(-(2**31), min(number, 2**31 - 1))
    return max(0, number) if field.type in (field.TYPE_UINT32, field.TYPE_UINT64) else number
