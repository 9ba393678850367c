"""A Fetch as an ONNX node: the one operator of our own.

    domain ``tofu``, op_type ``Fetch``, version 1; all regions in the coordinates of the whole tensor

    inputs            the buffers of this worker that it copies from, each once, in order of first use; may be none.
                      They are there so that a viewer draws the dependency: ``workers`` and ``buffers`` say it all.
    output            the buffer that it fills
    tensor   string   the model's tensor that it assembles a part of
    region   ints     the target's box: the low corner, then the high one (2 x rank numbers)
    pieces   ints     the boxes of the pieces, one after the other, each written as ``region`` is
    counts   ints     how many sources each piece has
    workers  ints     the workers of the sources, piece by piece
    buffers  strings  the buffers of the sources, piece by piece
    reducer  string   Sum, Max, Min or Prod; absent where every piece has one source
    bytes    int      what it takes from other workers

The form is lossless: ``decode_fetch`` of an encoded fetch is the fetch.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, Final

from onnx import AttributeProto, NodeProto

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Buffer, Fetch, Piece, Source
from planner.errors import ModelError

DOMAIN: Final = "tofu"
OP_TYPE: Final = "Fetch"
VERSION: Final = 1

_TYPES: Final = {
    "tensor": AttributeProto.STRING,
    "region": AttributeProto.INTS,
    "pieces": AttributeProto.INTS,
    "counts": AttributeProto.INTS,
    "workers": AttributeProto.INTS,
    "buffers": AttributeProto.STRINGS,
    "bytes": AttributeProto.INT,
}


def is_fetch(node: NodeProto) -> bool:
    """True if the node is a Fetch of any version."""
    return node.domain == DOMAIN and node.op_type == OP_TYPE


def encode_fetch(fetch: Fetch, worker: int, target: Buffer) -> NodeProto:
    """The node of a fetch; ``decode_fetch`` of it is the fetch again.

    Args:
        fetch: what is assembled.
        worker: the worker that assembles it.
        target: the buffer that it fills.
    """
    assert fetch.target == target.name, f"fetch {fetch.name!r} fills {fetch.target!r}, not {target.name!r}"
    sources = [source for piece in fetch.pieces for source in piece.sources]
    local_buffers = dict.fromkeys([source.buffer for source in sources if source.worker == worker])
    node = NodeProto(name=fetch.name, domain=DOMAIN, op_type=OP_TYPE, input=local_buffers, output=[fetch.target])
    attributes = [
        _text("tensor", target.tensor),
        _numbers("region", _corners(target.region)),
        _numbers("pieces", tuple([number for piece in fetch.pieces for number in _corners(piece.region)])),
        _numbers("counts", tuple([len(piece.sources) for piece in fetch.pieces])),
        _numbers("workers", tuple([source.worker for source in sources])),
        _texts("buffers", tuple([source.buffer for source in sources])),
        _number("bytes", fetch.predicted_bytes),
    ]
    if fetch.reducer is not None:
        attributes.append(_text("reducer", fetch.reducer.value))
    node.MergeFromString(b"".join(attributes))
    return node


# Most attributes are those of many fetches, on other workers or for equal ops, so their bytes are kept: what is parsed
# from several messages' bytes, one after the other, is these messages merged.
_MANY: Final = 1 << 14


@lru_cache(maxsize=_MANY)
def _text(name: str, value: str) -> bytes:
    return _bytes_of(AttributeProto(name=name, type=AttributeProto.STRING, s=value.encode()))


@lru_cache(maxsize=_MANY)
def _texts(name: str, values: tuple[str, ...]) -> bytes:
    strings = [value.encode() for value in values]
    return _bytes_of(AttributeProto(name=name, type=AttributeProto.STRINGS, strings=strings))


@lru_cache(maxsize=_MANY)
def _numbers(name: str, values: tuple[int, ...]) -> bytes:
    return _bytes_of(AttributeProto(name=name, type=AttributeProto.INTS, ints=values))


@lru_cache(maxsize=_MANY)
def _number(name: str, value: int) -> bytes:
    return _bytes_of(AttributeProto(name=name, type=AttributeProto.INT, i=value))


def _bytes_of(attribute: AttributeProto) -> bytes:
    """Of a node that has just this attribute."""
    content: bytes = NodeProto(attribute=[attribute]).SerializeToString(deterministic=True)
    return content


def decode_fetch(node: NodeProto, seen: dict[Hashable, Any] | None = None) -> Fetch:
    """The fetch of a node.

    Args:
        node: of a worker's model.
        seen: pieces of other fetches; one that this fetch has, too, is then one object.

    Raises:
        ModelError: an attribute is missing, of a wrong type, or does not agree with the others.
    """
    where = f"node {node.name!r} (Fetch)"
    attributes = {attribute.name: attribute for attribute in node.attribute}
    missing = [name for name, kind in _TYPES.items() if name not in attributes or attributes[name].type != kind]
    if missing:
        raise ModelError(f"{where} lacks {', '.join(missing)}", hint="plan the model again with this version of tofu")
    region, boxes, counts, workers = (list(attributes[name].ints) for name in ("region", "pieces", "counts", "workers"))
    try:
        buffers = [sys.intern(name.decode()) for name in attributes["buffers"].strings]
    except UnicodeDecodeError:
        raise ModelError(f"{where} names a buffer that is not UTF-8", hint="plan the model again") from None
    rank = len(region) // 2
    hull = [(max if bound >= rank else min)(boxes[bound :: 2 * rank], default=0) for bound in range(2 * rank)]
    are_counted = len(boxes) == 2 * rank * len(counts) and len(workers) == len(buffers) == sum(counts)
    # Pieces divide the region.
    if len(node.output) != 1 or not are_counted or (boxes and region != hull):
        raise ModelError(f"{where} has attributes that do not agree", hint="plan the model again")
    seen = {} if seen is None else seen
    pieces: list[Piece] = []
    first = 0
    for number, count in enumerate(counts):
        last = first + count
        corners = boxes[2 * rank * number : 2 * rank * (number + 1)]
        key = tuple(corners), tuple(workers[first:last]), tuple(buffers[first:last])
        if key not in seen:
            seen[key] = Piece(region_of(corners), tuple(map(Source, *key[1:])))
        pieces.append(seen[key])
        first = last
    return Fetch(
        sys.intern(node.name),
        sys.intern(node.output[0]),
        tuple(pieces),
        _reducer(attributes.get("reducer"), where),
        attributes["bytes"].i,
    )


def region_of(corners: Sequence[int]) -> Region:
    """The box whose low corner and then high corner are given as numbers in a row."""
    rank = len(corners) // 2
    return Region(tuple(corners[:rank]), tuple(corners[rank:]))


def _corners(region: Region) -> tuple[int, ...]:
    return (*region.lo, *region.hi)


def _reducer(attribute: AttributeProto | None, where: str) -> Reducer | None:
    if attribute is None:
        return None
    try:
        return Reducer(attribute.s.decode())
    except ValueError:
        raise ModelError(f"{where} names no reducer", hint="Sum, Max, Min or Prod") from None
