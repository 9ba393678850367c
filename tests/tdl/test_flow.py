"""Where samples go through an op, and which ops mix them: by formula, by enumeration, and by running every operator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_suite import examples
from planner import opdefs
from planner.errors import UnsupportedError
from planner.features.ops.cases.case import Case, Known, by_type, execute_case
from planner.features.ops.cases.examples import all_cases
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.tdl.builder import NodeView, TensorArg, op
from planner.tdl.flow import Flow, Track

STANDARD = opdefs.standard()
SAMPLES = 7
"""A prime that divides no other size here."""


def labels(shape: tuple[int, ...], track: Track) -> np.ndarray:
    """The sample that each element of a tensor belongs to."""
    along = np.arange(shape[track.dim]) // track.inner % SAMPLES
    return np.broadcast_to(along.reshape([-1 if dim == track.dim else 1 for dim in range(len(shape))]), shape)


def tracks_in(shape: tuple[int, ...]) -> Iterator[Track]:
    for dim, size in enumerate(shape):
        rest = size // SAMPLES
        yield from (Track(dim, rest // inner, inner) for inner in range(1, rest + 1) if size == rest * SAMPLES
                    and rest % inner == 0)  # fmt: skip


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], Track, tuple[int, ...]]:
    """A shape with samples, and another of as many elements."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=3))
    dim = draw(st.integers(0, len(sizes)))
    track = Track(dim, draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 3])))
    before = (*sizes[:dim], track.size(SAMPLES), *sizes[dim:])
    primes = [factor for factor in (2, 3, 7) for _ in range(10) if math.prod(before) % factor == 0]
    left, after = math.prod(before), list[int]()
    while left > 1:
        size = math.prod(draw(st.lists(st.sampled_from(primes), min_size=1, max_size=3)))
        after.append(math.gcd(size, left))
        left //= after[-1]
    return before, track, tuple(after)


@given(reshapes())
@examples(100)
def test_a_reshape_by_enumeration(case: tuple[tuple[int, ...], Track, tuple[int, ...]]) -> None:
    """The place that is found is where the samples' elements are; where it is refused, there is none."""
    before, track, after = case
    tensors = {"x": Tensor("x", before, DType.FLOAT32), "y": Tensor("y", after, DType.FLOAT32)}
    reshape = Op("reshape", "Reshape", ("x",), ("y",))
    graph = Graph("case", tensors, (reshape,), ("x",), ("y",), {})
    wanted = labels(before, track).reshape(after)
    fitting = [place for place in tracks_in(after) if np.array_equal(labels(after, place), wanted)]
    try:
        place = Flow(graph, STANDARD, SAMPLES).through(reshape, {"x": track}).outputs[0]
    except UnsupportedError:
        # Samples that are merged with dims before them, which are grouped anew, are not followed.
        assert all(track.outer > 1 or place.outer > 1 for place in fitting)
    else:
        assert place in fitting


FIRST_CASES = [case for cases in by_type(all_cases()).values() for case in cases[:1]]


@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_samples_that_pass_are_computed_alone(case: Case) -> None:
    """Along every dim of the first input: with another sample 0, the other samples of the results are as they were."""
    graph, arrays, results = execute_case(case)
    (node,) = graph.ops
    assert arrays or not any(name in graph.inputs for name in node.inputs)
    feeds = {**graph.constants, **arrays}
    for name, array in arrays.items():
        for dim, size in enumerate(array.shape):
            try:
                places = Flow(graph, STANDARD, size).through(node, {name: Track(dim)}).after(node)
            except UnsupportedError:
                continue
            changed = array.copy()
            np.moveaxis(changed, dim, 0)[0] = np.take(array, min(1, size - 1), dim)
            drawn = {**feeds, name: changed}
            known = tuple(Known(drawn[name], name in graph.constants) if name else None for name in node.inputs)
            again = execute_case(replace(case, operands=known))[2]
            for output, place in places.items():
                others = np.arange(results[output].shape[place.dim]) // place.inner % size != 0
                np.testing.assert_array_equal(
                    *(np.compress(others, value[output], place.dim) for value in (results, again)), f"{name} {dim}"
                )


def places(node: Op, shapes: dict[str, tuple[int, ...]], **tracks: Track) -> tuple[Track | None, ...] | str:
    """The places in the results, or the words of the refusal."""
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    graph = Graph("case", tensors, (node,), tuple(shapes), (), {})
    try:
        return Flow(graph, opdefs.standard(mine), SAMPLES).through(node, tracks).outputs
    except UnsupportedError as error:
        return error.what.split("): ")[1]


@op("Mine", domain="mine")
def mine(node: NodeView, X: TensorArg) -> object:
    return lambda i, j: X[j, i] + X[j, 0]


def test_words_by_hand() -> None:
    x, y = {"x": (SAMPLES, 6)}, {"y": (SAMPLES, 6)}
    relu, unknown = Op("relu", "Relu", ("x",), ("y",)), Op("odd", "Odd", ("x",), ("y",), (), "mine")
    assert places(relu, x | y, x=Track(0)) == (Track(0),)
    assert places(unknown, x | y, x=Track(0)) == "samples cannot be followed through this operator"
    merged = {"x": (6 * SAMPLES, 4), "y": (6 * SAMPLES, 4)}
    assert places(relu, merged, x=Track(0, 2, 3)) == (Track(0, 2, 3),)
    product = Op("product", "MatMul", ("x", "z"), ("y",))
    shapes = {"x": (SAMPLES, 6), "z": (6, SAMPLES), "y": (SAMPLES, SAMPLES)}
    assert places(product, shapes, x=Track(0)) == (Track(0),)
    assert places(product, shapes, z=Track(1)) == (Track(1),)
    assert places(product, shapes, x=Track(0), z=Track(1)) == "its operands have the samples at different places"
    triangle = Op("triangle", "Trilu", ("x",), ("y",))
    assert places(triangle, x | y, x=Track(0)) == "it treats samples by their number"
    pool = Op("pool", "MaxPool", ("x",), ("y", "where"), (("kernel_shape", (2,)),))
    image = {"x": (SAMPLES, 3, 4), "y": (SAMPLES, 3, 3)}
    assert places(pool, image | {"where": (SAMPLES, 3, 3)}, x=Track(0)) == "it treats samples by their number"
    assert places(pool.renamed({"where": ""}), image, x=Track(0)) == (Track(0), None)


def test_a_description_of_the_users_own() -> None:
    """Nothing but the description is needed."""
    node = Op("the op", "Mine", ("x",), ("y",), (), "mine")
    assert places(node, {"x": (SAMPLES, 6), "y": (6, SAMPLES)}, x=Track(0)) == (Track(1),)
    assert places(node, {"x": (6, SAMPLES), "y": (SAMPLES, 6)}, x=Track(1)) == "it picks among the samples"
