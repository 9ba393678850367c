"""Cases of ONNX Runtime's own operators that are read as several of ONNX's, so that nothing describes them."""

from __future__ import annotations

from collections.abc import Iterator

from planner.features.ops.cases.case import Case
from planner.features.ops.cases.microsoft import _op as op


def activations() -> Iterator[Case]:
    """With and without a bias."""
    yield op("Gelu", (4, 6))
    yield op("QuickGelu", (2, 5, 3), alpha=1.5)
    yield op("BiasGelu", (4, 6), (6,))
    yield op("BiasGelu", (2, 5, 7), (7,))
    yield op("FastGelu", (2, 5, 7), (7,))
    yield op("FastGelu", (3, 4))


def normalisations() -> Iterator[Case]:
    """With and without bias and sum; a skip that broadcasts."""
    for name in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
        shift = ((6,),) if name == "SkipLayerNormalization" else ()
        yield op(name, (4, 5, 6), (4, 5, 6), (6,), *shift)
        yield op(name, (2, 7, 6), (2, 7, 6), (6,), *shift, (6,), outputs=4, absent=(1, 2), epsilon=1e-5)
        yield op(name, (4, 6), (4, 6), (6,), *shift, outputs=4, absent=(1, 2))
        yield op(name, (4, 5, 6), (5, 6), (6,), *shift, outputs=4, absent=(1, 2))
        yield op(name, (4, 5, 6), (1, 5, 6), (6,), *shift)
    yield op("SkipLayerNormalization", (3, 5, 4), (3, 5, 4), (4,), None, (4,))
    yield op("SkipLayerNormalization", (3, 5, 4), (3, 5, 4), (4,), None, (4,), outputs=3)


def products() -> Iterator[Case]:
    """Operands turned every way; activations."""
    yield op("FusedMatMul", (4, 6), (6, 5), alpha=0.5)
    yield op("FusedMatMul", (7, 4), (3, 7), transA=1, transB=1)
    yield op("FusedMatMul", (2, 3, 4, 6), (2, 3, 5, 6), transB=1, alpha=0.25)
    yield op("FusedMatMul", (2, 1, 4, 6), (3, 6, 5))
    yield op("FusedMatMul", (4, 2, 6), (2, 6, 5), transBatchA=1)
    yield op("FusedMatMul", (4, 2, 3, 6), (2, 3, 4, 5), transBatchA=1, transA=1)
    yield op("FusedMatMul", (2, 4, 6), (6, 2, 5), transBatchB=1)
    yield op("FusedMatMul", (2, 4, 6), (5, 2, 6), transBatchB=1, transB=1)
    yield op("FusedMatMul", (6,), (2, 6, 5))
    yield op("FusedGemm", (4, 6), (6, 5), (5,), activation="Relu")
    yield op("FusedGemm", (6, 4), (5, 6), (4, 5), transA=1, transB=1, alpha=0.5, beta=2.0, activation="Tanh")
    yield op("FusedGemm", (4, 7), (7, 3), activation="LeakyRelu", activation_alpha=0.1)
    yield op("FusedConv", (2, 3, 6, 6), (4, 3, 3, 3), (4,), activation="Relu")
    # The fourth operand of this one is added before the activation.
    yield op(
        "FusedConv",
        (2, 3, 7, 6),
        (4, 3, 3, 3),
        (4,),
        (2, 4, 4, 3),
        activation="Relu",
        pads=(1, 1, 1, 1),
        strides=(2, 2),
    )
    yield op("FusedConv", (2, 4, 6, 5), (6, 2, 1, 1), group=2, activation="HardSigmoid", activation_params=(0.2, 0.5))
    yield op("FusedConv", (3, 2, 8), (4, 2, 3), auto_pad="SAME_UPPER", activation="Tanh")
    yield op("FusedConv", (2, 3, 6), (4, 3, 3), activation="Clip", activation_params=(-0.5, 0.5))


FUSED = (*activations(), *normalisations(), *products())
