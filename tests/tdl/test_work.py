"""What computing an op takes, by hand."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from planner import opdefs
from planner.algebra.region import Boxes
from planner.algebra.tiling import Tiling
from planner.cost.tables import CostTables
from planner.errors import DescriptionError
from planner.features.ops.cases.case import Case, Known, bind_case, make
from planner.graph.core.model import Attribute, DType, Graph, Op, Tensor
from planner.tdl.bind import BoundOp
from planner.tdl.builder import NodeView, Opaque, Sum, TensorArg, op
from planner.tdl.descriptions import Descriptions

DESCRIPTIONS = opdefs.standard()


def bound(case: Case, descriptions: Descriptions = DESCRIPTIONS) -> BoundOp:
    return bind_case(case, descriptions)[0]


def of_shapes(
    op_type: str,
    inputs: tuple[tuple[int, ...] | None, ...],
    outputs: tuple[tuple[int, ...], ...],
    domain: str = "",
    **attributes: Attribute,
) -> BoundOp:
    """An op that nobody executes, of any size; indices are whole numbers of rank 0 and 1."""
    tensors = {
        f"{kind}{number}": Tensor(f"{kind}{number}", shape, DType.INT32 if len(shape) < 2 else DType.FLOAT32)
        for kind, shapes in (("x", inputs), ("y", outputs))
        for number, shape in enumerate(shapes)
        if shape is not None
    }
    names = tuple("" if shape is None else f"x{number}" for number, shape in enumerate(inputs))
    made = tuple(f"y{number}" for number in range(len(outputs)))
    node = Op("it", op_type, names, made, tuple(sorted(attributes.items())), domain)
    graph = Graph("g", tensors, (node,), tuple(filter(None, names)), made, {}, opset=23)
    return DESCRIPTIONS.bind(node, graph)


def test_a_product_takes_a_product_and_an_addition_for_each_term() -> None:
    assert bound(make("MatMul", (4, 6), (6, 10))).flop == 2 * 4 * 6 * 10
    assert bound(make("Gemm", (4, 6), (6, 10), (10,))).flop == 2 * 4 * 6 * 10 + 4 * 10, "a bias is added once"


def test_each_part_takes_its_share() -> None:
    product = bound(make("MatMul", (4, 6), (6, 10)))
    for text, share in (("S(0)", 2), ("S(1)", 2), ("S(2)", 2), ("R", 1)):
        parts = product.operations(product.ranges(Tiling.parse(text, (2,))))
        assert parts.tolist() == [product.flop / share] * 2
    assert product.operations(product.ranges(Tiling.parse("S(0)", (5,)))).tolist()[-1] == 0, "one has nothing to do"


def test_what_moves_elements_computes_nothing() -> None:
    assert bound(make("Transpose", (3, 4))).flop == 0
    assert bound(make("Concat", (3, 4), (5, 4), axis=0)).flop <= 8 * 4


def test_a_stride_of_a_transposed_convolution_leaves_products_out() -> None:
    """3 x 3 over 8 x 8 positions: of nine products each is there at a quarter of the positions."""
    strided = bound(
        make("ConvTranspose", (1, 2, 4, 4), (2, 5, 3, 3), strides=(2, 2), output_padding=(1, 1), pads=(1,) * 4)
    )
    plain = bound(make("ConvTranspose", (1, 2, 4, 4), (2, 5, 3, 3), pads=(1,) * 4))
    assert strided.flop == 2 * (5 * 8 * 8) * (2 * 3 * 3) // 4
    assert plain.flop == 2 * (5 * 4 * 4) * (2 * 3 * 3)


def test_a_lookup_takes_as_much_whatever_the_table() -> None:
    """And each of those who share the table looks for all."""
    small, large = (
        bound(make("Gather", (rows, 5), Known(np.zeros(4, dtype=np.int64), constant=False))) for rows in (11, 1000)
    )
    assert small.flop == large.flop == 2 * 4 * 5
    assert large.operations(large.ranges(Tiling.parse("S(2)", (2,)))).tolist() == [40, 40]


def attention_work(samples: int, heads: int, queries: int, keys: int, size: int, value_size: int) -> int:
    """Scores, a weight of each, and the sum of the values."""
    return samples * heads * queries * keys * (2 * size + 1 + 2 * value_size)


@pytest.mark.parametrize("group", [1, 2])
def test_an_attention_takes_its_own_keys(group: int) -> None:
    shapes = ((2, 4, 6, 8), (2, 4 // group, 5, 8), (2, 4 // group, 5, 10))
    apart = of_shapes("Attention", shapes, ((2, 4, 6, 10),))
    assert apart.flop == attention_work(2, 4, 6, 5, 8, 10)
    beside = ((2, 6, 4 * 8), (2, 5, 4 // group * 8), (2, 5, 4 // group * 10))
    flat = of_shapes("Attention", beside, ((2, 6, 40),), q_num_heads=4, kv_num_heads=4 // group)
    assert flat.flop == apart.flop
    by_heads = flat.operations(flat.ranges(Tiling.parse(f"S({flat.variable_number('c')},10)", (2,))))
    assert by_heads.tolist() == [flat.flop / 2] * 2, "no score is made twice"


def test_the_scores_are_made_again_where_a_head_is_cut() -> None:
    own = of_shapes("Attention", ((2, 4, 6, 8), (2, 4, 5, 8), (2, 4, 5, 10)), ((2, 4, 6, 10),))
    parts = own.operations(own.ranges(Tiling.parse(f"S({own.variable_number('e')})", (2,))))
    assert parts.tolist() == [2 * 4 * 6 * 5 * (2 * 8 + 1 + 2 * 5)] * 2


def decoding(keys: int) -> BoundOp:
    """One query of 32 heads against a cache of 2 heads of keys, 128 elements each."""
    cache = (1, 2, keys, 128)
    inputs = ((1, 1, 32 * 128), (1, 1, 2 * 128), (1, 1, 2 * 128), cache, cache, (1,), ())
    made = ((1, 1, 32 * 128), cache, cache)
    return of_shapes("GroupQueryAttention", inputs, made, "com.microsoft", num_heads=32, kv_num_heads=2)


def test_decoding_with_a_cache_takes_its_keys_and_what_is_copied() -> None:
    keys = 32_768
    sums = attention_work(1, 32, 1, keys, 128, 128)
    copied = 4 * 2 * keys * 128
    assert sums <= decoding(keys).flop <= sums + 1.01 * copied


@pytest.mark.parametrize("workers", [4, 8])
def test_repeating_a_decoding_costs_what_it_takes(workers: int) -> None:
    """Two heads of keys on more workers: each group is computed by several, who read its cache and write it."""
    attention = decoding(32_768)
    kv = attention.variable_number("kv")
    strategy = Tiling.parse(f"S({kv})/2 R/{workers // 2}", (2, workers // 2))
    touched_bytes = 4 * 4 * prod((1, 2, 32_768, 128))
    once = max(touched_bytes / 8, attention_work(1, 32, 1, 32_768, 128, 128) / 128)
    repeated = CostTables().repeated(attention, strategy)
    assert (workers // 2 - 1) * once <= repeated <= 2 * (workers // 2 - 1) * once


def test_a_recurrence_takes_both_products_at_each_time() -> None:
    lstm = bound(make("LSTM", (5, 4, 3), (1, 8, 3), (1, 8, 2), hidden_size=2, outputs=3))
    assert lstm.flop == 4 * 5 * 8 * 2 * (3 + 2)


def test_an_opaque_function_goes_over_what_it_reads_and_makes() -> None:
    assert bound(make("Softmax", (4, 6))).flop == 2 * 4 * 6


def test_what_an_opaque_function_takes_is_counted_and_changes_nothing_else() -> None:
    def described(*takes: str) -> BoundOp:
        @op("Softmax")
        def softmax(node: NodeView, X: TensorArg) -> object:
            stated = {"rows": lambda i: Sum(lambda j, k: X[i, j] * X[i, k]), "t": lambda i: Sum(lambda t: X[i, t])}
            return lambda i, t: Opaque("f", tuple(stated[name](i) for name in takes))(X[i, :])[t]

        return bound(make("Softmax", (4, 6)), Descriptions([softmax]))

    plain, stated = described(), described("rows", "t")
    assert stated.flop == 4 * (2 * 6 * 6 + 6)
    assert plain.analysis.variables == stated.analysis.variables
    assert plain.analysis.reads == stated.analysis.reads


def test_how_far_a_variable_of_what_is_taken_runs_must_be_known() -> None:
    @op("Softmax")
    def softmax(node: NodeView, X: TensorArg) -> object:
        return lambda i, j: Opaque("f", (Sum(lambda k: X[i, j + k]),))(X[i, :])[j]

    with pytest.raises(DescriptionError, match="how far reduction variable k runs is not known"):
        bound(make("Softmax", (4, 6)), Descriptions([softmax]))


def test_idle_parts_take_nothing() -> None:
    product = bound(make("MatMul", (4, 6), (6, 10)))
    assert product.operations(Boxes(np.array([[0, 0, 3]]), np.array([[4, 10, 3]]))).tolist() == [0]
