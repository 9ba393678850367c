"""Rates: the speed of devices relative to their links, which gives repeated and uneven work a price in moved bytes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from planner import units
from planner.errors import UsageError, did_you_mean

_EXAMPLE: Final = "--rates link=450GB/s,memory=3.35TB/s,compute=60TFLOP/s"
_LEAST, _MOST = 1e-3, 1e9
_PARSERS: Final = {
    "link": units.parse_bytes_per_s,
    "memory": units.parse_bytes_per_s,
    "compute": units.parse_flop_per_s,
}


@dataclass(frozen=True, slots=True)
class Rates:
    """The work of a device in the time in which its link brings one byte.

    What nobody states is about a node of eight GPUs of today: an H100 touches 7.4 bytes, and does 133 operations in
    float32 with all that a kernel does beside, in the time in which NVLink brings a byte. The testbed of Tofu (section
    7: eight K80s on PCIe) has 11.4 and 195.
    """

    touched_bytes: float = 8.0
    """Bytes of its memory that it reads or writes."""
    operations: float = 128.0
    """Additions and multiplications of floats."""

    @classmethod
    def parse(cls, text: str) -> Rates:
        """Reads rates as a user writes them: a link's bandwidth, a memory's, and a speed, each with its unit.

        Raises:
            UsageError: one is missing, given twice, unknown, zero or without a unit.
        """
        figures: dict[str, Fraction] = {}
        for part in text.split(","):
            name, equals, value = part.partition("=")
            name = name.strip()
            if name not in _PARSERS or not equals:
                hint = did_you_mean(name, tuple(_PARSERS)) or f"write {_EXAMPLE}"
                raise UsageError(f"--rates: {part.strip()!r} is none of link=..., memory=..., compute=...", hint=hint)
            if name in figures:
                raise UsageError(f"--rates: {name} is given twice")
            figures[name] = _PARSERS[name](value, f"--rates {name}")
            if not figures[name]:
                raise UsageError(f"--rates {name}: {value.strip()!r} is not positive", hint=f"write {_EXAMPLE}")
        missing = [name for name in _PARSERS if name not in figures]
        if missing:
            raise UsageError(f"--rates: {' and '.join(missing)} missing", hint=f"write {_EXAMPLE}")
        rates = cls(float(figures["memory"] / figures["link"]), float(figures["compute"] / figures["link"]))
        if not rates.are_usable:
            raise UsageError(
                f"--rates: in the time of a byte of its link a device touches {rates.touched_bytes:g} bytes and does "
                f"{rates.operations:g} operations; from {_LEAST:g} to {_MOST:g} can be counted with",
                hint=f"write {_EXAMPLE}",
            )
        return rates

    @property
    def are_usable(self) -> bool:
        """Whether excess can be counted by these rates in integers of 64 bits."""
        return all(_LEAST <= rate <= _MOST for rate in (self.touched_bytes, self.operations))
