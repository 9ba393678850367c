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

from collections.abc import Sequence
from typing import Final

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
    here = dict.fromkeys([source.buffer for source in sources if source.worker == worker])
    node = NodeProto(name=fetch.name, domain=DOMAIN, op_type=OP_TYPE, input=list(here), output=[fetch.target])
    numbers = {
        "region": _corners(target.region),
        "pieces": [number for piece in fetch.pieces for number in _corners(piece.region)],
        "counts": [len(piece.sources) for piece in fetch.pieces],
        "workers": [source.worker for source in sources],
    }
    # Attributes are made in place: onnx.helper would look at every number, and there are thousands of fetches.
    add = node.attribute.add
    add(name="tensor", type=AttributeProto.STRING, s=target.tensor.encode())
    for name, values in numbers.items():
        add(name=name, type=AttributeProto.INTS, ints=values)
    add(name="buffers", type=AttributeProto.STRINGS, strings=[source.buffer.encode() for source in sources])
    add(name="bytes", type=AttributeProto.INT, i=fetch.predicted_bytes)
    if fetch.reducer is not None:
        add(name="reducer", type=AttributeProto.STRING, s=fetch.reducer.value.encode())
    return node


def decode_fetch(node: NodeProto) -> Fetch:
    """The fetch of a node.

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
        buffers = [name.decode() for name in attributes["buffers"].strings]
    except UnicodeDecodeError:
        raise ModelError(f"{where} names a buffer that is not UTF-8", hint="plan the model again") from None
    rank = len(region) // 2
    if len(node.output) != 1 or len(boxes) != 2 * rank * len(counts) or not len(workers) == len(buffers) == sum(counts):
        raise ModelError(f"{where} has attributes that do not agree", hint="plan the model again")
    pieces = []
    first = 0
    for number, count in enumerate(counts):
        corners = boxes[2 * rank * number : 2 * rank * (number + 1)]
        sources = zip(workers[first : first + count], buffers[first : first + count], strict=True)
        pieces.append(Piece(region_of(corners), tuple(Source(worker, buffer) for worker, buffer in sources)))
        first += count
    return Fetch(
        node.name, node.output[0], tuple(pieces), _reducer(attributes.get("reducer"), where), attributes["bytes"].i
    )


def region_of(corners: Sequence[int]) -> Region:
    """The box whose low corner and then high corner are given as numbers in a row."""
    rank = len(corners) // 2
    return Region(tuple(corners[:rank]), tuple(corners[rank:]))


def _corners(region: Region) -> list[int]:
    return [*region.lo, *region.hi]


def _reducer(attribute: AttributeProto | None, where: str) -> Reducer | None:
    if attribute is None:
        return None
    try:
        return Reducer(attribute.s.decode())
    except ValueError:
        raise ModelError(f"{where} names no reducer", hint="Sum, Max, Min or Prod") from None
