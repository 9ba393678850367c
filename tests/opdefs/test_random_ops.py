"""Window operators, reshapes, slices and lookups with attributes chosen at random, executed split and whole."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fast_suite import examples
from planner import opdefs
from planner.features.ops.cases.case import Case, Given, Known, Operand, bind_case, ints, make
from planner.features.ops.execute import ExecutionError
from planner.features.ops.strategies import enumerate_strategies, verify_strategy
from planner.graph.core.model import Attribute, Shape

DESCRIPTIONS = opdefs.standard()
FEW = settings(examples(100), suppress_health_check=list(HealthCheck))
MANY = settings(examples(600), suppress_health_check=list(HealthCheck))


def check(case: Case, *ways: int) -> None:
    try:
        bound, inputs, whole = bind_case(case, DESCRIPTIONS)
    except ExecutionError:
        assume(False)  # the runtime does not take these attributes
    assume(all(array.size for array in whole.values()))
    for candidate in enumerate_strategies(bound, *ways):
        verdict = verify_strategy(bound, candidate.strategy, inputs, whole=whole)
        assert not verdict.is_wrong, f"{case}: {verdict.text}: {verdict.findings}"


@st.composite
def windows(draw: st.DrawFn, op_type: str) -> Case:
    rank = draw(st.integers(1, 2))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    kernel, strides, dilations = each(1, 3), each(1, 4), each(1, 3)
    space = tuple(draw(st.integers(1, 9)) for _ in range(rank))
    attributes: dict[str, Attribute] = {"strides": strides, "dilations": dilations}
    operands: list[Operand] = []
    if op_type in ("Conv", "ConvTranspose"):
        attributes["pads"] = (*each(0, 3), *each(0, 3))
        group = draw(st.sampled_from([1, 1, 2, 3]))
        attributes["group"] = group
        inputs, outputs = group * draw(st.integers(1, 3)), group * draw(st.integers(1, 3))
        operands.append(Given((draw(st.integers(1, 3)), inputs, *space)))
        first, second = (outputs, inputs // group) if op_type == "Conv" else (inputs, outputs // group)
        operands.append(Given((first, second, *kernel)))
        if draw(st.booleans()):
            operands.append(Given((outputs,)))
        if op_type == "ConvTranspose":
            attributes["output_padding"] = tuple(draw(st.integers(0, stride - 1)) for stride in strides)
    else:
        attributes["pads"] = tuple(draw(st.integers(0, size - 1)) for size in kernel * 2)
        attributes["kernel_shape"] = kernel
        attributes["ceil_mode"] = draw(st.integers(0, 1))
        if op_type == "AveragePool":
            attributes["count_include_pad"] = draw(st.integers(0, 1))
        operands.append(Given((draw(st.integers(1, 3)), 2, *space)))
    if op_type != "ConvTranspose":
        pads: tuple[int, ...] = attributes["pads"]  # type: ignore[assignment]
        for dim, size in enumerate(space):  # a window beyond the padded input is no valid model, though it may run
            assume((kernel[dim] - 1) * dilations[dim] < size + pads[dim] + pads[dim + rank])
    return make(op_type, *operands, **attributes)  # type: ignore[arg-type]


@st.composite
def reshapes(draw: st.DrawFn) -> Case:
    factors = draw(st.lists(st.sampled_from([1, 2, 3, 4, 5]), min_size=1, max_size=5))

    def merged() -> Shape:
        cuts = [0, *sorted(draw(st.sets(st.integers(1, len(factors)), max_size=3))), len(factors)]
        return tuple(prod(factors[a:b]) for a, b in pairwise(cuts) if a < b)

    first = merged()
    if draw(st.booleans()):
        factors = draw(st.permutations(factors))
    return make("Reshape", first, ints(*merged()))


@st.composite
def slices(draw: st.DrawFn) -> Case:
    size = draw(st.integers(1, 12))
    bound = st.integers(-15, 15)
    step = draw(st.sampled_from([-3, -2, -1, 1, 2, 3]))
    return make("Slice", (3, size), ints(draw(bound)), ints(draw(bound)), ints(1), ints(step))


@st.composite
def paddings(draw: st.DrawFn) -> Case:
    pad = st.integers(-2, 5)
    return make("Pad", (draw(st.integers(3, 6)), draw(st.integers(4, 7))), ints(*(draw(pad) for _ in range(4))))


@st.composite
def lookups(draw: st.DrawFn) -> Case:
    op_type = draw(st.sampled_from(["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "OneHot"]))
    rows, columns, wanted = draw(st.integers(1, 9)), draw(st.integers(1, 5)), draw(st.integers(1, 7))
    seed = draw(st.integers(0, 2**16))

    def positions(*shape: int) -> Known:
        drawn = np.random.default_rng(seed).integers(-rows, rows, shape)
        return Known(drawn.astype(draw(st.sampled_from(["int64", "int32"]))), constant=draw(st.booleans()))

    reduction = draw(st.sampled_from(["add", "max", "min"]))
    match op_type:
        case "Gather":
            return make(op_type, (rows, columns), positions(wanted, 2))
        case "GatherElements":
            return make(op_type, (rows, columns), positions(wanted, columns))
        case "GatherND":
            return make(op_type, (rows, columns), Known(positions(wanted, 1).array.astype(np.int64), constant=False))
        case "ScatterElements":
            return make(op_type, (rows, columns), positions(wanted, columns), (wanted, columns), reduction=reduction)
        case "ScatterND":
            places = Known(positions(wanted, 1).array.astype(np.int64), constant=False)
            return make(op_type, (rows, columns), places, (wanted, columns), reduction=reduction)
    depth = Known(np.array(rows, dtype=np.int64))
    # The runtime has OneHot for indices of 64 bits, or of 32 with other types of depth.
    places = Known(positions(wanted).array.astype(np.int64), constant=False)
    return make("OneHot", places, depth, Known(np.array([0.5, -2.0], dtype=np.float32)))


WINDOWED = ["Conv", "ConvTranspose", "MaxPool", "AveragePool"]
WAYS = st.sampled_from([(2,), (3,), (4,), (2, 2), (2, 3)])


@pytest.mark.parametrize("op_type", WINDOWED)
@given(data=st.data(), ways=WAYS)
@FEW
def test_windows(op_type: str, data: st.DataObject, ways: tuple[int, ...]) -> None:
    check(data.draw(windows(op_type)), *ways)


@given(case=st.one_of(reshapes(), slices(), paddings(), lookups()), ways=WAYS)
@FEW
def test_movement(case: Case, ways: tuple[int, ...]) -> None:
    check(case, *ways)


@pytest.mark.slow
@pytest.mark.parametrize("op_type", WINDOWED)
@given(data=st.data(), ways=WAYS)
@MANY
def test_windows_at_length(op_type: str, data: st.DataObject, ways: tuple[int, ...]) -> None:
    check(data.draw(windows(op_type)), *ways)


@pytest.mark.slow
@given(case=st.one_of(reshapes(), slices(), paddings(), lookups()), ways=WAYS)
@MANY
def test_movement_at_length(case: Case, ways: tuple[int, ...]) -> None:
    check(case, *ways)
