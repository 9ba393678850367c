"""The verifier can fail: descriptions that are wrong on purpose are each caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner import opdefs
from planner.features.ops.cases.case import Case, Known, bind_case, ints, make
from planner.features.ops.strategies import Finding, Kind, enumerate_strategies, verify_strategy
from planner.features.ops.verification import verify_operator
from planner.opdefs.convolution import conv_local
from planner.opdefs.indexing import masked_lookup
from planner.opdefs.movement import concat, slice_local
from planner.partition import stepping
from planner.tdl.builder import Description, Max, NodeView, Opaque, Sum, TensorArg, call, match, op, over
from planner.tdl.descriptions import Descriptions
from planner.tdl.local import LocalNode, LocalOp, Part, same_op


@op("Conv", local=conv_local)
def conv_without_halo(node: NodeView, X: TensorArg, W: TensorArg) -> object:
    return lambda b, co, y0: Sum(lambda ci, k0: X.padded(0.0)[b, ci, y0] * W[co, ci, k0])


@op("Conv", local=lambda node, part: same_op(node, part))
def conv_with_the_pads_of_the_whole(node: NodeView, X: TensorArg, W: TensorArg) -> object:
    return lambda b, co, y0: Sum(lambda ci, k0: X.padded(0.0)[b, ci, y0 + k0 - 1] * W[co, ci, k0])


@op("Conv", local=conv_local)
def conv_off_by_one(node: NodeView, X: TensorArg, W: TensorArg) -> object:
    return lambda b, co, y0: Sum(lambda ci, k0: X.padded(0.0)[b, ci, y0 + k0] * W[co, ci, k0])


@op("ReduceMax")
def max_as_sum(node: NodeView, X: TensorArg, axes: TensorArg) -> object:
    return lambda i, j: Sum(lambda r: X[i, r])


@op("Slice", local=slice_local)
def slice_off_by_one(node: NodeView, X: TensorArg, *bounds: TensorArg) -> object:
    return lambda i: X[i + 2]


@op("Softmax")
def softmax_by_element(node: NodeView, X: TensorArg) -> object:
    return lambda i, j: X[i, j]


@op("CumSum")
def running_sum_by_element(node: NodeView, X: TensorArg, axis: TensorArg) -> object:
    return lambda i, j: X[i, j]


@op("Transpose")
def transpose_unturned(node: NodeView, X: TensorArg) -> object:
    return lambda i, j: X[i, j]


def bias_every_time(node: NodeView, part: Part) -> LocalOp:
    return LocalOp((LocalNode("Gemm", ("in0", "in1", "in2"), ("out0",)),))


@op("Gemm", local=bias_every_time)
def gemm_with_the_bias_inside(node: NodeView, A: TensorArg, B: TensorArg, C: TensorArg) -> object:
    return lambda m, n: Sum(lambda k: A[m, k] * B[k, n] + C[n])


@op("Gemm", local=bias_every_time)
def gemm_that_adds_a_bias_it_has_not(node: NodeView, A: TensorArg, B: TensorArg, C: TensorArg) -> object:
    return lambda m, n: Sum(lambda k: A[m, k] * B[k, n]) + C[n]


@op("LayerNormalization")
def statistics_that_forget_a_dim(node: NodeView, X: TensorArg, scale: TensorArg) -> object:
    return (
        lambda i, j: Opaque("rows")(X[i, :], scale[:])[j],
        over(("one", "two"), lambda *v: X[0, 0]),
    )


@op("Gather")
def lookup_by_the_indices_of_the_whole(node: NodeView, X: TensorArg, indices: TensorArg) -> object:
    return lambda i, d: Sum(lambda v: X[v, d] * match(indices[i], v))


@op("Gather", local=lambda node, part: masked_lookup(node, part, (0,), listed=False, after=1))
def lookup_joined_by_maximum(node: NodeView, X: TensorArg, indices: TensorArg) -> object:
    return lambda i, d: Max(lambda v: X[v, d] * match(indices[i], v))


def depth_of_the_part_only(node: NodeView, part: Part) -> LocalOp:
    depth = np.array(part.ranges["j"][1] - part.ranges["j"][0], dtype=np.int64)
    return LocalOp((LocalNode("OneHot", ("in0", "depth", "in2"), ("out0",)),), {"depth": depth})


@op("OneHot", local=depth_of_the_part_only)
def one_hot_by_the_indices_of_the_whole(
    node: NodeView, indices: TensorArg, depth: TensorArg, values: TensorArg
) -> object:
    return lambda i, j: call("OneHot", match(indices[i], j), values[:])


def scattered(node: NodeView, part: Part) -> LocalOp:
    return LocalOp((LocalNode("ScatterElements", ("in0", "in1", "in2"), ("out0",), dict(node.op.attributes)),))


@op("ScatterElements", local=scattered)
def sums_scattered_into_the_data_every_time(
    node: NodeView, X: TensorArg, indices: TensorArg, updates: TensorArg
) -> object:
    return lambda i: Sum(lambda u: X[i] + match(indices[u], i) * updates[u])


ROWS = Known(np.array([5, 0, 3, 2]), constant=False)
ON_AND_OFF = Known(np.array([0.5, -2.0], dtype=np.float32))
SIX = Known(np.array(6, dtype=np.int64))
CONV = make("Conv", (2, 3, 8), (4, 3, 3), pads=(1, 1))
CONTROLS: list[tuple[Description, Case, str, Kind]] = [
    (conv_without_halo, make("Conv", (2, 3, 9), (4, 3, 3), pads=(1, 1)), "y0", Kind.SHAPE),
    (conv_with_the_pads_of_the_whole, CONV, "y0", Kind.SHAPE),
    (conv_off_by_one, CONV, "y0", Kind.DIFFERENT),
    (max_as_sum, make("ReduceMax", (4, 6), ints(1)), "r", Kind.DIFFERENT),
    (slice_off_by_one, make("Slice", (9,), ints(1), ints(7)), "i", Kind.DIFFERENT),
    (softmax_by_element, make("Softmax", (4, 6)), "j", Kind.DIFFERENT),
    (running_sum_by_element, make("CumSum", (4, 6), ints(1)), "j", Kind.DIFFERENT),
    (transpose_unturned, make("Transpose", (6, 6)), "i", Kind.SHAPE),
    (gemm_with_the_bias_inside, make("Gemm", (4, 6), (6, 5), (5,)), "k", Kind.DIFFERENT),
    (gemm_that_adds_a_bias_it_has_not, make("Gemm", (4, 6), (6, 5), (5,)), "k", Kind.FAILED),
    (lookup_by_the_indices_of_the_whole, make("Gather", (6, 5), ROWS), "v", Kind.FAILED),
    (lookup_joined_by_maximum, make("Gather", (6, 5), ROWS), "v", Kind.DIFFERENT),
    (one_hot_by_the_indices_of_the_whole, make("OneHot", ROWS, SIX, ON_AND_OFF), "j", Kind.DIFFERENT),
    (
        sums_scattered_into_the_data_every_time,
        make("ScatterElements", (6,), ROWS, (4,), reduction="add"),
        "u",
        Kind.DIFFERENT,
    ),
    (statistics_that_forget_a_dim, make("LayerNormalization", (4, 6), (6,), outputs=2), "i", Kind.SHAPE),
]


def findings(description: Description, case: Case, variable: str, ways: int) -> tuple[Finding, ...]:
    bound, inputs, whole = bind_case(case, Descriptions([description]))
    chosen = [c for c in enumerate_strategies(bound, ways) if c.text.startswith(variable)]
    assert chosen, f"{variable} cannot be cut"
    return verify_strategy(bound, chosen[0].strategy, inputs, whole=whole).findings


@pytest.mark.parametrize("ways", [2, 3])
@pytest.mark.parametrize(
    ("description", "case", "variable", "kind"), CONTROLS, ids=[c[0].function.__name__ for c in CONTROLS]
)
def test_a_wrong_description_is_caught(
    description: Description, case: Case, variable: str, kind: Kind, ways: int
) -> None:
    assert kind in {finding.kind for finding in findings(description, case, variable, ways)}


def test_a_term_that_the_op_needs_is_never_left_out_in_silence() -> None:
    @op("Gemm")
    def gemm(node: NodeView, A: TensorArg, B: TensorArg, C: TensorArg) -> object:
        return lambda m, n: Sum(lambda k: A[m, k] * B[k, n]) + C[n]

    bound, _, _ = bind_case(make("Gemm", (4, 6), (6, 5), (5,)), Descriptions([gemm]))
    vetoes = {candidate.text: candidate.veto for candidate in enumerate_strategies(bound, 2)}
    assert "input 2 of Gemm is not read by this part" in vetoes["k/2"]
    assert vetoes["m/2"] == vetoes["n/2"] == ""


def extreme_of_the_part(node: NodeView, part: Part) -> LocalOp:
    return LocalOp(
        (
            LocalNode("Slice", ("in0", "from", "to", "axis"), ("out0",)),
            LocalNode("ReduceMax", ("in0",), ("extreme",)),
            LocalNode("Expand", ("extreme", "shape"), ("out1",)),
        ),
        {"from": np.array([0]), "to": np.array([3]), "axis": np.array([1]), "shape": np.array([4, 3])},
    )


def test_workers_that_disagree_are_found() -> None:
    # Both workers make all of the second output, each from its own rows.
    @op("Split", local=extreme_of_the_part)
    def split(node: NodeView, X: TensorArg) -> object:
        return over(("i", "j"), lambda i, j: Opaque("row")(X[i, :])[j]), over(("u", "v"), lambda u, v: 0.0)

    case = make("Split", (4, 6), axis=1, num_outputs=2, outputs=2)
    assert [finding.kind for finding in findings(split, case, "i", 2)] == [Kind.DISAGREE, Kind.DIFFERENT]


def test_strategies_are_named_by_index_variables() -> None:
    bound, _, _ = bind_case(make("Reshape", (4, 16), ints(64)), opdefs.standard())
    assert [candidate.text for candidate in enumerate_strategies(bound, 3)] == ["i0/3", "i0,block 16/3"]
    assert [candidate.text for candidate in enumerate_strategies(bound, 2)] == ["i0/2"]  # block 16 cuts it alike


def test_a_refusal_that_no_rule_states_is_a_mistake() -> None:
    ruleless, cases = Descriptions((replace(concat, local=None),)), [make("Concat", (4, 6), (4, 6), axis=0)]
    wrong = verify_operator("Concat", cases, ruleless, ways=[(2,)]).wrong
    assert any("no local op: input 1 of Concat is not read by this part" in text for text in wrong)
    found = verify_operator("DepthToSpace", [make("DepthToSpace", (1, 8, 2, 3), blocksize=2)], opdefs.standard())
    assert (found.wrong, found.veto_reason) == ((), "a part of DepthToSpace holds whole blocks")


def test_steps_of_which_one_is_done_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    split = stepping._split
    monkeypatch.setattr(stepping, "_split", lambda *given: [split(*given)[0]] * len(split(*given)))
    found = verify_operator("MatMul", [make("MatMul", (4, 6), (6, 4))], opdefs.standard(), ways=[(2,)])
    assert found.stepped >= 6
    assert all(" in 2 steps along " in text for text in found.wrong)
    assert any("k/2 in 2 steps along k" in text for text in found.wrong)
    monkeypatch.undo()
    assert verify_operator("MatMul", [make("MatMul", (4, 6), (6, 4))], opdefs.standard(), ways=[(2,)]).wrong == ()
