"""Scalars that a model may have learned: a contrastive loss's ``logit_scale``, a gate that begins at 0, a temperature.

A file holds many scalars, and few of them are parameters: exporters write numbers of formulas beside them, under names
of their own making. A scalar with a name that somebody chose stands in the table; trained it is where the name says
that it is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from planner.training.parameters.names import is_made_up, words_of

_LEARNED: Final = frozenset(
    {"alpha", "beta", "bias", "gain", "gamma", "gate", "lambda", "logit", "resweight", "rezero", "slope", "tau"}
    | {"temp", "temperature", "weight"}
)
_SCALES: Final = frozenset({"scale", "scaling"})
"""Words that say it beside another one only: ``scale`` alone is mostly 1/√d."""
_NEVER: Final = frozenset(
    {"const", "constant", "eps", "epsilon", "factor", "half", "inv", "mask", "max", "mean", "min", "momentum", "one"}
    | {"ratio", "rsqrt", "size", "sqrt", "std", "two", "var", "zero"}
)
_ROOT_OF: Final = 8
"""Widths of layers are multiples of it."""


def is_chosen_name(name: str) -> bool:
    """Whether a scalar's name is not one that exporters make up for the numbers of formulas."""
    return not is_made_up(name)


def why_frozen(name: str, value: float | None, op_types: Sequence[str]) -> str:
    """Why a scalar with a chosen name, that the loss depends on, is not trained; "" where it is.

    Args:
        name: its own.
        value: None where it was not loaded.
        op_types: what reads it, where it meets data.
    """
    words = words_of(name)
    is_learned = bool(words & _LEARNED) or (bool(words & _SCALES) and len(words) > 1)
    # Module paths of PyTorch (``encoder.gate``) name parameters and buffers alone; those with a slash name ops, too.
    is_path = "." in name and "/" not in name
    if words & _NEVER or not (is_learned or is_path):
        return "a scalar whose name says of no parameter"
    # By these a layer reads a scalar parameter, be it through an Exp.
    if not {"Add", "Mul", "Sum"}.intersection(op_types):
        return f"a scalar that {', '.join(op_types)} reads" if op_types else "a scalar that nothing reads"
    if words & _SCALES and value is not None and _is_root(abs(value)):
        return f"a scalar of a width's root, {value:.6g}"
    return ""


def _is_root(value: float) -> bool:
    """Whether a number is the root of a multiple of 8, or 1 by it: what attention and embeddings are scaled by.

    >>> _is_root(0.125), _is_root(8.0), _is_root(2.6593)
    (True, True, False)
    """
    width = value**2 if value >= 1.0 else 1.0 / value**2 if value else 0.0
    return width >= 1.0 and abs(width - round(width)) <= 1e-5 * width and round(width) % _ROOT_OF == 0
