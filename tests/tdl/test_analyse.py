"""What the analysis says of descriptions: strategies, obstacles, terms read once, blocks; and the errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner import opdefs
from planner.algebra.region import Region
from planner.algebra.tiling import Reducer, Shard, Tiling
from planner.errors import DescriptionError, UnsupportedError
from planner.features.ops.cases.case import bind_case, ints, make
from planner.graph.core.model import DType, Graph, Op, Shape, Tensor
from planner.tdl.analyse import Variable
from planner.tdl.bind import BoundOp
from planner.tdl.builder import Description, Ix, Max, NodeView, Sum, TensorArg, Val, call, op, over
from planner.tdl.descriptions import Descriptions
from planner.tdl.expr import VarKind


def one_op(op_type: str, shapes: list[Shape], output: Shape, attributes: dict[str, object] | None = None) -> Graph:
    names = [f"x{number}" for number in range(len(shapes))]
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in zip(names, shapes, strict=True)}
    tensors["y"] = Tensor("y", output, DType.FLOAT32)
    given = tuple(sorted((attributes or {}).items()))
    node = Op("the op", op_type, tuple(names), ("y",), given)  # type: ignore[arg-type]
    return Graph("g", tensors, (node,), tuple(names), ("y",), {})


def bound(description: Description, shapes: list[Shape], output: Shape) -> BoundOp:
    graph = one_op(description.op_types[0], shapes, output)
    return Descriptions([description]).bind(graph.ops[0], graph)


def variables(bound_op: BoundOp) -> dict[str, Variable]:
    return {variable.name: variable for variable in bound_op.variables}


def standard(op_type: str, *operands: Shape, **attributes: object) -> BoundOp:
    return bind_case(make(op_type, *operands, **attributes), opdefs.standard())[0]  # type: ignore[arg-type]


def test_conv_has_output_and_reduction_strategies() -> None:
    found = variables(standard("Conv", (2, 3, 8, 8), (4, 3, 3, 3), pads=(1, 1, 1, 1)))
    assert [(v.name, v.kind, v.reducer, v.obstacle) for v in found.values()] == [
        *((name, VarKind.OUTPUT, None, "") for name in ("b", "co", "y0", "y1")),
        *((name, VarKind.REDUCTION, Reducer.SUM, "") for name in ("ci", "k0", "k1")),
    ]


def test_halo_of_a_convolution() -> None:
    conv = standard("Conv", (2, 3, 8, 8), (4, 3, 3, 3), pads=(1, 1, 1, 1))
    strategy = Tiling((Shard(2),), (2,))
    reads = conv.reads(conv.ranges(strategy))
    assert list(reads[0].boxes) == [Region((0, 0, 0, 0), (2, 3, 5, 8)), Region((0, 0, 3, 0), (2, 3, 8, 8))]
    assert reads[0].before.tolist() == [[0, 0, 1, 1], [0, 0, 0, 1]]
    assert reads[0].after.tolist() == [[0, 0, 0, 1], [0, 0, 1, 1]]


def test_a_convolution_of_1_x_1_reads_by_the_variables_of_the_image() -> None:
    names = ("b", "ci", "y0", "y1")
    one = standard("Conv", (2, 3, 8, 8), (4, 3, 1, 1))
    assert one.plain_read(0) == tuple(one.variable_number(name) for name in names)
    assert one.read_along(0) == {one.variable_number(name) for name in names}
    for other in (
        standard("Conv", (2, 3, 8, 8), (4, 3, 3, 3), pads=(1, 1, 1, 1)),
        standard("Conv", (2, 3, 8, 8), (4, 3, 1, 1), strides=(2, 2)),
    ):
        assert other.plain_read(0) is None


def test_a_term_outside_of_a_reduction_is_read_by_its_first_worker_only() -> None:
    gemm = standard("Gemm", (5, 6), (6, 4), (4,))
    cut = gemm.reads(gemm.ranges(Tiling((Shard(gemm.variable_number("k")),), (3,))))
    assert [region.elements for region in cut[2].boxes] == [4, 0, 0]
    whole = gemm.reads(gemm.ranges(Tiling((Shard(gemm.variable_number("m")),), (3,))))
    assert [region.elements for region in whole[2].boxes] == [4, 4, 4]


def test_an_idle_worker_executes_nothing() -> None:
    reshape = bind_case(make("Reshape", (2, 16), ints(32)), opdefs.standard())[0]
    ranges = reshape.ranges(Tiling((Shard(0, 16),), (3,)))
    reads = reshape.reads(ranges)
    assert reshape.local_op(reshape.part(ranges, reads, 1)).nodes
    assert reshape.local_op(reshape.part(ranges, reads, 2)).nodes == ()


def test_softmax_is_cut_on_rows_only() -> None:
    softmax = standard("Softmax", (4, 5, 6), axis=1)
    assert [variable.obstacle != "" for variable in softmax.variables] == [False, True, False]
    assert softmax.analysis.is_opaque
    assert not softmax.analysis.is_elementwise


def test_elementwise_is_known_even_where_it_broadcasts() -> None:
    assert standard("Add", (4, 6), (6,)).analysis.is_elementwise
    assert standard("Add", (5, 1, 7), (3, 1)).analysis.is_elementwise
    assert not standard("Transpose", (4, 6)).analysis.is_elementwise
    assert not standard("MatMul", (4, 6), (6, 2)).analysis.is_elementwise


def test_one_analysis_serves_all_sizes() -> None:
    descriptions = opdefs.standard()
    for size in (2, 3, 5, 64):
        for op_type, shapes, output in (
            ("MatMul", [(size, 7), (7, 3)], (size, 3)),
            ("Add", [(size, 7), (7,)], (size, 7)),
            ("Conv", [(size, 3, 9, 9), (4, 3, 3, 3)], (size, 4, 7, 7)),
            ("Softmax", [(size, 9)], (size, 9)),
        ):
            graph = one_op(op_type, list(shapes), output, {"kernel_shape": (3, 3)} if op_type == "Conv" else None)
            descriptions.bind(graph.ops[0], graph)
    assert descriptions.analyses_made == 4
    graph = one_op("Add", [(1, 7), (7,)], (1, 7))
    descriptions.bind(graph.ops[0], graph)
    assert descriptions.analyses_made == 5  # size 1 may be broadcast: another signature


def test_blocks_of_a_merge_and_of_a_split() -> None:
    # 4 heads of 16 merged into 64 and cut on 3 workers fall at 32/16/16, so that the Reshape reads boxes.
    merge = bind_case(make("Reshape", (2, 4, 16), ints(2, 64)), opdefs.standard())[0]
    assert [variable.blocks for variable in merge.variables] == [(), (16,)]
    pieces = merge.ranges(Tiling((Shard(1, 16),), (3,)))
    assert [region.shape[1] for region in pieces] == [32, 16, 16]
    reads = merge.reads(pieces)[0].boxes
    assert [region.elements for region in reads] == [64, 32, 32]  # nothing beyond what each makes
    uneven = merge.ranges(Tiling((Shard(1),), (3,)))
    assert sum(region.elements for region in merge.reads(uneven)[0].boxes) > 128

    split = bind_case(make("Reshape", (2, 64), ints(2, 4, 16)), opdefs.standard())[0]
    assert split.analysis.reads[0].blocks == ((), (16,))
    assert [region.shape[1] for region in split.reads(split.ranges(Tiling((Shard(1),), (3,))))[0].boxes] == [32, 16, 16]


def test_blocks_of_a_chain_and_of_groups() -> None:
    chain = bind_case(make("Reshape", (2, 3, 4), ints(24)), opdefs.standard())[0]
    assert chain.variables[0].blocks == (4, 12)
    grouped = variables(standard("Conv", (2, 4, 6, 6), (6, 2, 3, 3), group=2))
    assert grouped["co"].blocks == (3,)


def test_a_non_affine_index_names_the_description_and_its_line() -> None:
    @op("Skew")
    def skew(node: NodeView, X: TensorArg) -> object:
        return lambda i, j: X[i, i * j]

    line = Path(__file__).read_text().splitlines().index("        return lambda i, j: X[i, i * j]") + 1
    with pytest.raises(DescriptionError) as caught:
        bound(skew, [(4, 4)], (4, 4))
    assert str(caught.value) == (
        f"description of Skew (op the op), {__file__}:{line}: the product of two index variables is not affine"
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda X: lambda i, j: X[i], "input 0 has rank 2 and is read with 1 indices"),
        (lambda X: lambda i: X[i, i], "a lambda of 1 index variables"),
        (lambda X: lambda i, j: X[i, j / i], "divided by another"),
        (lambda X: lambda i, j: X[i, j // 0], "divided by a positive integer only"),
        (lambda X: lambda i, j: X[i, 1.5], "1.5 is not an index"),
        (lambda X: lambda i, j: X[i, j] if i == j else 0.0, "index variables cannot be compared"),
        (lambda X: lambda i, j: Sum(lambda k: X[i, 2 * k]), "how far reduction variable k runs is not known"),
        (lambda X: lambda i, j: Sum(lambda j: X[i, j]), "an output variable and a reduction variable at once"),
        (lambda X: lambda i, j: Sum(lambda *k: X[i, j]), r"how many index variables \*k stands for"),
    ],
)
def test_what_a_description_cannot_say(body: object, message: str) -> None:
    @op("Bad")
    def bad(node: NodeView, X: TensorArg) -> object:
        return body(X)  # type: ignore[operator]

    with pytest.raises(DescriptionError, match=message):
        bound(bad, [(4, 4)], (4, 4))


def test_nested_and_hidden_reductions() -> None:
    @op("Nested")
    def nested(node: NodeView, X: TensorArg) -> object:
        return lambda i: 2.0 * Sum(lambda j: Sum(lambda k: X[i, j, k]))

    found = variables(bound(nested, [(4, 5, 6)], (4,)))
    assert found["j"].reducer is found["k"].reducer is Reducer.SUM

    @op("Hidden")
    def hidden(node: NodeView, X: TensorArg) -> object:
        total = Sum(lambda j: X[0, j, 0])
        return lambda i: total * total

    assert variables(bound(hidden, [(4, 5, 6)], (4,)))["j"].obstacle == "its reduction is not the outermost operation"


def test_outputs_share_variables_by_name() -> None:
    @op("Two")
    def two(node: NodeView, X: TensorArg) -> object:
        return over(("i", "left"), lambda *v: X[v]), over(("i", "right"), lambda *v: X[v[0], v[1] + 2])

    graph = one_op("Two", [(4, 5)], (4, 2))
    tensors = {**graph.tensors, "z": Tensor("z", (4, 3), DType.FLOAT32)}
    node = Op("two", "Two", ("x0",), ("y", "z"))
    both = Descriptions([two]).bind(node, Graph("g", tensors, (node,), ("x0",), ("y", "z"), {}))
    assert [variable.name for variable in both.variables] == ["i", "left", "right"]
    assert both.extents == (4, 2, 3)


@pytest.mark.parametrize("second", ["root", "Max"])
def test_a_variable_is_joined_only_where_every_output_joins_it_so(second: str) -> None:
    """Of parts a sum is the whole's; its root, or a maximum of the same elements, is not to be added up."""

    @op("Two")
    def two(node: NodeView, X: TensorArg) -> object:
        def total(i: Ix) -> Val:
            return Sum(lambda k: X[i, k])

        return total, lambda i: call("root", total(i)) if second == "root" else Max(lambda k: X[i, k])

    graph = one_op("Two", [(4, 5)], (4,))
    tensors = {**graph.tensors, "z": Tensor("z", (4,), DType.FLOAT32)}
    node = Op("two", "Two", ("x0",), ("y", "z"))
    both = Descriptions([two]).bind(node, Graph("g", tensors, (node,), ("x0",), ("y", "z"), {}))
    found = variables(both)["k"]
    assert (found.reducer, found.obstacle) == (None, "its reduction is not the outermost operation")


