"""A Fetch as an ONNX node, and back."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import NodeProto

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.fetch_node import decode_fetch, encode_fetch, is_fetch
from planner.artifacts.program import Buffer, Fetch, Piece, Source
from planner.errors import ModelError
from planner.graph.core.model import DType

names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
sizes = st.integers(0, 2**40)


@st.composite
def regions(draw: st.DrawFn, rank: int) -> Region:
    lo = tuple(draw(sizes) for _ in range(rank))
    return Region(lo, tuple(start + draw(st.integers(1, 100)) for start in lo))


@st.composite
def fetches(draw: st.DrawFn) -> tuple[Fetch, Buffer]:
    rank = draw(st.integers(1, 5))
    sources = st.lists(st.builds(Source, st.integers(0, 99), names), min_size=1, max_size=4).map(tuple)
    pieces = draw(st.lists(st.builds(Piece, regions(rank), sources), max_size=5))
    region = reduce(Region.hull, (piece.region for piece in pieces)) if pieces else draw(regions(rank))
    target = Buffer(draw(names), draw(names), region, (), DType.FLOAT32)
    reducer = draw(st.sampled_from([None, *Reducer]))
    return Fetch(draw(names), target.name, tuple(pieces), reducer, draw(sizes)), target


@given(fetches(), st.integers(0, 99))
def test_round_trip(case: tuple[Fetch, Buffer], worker: int) -> None:
    fetch, target = case
    node = NodeProto.FromString(encode_fetch(fetch, worker, target).SerializeToString())
    assert is_fetch(node)
    assert decode_fetch(node) == fetch
    own = {source.buffer for piece in fetch.pieces for source in piece.sources if source.worker == worker}
    assert set(node.input) == own
    assert len(node.input) == len(own)
    assert list(node.output) == [target.name]


def _node() -> NodeProto:
    region = Region((0,), (4,))
    fetch = Fetch("f", "t", (Piece(region, (Source(1, "s"),)),), Reducer.SUM, 16)
    return encode_fetch(fetch, 0, Buffer("t", "T", region, (4,), DType.FLOAT32))


def test_a_missing_attribute_is_named() -> None:
    node = _node()
    kept = [attribute for attribute in node.attribute if attribute.name not in ("counts", "bytes")]
    del node.attribute[:]
    node.attribute.extend(kept)
    with pytest.raises(ModelError, match=r"node 'f' \(Fetch\) lacks counts, bytes"):
        decode_fetch(node)


@pytest.mark.parametrize("name", ["region", "pieces", "counts", "workers"])
def test_attributes_that_do_not_agree(name: str) -> None:
    node = _node()
    (attribute,) = [attribute for attribute in node.attribute if attribute.name == name]
    attribute.ints.append(1)
    with pytest.raises(ModelError, match="do not agree"):
        decode_fetch(node)


def test_an_unknown_reducer() -> None:
    node = _node()
    (attribute,) = [attribute for attribute in node.attribute if attribute.name == "reducer"]
    attribute.s = b"Mean"
    with pytest.raises(ModelError, match="names no reducer"):
        decode_fetch(node)


def test_a_buffer_whose_name_is_no_text() -> None:
    node = _node()
    next(attribute for attribute in node.attribute if attribute.name == "buffers").strings[0] = b"\xff"
    with pytest.raises(ModelError, match=r"node 'f' \(Fetch\) names a buffer that is not UTF-8"):
        decode_fetch(node)
