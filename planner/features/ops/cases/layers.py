"""Cases of whole layers: Einsum, attention, recurrent operators, normalisations, losses, and what needs a dim whole."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.features.ops.cases.case import Case, Given, Known, ints, make
from planner.graph.core.model import Shape


def _scalar(value: int) -> Known:
    return Known(np.array(value, dtype=np.int64))


def _labels(shape: Shape, classes: int, lowest: int = 0) -> Known:
    values = np.random.default_rng(11).integers(lowest, classes, shape)
    return Known(values.astype(np.int64), constant=False)


def einsums() -> Iterator[Case]:
    """Products, traces, diagonals, sums, ellipses, labels of size 1; explicit and implicit outputs."""
    yield make("Einsum", (4, 6), (6, 5), equation="ij,jk->ik")
    yield make("Einsum", (4, 7), (7, 3), equation="ij,jk")
    yield make("Einsum", (2, 3, 5, 4), (2, 3, 6, 4), equation="bhqd,bhkd->bhqk")
    yield make("Einsum", (4, 6), equation="ij->ji")
    yield make("Einsum", (4, 6), equation="ij->i")
    yield make("Einsum", (5, 5), equation="ii->i")
    yield make("Einsum", (6, 6), equation="ii->")
    yield make("Einsum", (2, 5, 3), (2, 3, 4), equation="...ij,...jk->...ik")
    yield make("Einsum", (1, 5, 3), (3, 4), equation="...ij,jk")
    yield make("Einsum", (4,), (7,), equation="i,j->ij")
    yield make("Einsum", (3, 4), (4, 5), (5, 2), equation="ab,bc,cd->ad")
    yield make("Einsum", (3, 1), (3, 6), equation="ij,ij->i")
    yield make("Einsum", (3, 4, 5), (3, 4, 6), equation="cda,cdb->ab")
    yield make("Einsum", (6, 2, 3, 4), (5, 3, 4), equation="ghcd,bcd->bgh")


def attentions() -> Iterator[Case]:
    """Heads apart and side by side, groups of heads, masks, caches, causal masks; rotary embeddings."""
    yield make("Attention", (2, 4, 6, 8), (2, 4, 5, 8), (2, 4, 5, 6), opset=23)
    yield make("Attention", (3, 4, 5, 4), (3, 2, 7, 4), (3, 2, 7, 4), opset=23)
    yield make("Attention", (2, 3, 6, 4), (2, 3, 6, 4), (2, 3, 6, 4), is_causal=1, opset=23)
    yield make("Attention", (2, 4, 5, 4), (2, 4, 6, 4), (2, 4, 6, 4), (5, 6), opset=23)
    yield make("Attention", (2, 4, 5, 4), (2, 4, 6, 4), (2, 4, 6, 4), (2, 1, 5, 6), opset=23)
    mask = Given((2, 4, 5, 6), "bool")
    yield make("Attention", (2, 4, 5, 4), (2, 4, 6, 4), (2, 4, 6, 4), mask, softcap=2.0, opset=23)
    # The last two operands are cached keys and values; the op returns them with the new ones appended.
    past = ((2, 3, 5, 4), (2, 3, 1, 4), (2, 3, 1, 6), (5, 4), (2, 3, 3, 4), (2, 3, 3, 6))
    yield make("Attention", *past, outputs=3, opset=23)
    grouped = ((2, 4, 5, 4), (2, 2, 1, 4), (2, 2, 1, 6), (5, 4), (2, 2, 3, 4), (2, 2, 3, 6))
    yield make("Attention", *grouped, outputs=3, opset=23)
    yield make("Attention", (2, 5, 24), (2, 7, 24), (2, 7, 12), q_num_heads=6, kv_num_heads=6, opset=23)
    yield make("Attention", (2, 5, 24), (2, 7, 8), (2, 7, 12), q_num_heads=6, kv_num_heads=2, opset=23)
    yield make("Attention", (1, 5, 8), (1, 5, 8), (1, 5, 8), q_num_heads=2, kv_num_heads=2, is_causal=1, opset=24)
    yield make("Attention", *past, outputs=4, opset=23)
    causal = ((2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 6), (5, 7), (2, 3, 2, 4), (2, 3, 2, 6))
    yield make("Attention", *causal, is_causal=1, outputs=3, opset=23)
    yield make("Attention", *causal, is_causal=1, outputs=4, opset=23)
    yield make("Attention", (2, 4, 5, 4), (2, 2, 7, 4), (2, 2, 7, 4), (2, 1, 5, 7), is_causal=1, opset=23)
    flags = Given((1, 4, 5, 6), "bool")
    yield make("Attention", (2, 4, 5, 4), (2, 4, 6, 4), (2, 4, 6, 4), flags, is_causal=1, opset=24)
    positions = Known(np.array([[0, 3, 2, 5, 1], [4, 4, 0, 1, 2]], dtype=np.int64), constant=False)
    yield make("RotaryEmbedding", (2, 4, 5, 8), (6, 4), (6, 4), positions, opset=23)
    yield make("RotaryEmbedding", (2, 3, 5, 8), (2, 5, 4), (2, 5, 4), opset=23)
    yield make("RotaryEmbedding", (2, 5, 24), (6, 4), (6, 4), positions, num_heads=3, interleaved=1, opset=23)
    yield make("RotaryEmbedding", (2, 5, 32), (6, 2), (6, 2), positions, num_heads=4, rotary_embedding_dim=4, opset=23)


def recurrences() -> Iterator[Case]:
    """LSTM, GRU, RNN: one direction and both, with and without bias, lengths, initial states and peepholes."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}
    lengths = Known(np.array([5, 2, 4, 5, 1, 3], dtype=np.int32), constant=False)
    for name, count in gates.items():
        two = {"outputs": 3 if name == "LSTM" else 2}
        yield make(name, (5, 4, 3), (1, count * 2, 3), (1, count * 2, 2), hidden_size=2)
        yield make(name, (3, 5, 1), (1, count * 3, 1), (1, count * 3, 3), (1, count * 6), hidden_size=3, **two)  # type: ignore[arg-type]
        states = [(2, 6, 2)] * (2 if name == "LSTM" else 1)
        args: tuple[object, ...] = ((5, 6, 3), (2, count * 2, 3), (2, count * 2, 2), (2, count * 4), lengths, *states)
        yield make(name, *args, hidden_size=2, direction="bidirectional", **two)  # type: ignore[arg-type]
        yield make(name, (5, 7, 3), (1, count * 2, 3), (1, count * 2, 2), hidden_size=2, direction="reverse")
    peephole = ((5, 4, 3), (1, 8, 3), (1, 8, 2), (1, 16), None, None, None, (1, 6))
    yield make("LSTM", *peephole, hidden_size=2)
    activations = ("Tanh", "Relu")
    yield make(
        "RNN", (4, 6, 3), (2, 2, 3), (2, 2, 2), hidden_size=2, direction="bidirectional", activations=activations
    )