def test_an_undescribed_operator_is_named_with_all_others() -> None:
    graph = one_op("Nonsense", [(4,)], (4,))
    with pytest.raises(UnsupportedError, match="Nonsense: 1 op: 'the op'"):
        opdefs.standard().bind_all(graph)


def test_an_operator_is_described_once() -> None:
    @op("Add")
    def mine(node: NodeView, A: TensorArg, B: TensorArg) -> object:
        return lambda *i: A[i]

    @op("Add")
    def yours(node: NodeView, A: TensorArg, B: TensorArg) -> object:
        return lambda *i: B[i]

    with pytest.raises(DescriptionError, match="operator Add is described twice"):
        Descriptions([mine, yours])


def test_a_constant_is_part_of_the_signature() -> None:
    descriptions = opdefs.standard()
    first = bind_case(make("Pad", (4, 5), ints(0, 1, 0, 0)), descriptions)[0]
    second = bind_case(make("Pad", (4, 5), ints(0, 2, 0, 0)), descriptions)[0]
    again = bind_case(make("Pad", (8, 5), ints(0, 2, 0, 0)), descriptions)[0]
    assert first.analysis != second.analysis
    assert again.analysis is second.analysis
    assert np.array_equal(first.node.constant(1), [0, 1, 0, 0])
