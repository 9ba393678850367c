"""GridSample, RoiAlign and DeformConv written out: the runtime's kernels, and differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper

from drawn import random
from fast_suite import examples
from planner.errors import UnsupportedError

node = helper.make_node


def grid_away_from_kinks(sizes, places, aligned, seed):
    """Places of which none is close to the middle of an element, a border, or halfway between two."""
    rng = np.random.default_rng(seed)
    columns = []
    for size in sizes:
        eighths = 8 * rng.integers(-size, 2 * size, (2, *places)) + rng.choice([1, 3, 5, 7], (2, *places))
        at = eighths / 8 + 0.01 * rng.random((2, *places))
        columns.append(2 * at / (size - 1) - 1 if aligned else (2 * at + 1) / size - 1)
    return np.stack(columns[::-1], axis=-1)


@examples(25)
@given(
    mode=st.sampled_from(["linear", "nearest", "cubic"]),
    padding=st.sampled_from(["zeros", "border", "reflection"]),
    aligned=st.booleans(),
    sizes=st.lists(st.integers(2, 5), min_size=2, max_size=3),
    seed=st.integers(0, 1000),
)
def test_grid_sample(mode, padding, aligned, sizes, seed, check_written, forward_model):
    assume(mode != "cubic" or len(sizes) == 2)  # the runtime has no cubic kernel of three dims
    places = (3, 2) if len(sizes) == 2 else (2, 1, 3)
    parameters, constants = {"x": random((2, 2, *sizes), seed)}, {}
    # What is nearest does not change with the place.
    (constants if mode == "nearest" else parameters)["g"] = grid_away_from_kinks(sizes, places, aligned, seed)
    nodes = [node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding, align_corners=int(aligned))]
    check_written(forward_model(nodes, parameters, constants=constants, opset=20), tolerance=1e-5)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_the_names_of_older_modes(mode, check_written, forward_model):
    constants = {"g": grid_away_from_kinks((4, 5), (2, 2), False, 3)}
    nodes = [node("GridSample", ["x", "g"], ["y"], mode=mode)]
    check_written(forward_model(nodes, {"x": random((2, 3, 4, 5))}, constants=constants, opset=16))


def test_a_single_element(check_written, forward_model):
    for padding in ("zeros", "border", "reflection"):
        nodes = [node("GridSample", ["x", "g"], ["y"], padding_mode=padding, align_corners=1)]
        check_written(forward_model(nodes, {"x": random((1, 2, 1, 1))}, constants={"g": random((1, 2, 2, 2), 3)}))


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("sizes", [(3, 4), (2, 3, 4)])
def test_affine_grid(aligned, sizes, check_written, forward_model):
    rank = len(sizes)
    nodes = [node("AffineGrid", ["theta", "size"], ["y"], align_corners=aligned)]
    forward = forward_model(nodes, {"theta": random((2, rank, rank + 1))}, constants={"size": np.array([2, 3, *sizes])})
    check_written(forward)


def test_a_spatial_transformer(check_written, forward_model):
    """A grid by AffineGrid, and the image read by it (Jaderberg et al. 2015)."""
    nodes = [
        node("AffineGrid", ["theta", "size"], ["grid"], align_corners=0),
        node("GridSample", ["x", "grid"], ["y"], padding_mode="border"),
    ]
    theta = np.array([[[0.9, 0.2, 0.05], [-0.1, 1.1, -0.03]]] * 2)
    parameters = {"theta": theta, "x": random((2, 3, 5, 4))}
    forward = forward_model(nodes, parameters, constants={"size": np.array([2, 3, 5, 4])})
    check_written(forward, tolerance=1e-4)


@examples(48)
@given(
    mode=st.sampled_from(["avg", "max"]),
    transformation=st.sampled_from(["half_pixel", "output_half_pixel"]),
    ratio=st.integers(1, 3),
    bins=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    scale=st.sampled_from([1.0, 0.7]),
    moves=st.booleans(),
)
def test_roi_align(mode, transformation, ratio, bins, scale, moves, check_written, forward_model):
    regions = np.array([[0.2, 0.1, 4.3, 3.4], [1.3, 0.5, 6.2, 4.9], [-2.1, -3.2, 2.7, 9.4], [3.1, 2.2, 3.3, 2.1]])
    regions += 0.0173 * np.sqrt(np.arange(1, 17)).reshape(4, 4)  # so that no sample is at a kink
    attributes = {
        "mode": mode, "coordinate_transformation_mode": transformation, "sampling_ratio": ratio,
        "output_height": bins[0], "output_width": bins[1], "spatial_scale": scale,
    }  # fmt: skip
    parameters, constants = {"x": random((2, 3, 6, 5))}, {"b": np.array([0, 1, 1, 0])}
    (parameters if moves else constants)["r"] = regions
    nodes = [node("RoiAlign", ["x", "r", "b"], ["y"], **attributes)]
    check_written(forward_model(nodes, parameters, constants=constants), tolerance=1e-4)


def test_samples_that_depend_on_the_regions_are_refused(forward_model, check_gradients):
    nodes = [node("RoiAlign", ["x", "r", "b"], ["y"], name="roi", output_height=2, output_width=2)]
    forward = forward_model(nodes, {"x": random((1, 1, 4, 4))}, {"r": random((2, 4))}, {"b": np.array([0, 0])})
    with pytest.raises(UnsupportedError) as error:
        check_gradients(forward)
    assert "op 'roi' (RoiAlign): with sampling_ratio 0" in error.value.facts[0]
    assert "positive sampling_ratio" in error.value.hint


@examples(48)
@given(data=st.data())
def test_deform_conv(data, check_written, forward_model):
    group, parts = data.draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 4), (4, 2)]))
    kernel, strides, dilations, before, after, sizes = (
        [data.draw(st.integers(low, high)) for _ in range(2)]
        for low, high in ((1, 3), (1, 2), (1, 2), (0, 2), (0, 2), (3, 5))
    )
    rooms = [
        size + b + a - (k - 1) * d - 1 for size, b, a, k, d in zip(sizes, before, after, kernel, dilations, strict=True)
    ]
    assume(min(rooms) >= 0)
    places = [room // stride + 1 for room, stride in zip(rooms, strides, strict=True)]
    count = int(np.prod(kernel))
    rng = np.random.default_rng(2)
    offsets = (2, parts * count * 2, *places)
    parameters = {
        "x": random((2, 4, *sizes)), "w": random((4, 4 // group, *kernel), 3),
        "o": rng.integers(-2, 3, offsets) + rng.choice([-0.3, 0.2, 0.4], offsets),
    }  # fmt: skip
    names = ["x", "w", "o", "", ""]
    for position, name, shape in ((3, "b", (4,)), (4, "m", (2, parts * count, *places))):
        if data.draw(st.booleans()):
            names[position] = name
            parameters[name] = random(shape, position)
    while not names[-1]:
        names.pop()
    nodes = [
        node("DeformConv", names, ["y"], group=group, offset_group=parts, kernel_shape=kernel, strides=strides,
             dilations=dilations, pads=[*before, *after])
    ]  # fmt: skip
    check_written(forward_model(nodes, parameters), tolerance=1e-5)
