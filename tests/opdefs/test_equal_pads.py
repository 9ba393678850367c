"""No worker executes a ConvTranspose with unequal pads, for which ONNX Runtime has no CUDA kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fast_suite import examples
from planner import opdefs
from planner.algebra.region import Region
from planner.algebra.tiling import Tiling
from planner.features.ops.cases.case import Case, Given, bind_case, make
from planner.features.ops.execute import ExecutionError
from planner.features.ops.strategies import enumerate_strategies, verify_strategy
from planner.opdefs.windows import Scattering
from planner.tdl.bind import BoundOp
from planner.tdl.local import LocalOp

DESCRIPTIONS = opdefs.standard()
WHOLE = Tiling((), ())


@st.composite
def transposed(draw: st.DrawFn) -> Case:
    """A ConvTranspose whose pads are drawn one by one, in one or two dims."""
    rank = draw(st.integers(1, 2))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    kernel, strides, dilations, group = each(1, 4), each(1, 3), each(1, 2), draw(st.sampled_from([1, 1, 2]))
    operands = [Given((2, 2 * group, *each(2, 6))), Given((2 * group, 2, *kernel))]
    if draw(st.booleans()):
        operands.append(Given((2 * group,)))
    return make(
        "ConvTranspose", *operands, group=group, strides=strides, dilations=dilations, pads=(*each(0, 4), *each(0, 4)),
        output_padding=tuple(draw(st.integers(0, stride - 1)) for stride in strides),
    )  # fmt: skip


def parts(bound: BoundOp, strategy: Tiling) -> Iterator[LocalOp]:
    ranges = bound.ranges(strategy)
    reads = bound.reads(ranges)
    for worker in range(ranges.workers):
        yield bound.local_op(bound.part(ranges, reads, worker))


def check_pads(local: LocalOp) -> None:
    for node in local.nodes:
        if node.op_type == "ConvTranspose":
            pads, extra, strides = (node.attributes[name] for name in ("pads", "output_padding", "strides"))
            half = len(pads) // 2
            assert pads[:half] == pads[half:], node
            assert all(more < stride for more, stride in zip(extra, strides, strict=True)), node


@settings(examples(200), suppress_health_check=list(HealthCheck))
@given(case=transposed())
def test_whole_on_one_worker_to_the_bit(case: Case) -> None:
    try:
        bound, inputs, whole = bind_case(case, DESCRIPTIONS)
    except ExecutionError:
        assume(False)
    assume(whole[0].size)
    (local,) = parts(bound, WHOLE)
    check_pads(local)
    verdict = verify_strategy(bound, WHOLE, inputs, whole=whole)
    # Where some elements lead to nothing, fewer are multiplied at once, and the product may round otherwise.
    reads = bound.reads(bound.ranges(WHOLE))
    reads_all = all(read.boxes.region(0) == Region.whole(bound.node.input_shapes[slot]) for slot, read in reads.items())
    assert not verdict.is_wrong, f"{case}: {verdict.findings}"
    assert verdict.bit_equal or not reads_all, str(case)


@settings(examples(100), suppress_health_check=list(HealthCheck))
@given(case=transposed(), ways=st.sampled_from([(2,), (3,), (2, 2)]))
def test_parts(case: Case, ways: tuple[int, ...]) -> None:
    try:
        bound, inputs, whole = bind_case(case, DESCRIPTIONS)
    except ExecutionError:
        assume(False)
    assume(whole[0].size)
    candidates = enumerate_strategies(bound, *ways)
    assume(candidates)  # no dim may be long enough for so many ways
    assert candidates
    for candidate in candidates:
        if not candidate.veto:
            for local in parts(bound, candidate.strategy):
                check_pads(local)
        verdict = verify_strategy(bound, candidate.strategy, inputs, whole=whole)
        assert not verdict.is_wrong, f"{case}: {verdict.text}: {verdict.findings}"


@pytest.mark.parametrize(
    ("before", "after", "stride", "expected"),
    [
        (1, 1, 2, Scattering(1, 0, (0, 0), (0, 0))),
        (1, 0, 2, Scattering(1, 1, (0, 0), (0, 0))),
        (0, -1, 2, Scattering(0, 1, (0, 0), (0, 0))),
        (1, -1, 2, Scattering(0, 1, (1, 0), (0, 0))),
        (3, 0, 2, Scattering(0, 0, (3, 0), (0, 0))),
        (0, 2, 2, Scattering(0, 0, (0, 2), (0, 0))),
        (1, 0, 1, Scattering(0, 0, (1, 0), (0, 0))),
        (-2, -3, 2, Scattering(0, 0, (0, 0), (2, 3))),
    ],
)
def test_forms(before: int, after: int, stride: int, expected: Scattering) -> None:
    assert Scattering.of(before, after, stride) == expected
