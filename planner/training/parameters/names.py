"""Evidence in the names of constants: whether their author gave them, or an exporter made them up."""

from __future__ import annotations

import re
from typing import Final

_MADE_UP: Final = re.compile(
    r"(val|const|constant|initializer|c_lifted_tensor|lifted_tensor|const_fold_opt|onnx::\w+?|)_*\d*(_output_\d+)?",
    re.IGNORECASE,
)
"""Last parts of names that exporters make up: ``val_160``, ``onnx::MatMul_123``, ``Constant_3_output_0``, ``57``."""
_MADE_UP_SCALARS: Final = re.compile(r"(scalar_tensor_default|x|y|c|clone)_?\d*(:0)?", re.IGNORECASE)
"""The same of scalars: ``StatefulPartitionedCall/model/truediv/y:0``."""
_WORDS: Final = frozenset(
    {"weight", "weights", "bias", "biases", "kernel", "gamma", "beta", "scale", "embed", "embedding", "embeddings"}
    | {"token", "w", "b", "coef", "coefs", "intercept", "intercepts"}
)
"""Words by which parameters are named where names have no parts: ``cls_token``, ``W1``, ``fc2_bias``."""


def is_parameter_name(name: str) -> bool:
    """Whether a constant is named as an exporter names parameters: ``encoder.layer.0.bias``, ``dense/kernel:0``.

    Names that exporters make up are none: ``val_160``, ``onnx::MatMul_123``, ``/encoder/Constant_3_output_0``.
    """
    *path, last = re.split(r"[./]", name)
    if _MADE_UP.fullmatch(last):
        return bool(path) and last.isdigit()
    if path:
        return True
    return not words_of(last).isdisjoint(_WORDS)


def is_made_up(name: str) -> bool:
    """Whether the last part of a name is one that exporters make up, of a scalar too."""
    last = re.split(r"[./]", name)[-1]
    return bool(_MADE_UP.fullmatch(last) or _MADE_UP_SCALARS.fullmatch(last))


def words_of(name: str) -> frozenset[str]:
    """The words of the last part of a name, without numbers: ``clip.logit_scale1`` has logit and scale."""
    last = re.split(r"[./]", name)[-1]
    return frozenset(word.rstrip("0123456789").casefold() for word in re.split(r"[_:]", last)) - {""}
