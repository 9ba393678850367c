"""Warnings of changes by an exporter that make the training another one, and their remedies: a line each.

An exporter that optimizes for inference may change what is trained: a network whose biases are zeros computes the same
without them, and two scales of ones are one initializer. Nothing fails then; the trained network is another one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from planner.graph.core.attributes import draws
from planner.graph.core.model import DType, Graph, Op
from planner.graph.core.traits import CONVOLUTIONS, NORMS, STATISTICS
from planner.printable import some
from planner.training.parameters.exporter import Exporter
from planner.training.parameters.infer import Parameters, Verdict
from planner.training.parameters.readers import Readers, Use
from planner.training.parameters.value_forms import is_one_value

_AGAIN: Final = "export with dynamo=True, optimize=False (docs/export-from-pytorch.md)"
_MADE_UP: Final = re.compile(r"val_\d+|onnx::\w+")
"""How PyTorch's exporters call weights that they have computed: transposed ones, as a rule."""
_16_BITS: Final = frozenset({DType.FLOAT16, DType.BFLOAT16})
_SHARED: Final = frozenset({Use.NORM, Use.BIAS, Use.SCALE})


def export_warnings(forward: Graph, parameters: Parameters, exporter: Exporter) -> tuple[str, ...]:
    """What was done to a network on its way into a file, as far as its training is another one.

    Args:
        forward: the model, as ``per_sample.decided`` gives it.
        parameters: what is decided of its constants.
        exporter: what the file says.

    Returns:
        A line for each finding, with what to do; () where nothing is found.
    """
    readers = Readers(forward)
    trained = parameters.of(Verdict.TRAINED)
    return (
        *_shared(forward, trained, readers, exporter),
        *_nameless(trained),
        *_norms_folded(forward, exporter),
        *_not_trained(parameters, exporter),
        *_biases_dropped(forward, trained, readers, exporter),
        *_of_16_bits(forward, trained),
    )


def _of_16_bits(forward: Graph, trained: Sequence[str]) -> Iterator[str]:
    """Weights without float32 master weights (``.bfloat16()``), or Casts of the network's own (autocast)."""
    tensors = forward.tensors
    narrow = [name for name in trained if tensors[name].dtype in _16_BITS]
    casts = [op for op in forward.ops_of("Cast") if tensors[op.inputs[0]].dtype is DType.FLOAT32]
    lowered = [tensors[op.outputs[0]].dtype for op in casts if tensors[op.outputs[0]].dtype in _16_BITS]
    if narrow:
        precision = tensors[narrow[0]].dtype.value
        finding = f"{precision} weights ({len(narrow):,}) have no float32 master weights, so small updates are lost"
    elif lowered:
        precision = lowered[0].value
        finding = f"the model itself casts to {precision} ({len(lowered):,} Casts, as autocast exports them)"
    else:
        return
    yield f"{finding}: export in float32, then tofu grad --precision {precision}"


def _shared(forward: Graph, trained: Sequence[str], readers: Readers, exporter: Exporter) -> Iterator[str]:
    """Vectors of one number that several layers read: equal initializers that were made one.

    A layer that is applied several times (ALBERT's) reads one vector, too; trained, it is seldom one number throughout.
    Of values that lie in external data nothing is known: there, the exporter decides. PyTorch's makes nothing one with
    ``optimize=False``.
    """
    if exporter.is_pytorch and not exporter.is_optimized:
        return
    for name in trained:
        value = forward.constants[name]
        if forward.tensors[name].elements < 2 or not (exporter.is_optimized if value is None else is_one_value(value)):
            continue
        sites = readers.of(name)
        if len(sites) > 1 and all(reader.use in _SHARED for reader in sites):
            counts = Counter(reader.op_type for reader in sites)
            by = " and ".join(f"{count} {op_type}" for op_type, count in counts.items())
            number = "" if value is None else f"is {float(value.flat[0]):g} throughout, and "
            yield (
                f"{name!r} {number}is read by {by}: the exporter makes weights that are equal one, "
                f"and they are trained as one; if the network has several, {_AGAIN}"
            )


def _nameless(trained: Sequence[str]) -> Iterator[str]:
    names = [name for name in trained if _MADE_UP.fullmatch(name)]
    if names:
        several = len(names) > 1
        count = f"{len(names)} weights have names" if several else "a weight has a name"
        yield (
            f"{count} of the exporter's making ({some(names)}): nothing finds {'them' if several else 'it'} by the "
            f"network's names, neither load_state_dict nor --freeze and --group; {_AGAIN}"
        )