def normalisations() -> Iterator[Case]:
    """By instance, group, window of channels, given axes, norm, root mean square."""
    yield make("InstanceNormalization", (3, 4, 5, 6), (4,), (4,))
    yield make("InstanceNormalization", (2, 5, 7), (5,), (5,), epsilon=1e-3)
    yield make("GroupNormalization", (3, 8, 5), (8,), (8,), num_groups=4)
    yield make("GroupNormalization", (2, 6, 4, 3), (6,), (6,), num_groups=3)
    yield make("GroupNormalization", (2, 5, 3), (5,), (5,), num_groups=1)
    yield make("GroupNormalization", (2, 6, 5), (3,), (3,), num_groups=3, opset=20)
    yield make("MeanVarianceNormalization", (3, 4, 5, 6))
    yield make("MeanVarianceNormalization", (3, 4, 5, 6), axes=(2, 3))
    yield make("LpNormalization", (4, 5, 6), axis=1, p=1)
    yield make("LpNormalization", (4, 7))
    yield make("LRN", (2, 7, 4, 3), size=3, alpha=0.5, beta=0.6, bias=1.5)
    yield make("LRN", (2, 8, 3, 5), size=5, alpha=0.5)
    yield make("LRN", (2, 6, 3, 3), size=1, alpha=0.5)
    yield make("RMSNormalization", (3, 4, 6), (6,), opset=23)
    yield make("RMSNormalization", (3, 4, 5), (4, 5), axis=1, opset=23)
    yield make("RMSNormalization", (3, 4, 5), (4, 1), axis=-1, opset=23)


def losses() -> Iterator[Case]:
    """Every reduction, with and without weights, positions beside the samples, labels that are ignored."""
    for name in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
        for reduction in ("none", "sum", "mean"):
            yield make(name, (6, 5), _labels((6,), 5), reduction=reduction)
            yield make(name, (3, 5, 2, 4), _labels((3, 2, 4), 5), (5,), reduction=reduction)
            yield make(name, (7, 3), _labels((7,), 3), reduction=reduction, ignore_index=1)
        yield make(name, (1, 4, 5), _labels((1, 5), 4))
    yield make("SoftmaxCrossEntropyLoss", (6, 5), _labels((6,), 5), outputs=2, reduction="none")
    yield make("SoftmaxCrossEntropyLoss", (4, 5, 3), _labels((4, 3), 5), outputs=2)


def along_an_axis() -> Iterator[Case]:
    """Running sums and products, sorting, reversal, determinants, n-grams, caches."""
    yield make("CumSum", (4, 5), _scalar(1))
    yield make("CumSum", (4, 5), _scalar(-2), exclusive=1, reverse=1)
    yield make("CumProd", (4, 5), _scalar(1), opset=26)
    yield make("CumProd", (4, 1, 3), _scalar(0), exclusive=1, reverse=1, opset=26)
    yield make("TopK", (4, 7), ints(3), outputs=2)
    yield make("TopK", (6, 5, 3), ints(2), axis=0, largest=0, outputs=2)
    lengths = Known(np.array([4, 1, 3, 5, 2], dtype=np.int64), constant=False)
    yield make("ReverseSequence", (6, 5, 2), lengths)
    yield make("ReverseSequence", (5, 6), lengths, batch_axis=0, time_axis=1)
    yield make("Det", (4, 3, 3))
    yield make("Det", (3, 5, 2, 2))
    yield make("Det", (3, 3))
    words = Given((6, 8), "int32", 0, 7)
    yield make(
        "TfIdfVectorizer", words, max_gram_length=2, max_skip_count=1, min_gram_length=1, mode="TF",
        ngram_counts=(0, 3), ngram_indexes=(0, 1, 2, 3, 4), pool_int64s=(2, 3, 5, 5, 6, 7, 2),
    )  # fmt: skip
    starts = Known(np.array([1, 0, 3], dtype=np.int64), constant=False)
    yield make("TensorScatter", (3, 4, 7, 2), (3, 4, 2, 2), starts, opset=24)
    yield make("TensorScatter", (3, 5, 2), (3, 4, 2), starts, mode="circular", opset=24)


def families() -> tuple[Iterator[Case], ...]:
    """All of this file."""
    return einsums(), attentions(), recurrences(), normalisations(), losses(), along_an_axis()
