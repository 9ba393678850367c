"""Operators that need one dim whole: running sums and products, sorting, reversal, determinants."""

from __future__ import annotations

from planner.opdefs.broadcast import normal_axis
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, op


def _rows(X: TensorArg, i: tuple[Ix, ...], axis: int) -> Val:
    return X[(*i[:axis], slice(None), *i[axis + 1 :])]


@op("CumSum", "CumProd")
def cumulative(node: NodeView, X: TensorArg, axis: TensorArg) -> object:
    """Sums or products from the start (or the end) of axis up to each element."""
    dim = normal_axis(int(node.constant(1).reshape(()).item()), X.rank)
    return lambda *i: Opaque(node.op.op_type)(_rows(X, i, dim))[i[dim]]


@op("TopK")
def top_k(node: NodeView, X: TensorArg, k: TensorArg | None = None) -> object:
    """The largest or smallest elements along axis, and where they stand."""
    axis = normal_axis(node.attribute("axis", -1), X.rank)
    return (
        lambda *i: Opaque("TopK")(_rows(X, i, axis))[i[axis]],
        lambda *i: Opaque("TopKPositions")(_rows(X, i, axis))[i[axis]],
    )


@op("ReverseSequence")
def reverse_sequence(node: NodeView, X: TensorArg, lengths: TensorArg) -> object:
    """The first elements of each sample's sequence, in reverse; the rest as they are."""
    batch, time = node.attribute("batch_axis", 1), node.attribute("time_axis", 0)
    return lambda *i: Opaque("ReverseSequence")(_rows(X, i, time), lengths[i[batch]])[i[time]]


@op("Det")
def determinant(node: NodeView, X: TensorArg) -> object:
    """The determinant of each matrix: at most the work of a product."""

    def value(*i: Ix) -> Val:
        product = Sum(lambda row, k, column: X[(*i, row, k)] * X[(*i, k, column)])
        return Opaque("Det", (product,))(X[(*i, slice(None), slice(None))])[()]

    return value


@op("TfIdfVectorizer")
def tf_idf_vectorizer(node: NodeView, X: TensorArg) -> object:
    """How often each n-gram of a vocabulary stands in a row."""
    return lambda *i: Opaque("TfIdfVectorizer")(X[(*i[:-1], slice(None))])[i[-1]]