def _norms_folded(forward: Graph, exporter: Exporter) -> Iterator[str]:
    types = {op.op_type for op in forward.ops}
    if not exporter.is_pytorch or types.isdisjoint(CONVOLUTIONS):
        return
    is_known = exporter.folds_norms or any(name.endswith("running_mean") for name in exporter.buffers)
    if is_known and types.isdisjoint(STATISTICS):
        yield (
            "the exporter has folded the network's batch normalizations into its convolutions: neither are they "
            f"trained nor do they normalise; {_AGAIN}"
        )
    elif exporter.is_optimized and not exporter.parameters and types.isdisjoint(NORMS):
        yield (
            "the network has convolutions and no batch normalization: PyTorch's exporter folds those into "
            f"convolutions, where they are not trained; if it should have some, {_AGAIN}"
        )


def _not_trained(parameters: Parameters, exporter: Exporter) -> Iterator[str]:
    """The network's parameters, as the file lists them, that are not trained though nobody said so."""
    decided = {
        decision.name.rpartition("@")[0] if "merged" in decision.evidence else decision.name: decision
        for decision in sorted(parameters.decisions, key=lambda decision: decision.verdict is Verdict.TRAINED)
    }
    of = {name: decided.get(exporter.renamed.get(name, name)) for name in exporter.parameters}
    lost = [name for name, decision in of.items() if decision is None and exporter.is_optimized]
    biases = [name for name in lost if "bias" in name.rpartition(".")[2]]
    if biases:
        yield (
            f"the file lacks {len(biases)} of the network's biases ({some(biases)}): the exporter drops those that "
            f"are zeros, and they are never trained; {_AGAIN}"
        )
    params = [name for name in lost if name not in biases and exporter.names_calls]
    if params:
        yield (
            f"the file lacks {len(params)} of the network's other parameters ({some(params)}): but for those that are "
            f"tied to others, the exporter has left them out, and they are never trained; {_AGAIN}"
        )
    frozen = [
        name
        for name, decision in of.items()
        if decision and decision.verdict is not Verdict.TRAINED and "stated" not in decision.evidence
    ]
    if frozen:
        yield f"{len(frozen)} of the network's parameters ({some(frozen)}) are not trained: no gradient reaches them"


def _biases_dropped(forward: Graph, trained: Sequence[str], readers: Readers, exporter: Exporter) -> Iterator[str]:
    """Products without a bias, where the exporter has dropped biases that are zeros, or may have.

    Where the file does not say which biases the network has, products beside others with a bias are told of.
    """
    if not exporter.is_pytorch or not exporter.is_optimized or exporter.parameters:
        return
    biased = {reader.op for name in trained for reader in readers.of(name) if reader.use is Use.BIAS}
    weights = dict.fromkeys(reader.op for name in trained for reader in readers.of(name) if reader.use is Use.PRODUCT)
    ops = {op.name: op for op in forward.ops}
    bare = [name for name in weights if not _has_bias(forward, ops[name], biased)]
    if bare and len(bare) < len(weights):
        yield (
            f"{len(bare)} of {len(weights)} products have no bias ({some(bare)}): the exporter drops biases that are "
            f"zeros, and they are never trained; if the network's layers have biases, {_AGAIN}"
        )


def attention_kept(forward: Graph) -> Iterator[str]:
    """Dropouts that do not drop beside others that do, where the user says nothing of dropout.

    PyTorch's exporter writes the one of ``scaled_dot_product_attention`` without ``training_mode``, in train() as well.
    """
    dropouts = forward.ops_of("Dropout")
    off = [op.name for op in dropouts if draws(op, forward.constants.get) is False]
    if off and len(off) < len(dropouts):
        yield (
            f"{len(off)} of {len(dropouts)} Dropouts do not drop ({some(off)}), as PyTorch's exporter writes those of "
            "attention: --dropout train switches all on, --dropout off all off"
        )


def _has_bias(forward: Graph, op: Op, biased: set[str]) -> bool:
    """Whether a product adds a trained bias, or what alone reads its result does."""
    if op.op_type == "Gemm":
        return len(op.inputs) > 2 and bool(op.inputs[2])
    following = forward.consumers[op.outputs[0]]
    return op.name in biased or (len(following) == 1 and following[0].name in biased)
