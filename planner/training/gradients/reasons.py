"""Reasons why no gradient passes some operators, where the operator is the cause and not a missing rule."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from planner.opdefs.exclusions import EXCLUDED

REASONS: Final = MappingProxyType(
    {
        "BitCast": "it reads numbers as other numbers of the same bits",
        "DequantizeLinear": "quantised values are not trained",
        "DynamicQuantizeLinear": "quantised values are not trained",
        "MaxRoiPool": "the sizes of its windows depend on data",
        "MelWeightMatrix": "it is made of the limits of its bands, which are not trained",
        "QLinearMatMul": "quantised values are not trained",
        "QuantizeLinear": "quantised values are not trained",
        "TfIdfVectorizer": "it counts integers or strings",
        **EXCLUDED,
    }
)
"""By operator of the default domain."""

QUANTISING: Final = frozenset({"DynamicQuantizeLinear", "QuantizeLinear"})
"""Those that make integers of floats which a model goes on computing with: no gradient is seen to end there."""
