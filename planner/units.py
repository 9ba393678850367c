"""Quantities as people write them: ``12GiB``, ``21GB/s``, ``5us``, ``4.1TFLOP/s``, ``1%``.

``parse`` is exact: a text is a decimal number and a unit, and both are rational. ``to_text`` is its inverse: the
shortest text that reads back as the same value. ``format_bytes`` and its kin are for tables: rounded, with a space
before the unit, never read back.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

from planner.errors import UsageError

Number: TypeAlias = int | float | Fraction

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}

_BYTE_UNITS = {prefix + "B": Fraction(scale) for prefix, scale in (_DECIMAL | _BINARY).items()} | {"KB": Fraction(1000)}


class Quantity(enum.Enum):
    """The kinds of quantities; the value is how an error names one, with an example."""

    BYTES = "a number of bytes such as 12GiB"
    BYTES_PER_S = "a bandwidth such as 21GB/s"
    SECONDS = "a time such as 5us"
    FLOP_PER_S = "a speed such as 4.1TFLOP/s"
    RATIO = "a share such as 1% or 0.01"
    DURATION = "a time such as 30s, 5m or 1h"


_UNITS: Mapping[Quantity, Mapping[str, Fraction]] = MappingProxyType(
    {
        Quantity.BYTES: _BYTE_UNITS,
        Quantity.BYTES_PER_S: {f"{unit}/s": scale for unit, scale in _BYTE_UNITS.items()},
        Quantity.SECONDS: {
            "s": Fraction(1),
            "ms": Fraction(1, 10**3),
            "us": Fraction(1, 10**6),
            "µs": Fraction(1, 10**6),
            "ns": Fraction(1, 10**9),
            "min": Fraction(60),
            "h": Fraction(3600),
        },
        Quantity.FLOP_PER_S: {
            **{f"{prefix}FLOP/s": Fraction(scale) for prefix, scale in _DECIMAL.items()},
            **{f"{prefix}FLOPS": Fraction(scale) for prefix, scale in _DECIMAL.items()},
        },
        Quantity.RATIO: {"": Fraction(1), "%": Fraction(1, 100)},
        Quantity.DURATION: {"s": Fraction(1), "m": Fraction(60), "h": Fraction(3600)},
    }
)

# What ``to_text`` may print: one spelling of each unit, and no unit whose decimals would never end.
_PRINTED: Mapping[Quantity, tuple[str, ...]] = MappingProxyType(
    {
        Quantity.BYTES: ("B", "kB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB", "PiB"),
        Quantity.BYTES_PER_S: ("B/s", "kB/s", "MB/s", "GB/s", "TB/s"),
        Quantity.SECONDS: ("s", "ms", "us", "ns"),
        Quantity.FLOP_PER_S: ("FLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"),
        Quantity.RATIO: ("%",),
        Quantity.DURATION: ("s", "m", "h"),
    }
)

# At most two digits of exponent: "1e999999999GiB" would be a number of a gigabyte.
_WRITTEN = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?|\.[0-9]+)[ ]?(?P<unit>[^0-9.\s]*)")
_LONGEST = 64


def parse(text: str, quantity: Quantity, field: str) -> Fraction:
    """Read a quantity, exactly.

    Args:
        text: a decimal number and a unit, with at most one space between them.
        quantity: what kind of quantity is wanted.
        field: what the user called it, for the error: an option or a path in a file.

    Returns:
        The value in bytes, bytes per second, seconds, FLOP per second, or as a share of 1; never negative.

    Raises:
        UsageError: the text is no such quantity.
    """
    written = text.strip()
    shown = repr(written if len(written) <= _LONGEST else written[:_LONGEST] + "…")
    if written.startswith("-"):
        raise UsageError(f"{field}: {shown} is negative", hint=f"write {quantity.value}")
    match = _WRITTEN.fullmatch(written) if len(written) <= _LONGEST else None
    if match is None:
        raise UsageError(f"{field}: {shown} is not {quantity.value}")
    units = _UNITS[quantity]
    unit = match["unit"]
    if unit not in units:
        problem = f"has the unknown unit {unit!r}" if unit else "has no unit"
        raise UsageError(f"{field}: {shown} {problem}", hint=_unit_hint(unit, quantity))
    return Fraction(match["number"]) * units[unit]


def _unit_hint(unit: str, quantity: Quantity) -> str:
    units = _UNITS[quantity]
    if quantity in (Quantity.BYTES, Quantity.BYTES_PER_S) and re.fullmatch(r"[kKMGTP]?i?(b|bit|bps)(/s)?", unit):
        return f"bits are not bytes: divide by 8 and write {quantity.value}"
    folded = unit.casefold()
    near = [name for name in units if name and folded and name.casefold() in (folded, f"{folded}/s")]
    if near:
        return f"did you mean {' or '.join(sorted(near))}?"
    return f"write {quantity.value}"


def parse_bytes(text: str, field: str) -> int:
    """Read a whole number of bytes, e.g. ``12GiB``.

    Raises:
        UsageError: the text is no number of bytes, or not a whole one.
    """
    value = parse(text, Quantity.BYTES, field)
    if value.denominator != 1:
        raise UsageError(f"{field}: {text.strip()!r} is not a whole number of bytes ({float(value)} B)")
    return value.numerator


def parse_bytes_per_s(text: str, field: str) -> Fraction:
    """Read a bandwidth in bytes per second, e.g. ``21GB/s``; raises UsageError."""
    return parse(text, Quantity.BYTES_PER_S, field)


def parse_seconds(text: str, field: str) -> Fraction:
    """Read a time in seconds, e.g. ``5us``; raises UsageError."""
    return parse(text, Quantity.SECONDS, field)


def parse_duration(text: str, field: str) -> float:
    """Read a time that somebody is ready to wait, e.g. ``5m``, in seconds.

    Raises:
        UsageError: the text is no such time, or the time is 0.
    """
    seconds = float(parse(text, Quantity.DURATION, field))
    if not seconds:
        raise UsageError(f"{field}: {text.strip()!r} is no time at all", hint=f"write {Quantity.DURATION.value}")
    return seconds


def parse_flop_per_s(text: str, field: str) -> Fraction:
    """Read a speed in floating-point operations per second, e.g. ``4.1TFLOP/s``; raises UsageError."""
    return parse(text, Quantity.FLOP_PER_S, field)


def parse_ratio(text: str, field: str) -> Fraction:
    """Read a share of 1, e.g. ``1%`` or ``0.01``; raises UsageError."""
    return parse(text, Quantity.RATIO, field)


def to_text(value: Number, quantity: Quantity) -> str:
    """The shortest text that ``parse`` reads back as the same value; among equals, the largest unit.

    Args:
        value: not negative; a float stands for the binary fraction that it is.
        quantity: what the value is.

    Raises:
        ValueError: the value is negative or not finite, or no decimal number of at most 48 characters is equal to it.
    """
    if value != value or value in (float("inf"), float("-inf")) or value < 0:
        raise ValueError(f"not a quantity: {value}")
    exact = Fraction(value)
    candidates = []
    for unit in _PRINTED[quantity]:
        scale = _UNITS[quantity][unit]
        digits = _decimal(exact / scale)
        if digits is not None:
            candidates.append((len(digits + unit), -scale, digits + unit))
    if not candidates:
        raise ValueError(f"{value} has no finite decimal form")
    return min(candidates)[2]


def _decimal(value: Fraction) -> str | None:
    """The value's finite decimal expansion, or None where it has none or a long one."""
    twos = fives = 0
    remainder = value.denominator
    while remainder % 2 == 0:
        remainder, twos = remainder // 2, twos + 1
    while remainder % 5 == 0:
        remainder, fives = remainder // 5, fives + 1
    if remainder != 1:
        return None
    places = max(twos, fives)
    digits = str(value.numerator * 10**places // value.denominator)
    if places:
        digits = digits.rjust(places + 1, "0")
        digits = f"{digits[:-places]}.{digits[-places:]}"
    return digits if len(digits) <= 48 else None


class ByteUnit(enum.Enum):
    """The unit in which a table prints bytes; the value is the step between two units."""

    DECIMAL = 1000
    """kB, MB = 1e6 bytes, GB …: what is moved."""
    BINARY = 1024
    """KiB, MiB, GiB …: what a device holds."""


def format_bytes(count: Number, unit: ByteUnit | str = ByteUnit.DECIMAL) -> str:
    """Bytes for a table: ``54.0 MB``, ``11.9 GiB``, ``312 B``; one decimal.

    Args:
        count: bytes.
        unit: a family, of which the unit is chosen by size, or one unit by name ("MB", "GiB").

    Raises:
        ValueError: no such unit.
    """
    if isinstance(unit, str):
        if unit not in _BYTE_UNITS:
            raise ValueError(f"no unit of bytes is called {unit!r}")
        scale = _BYTE_UNITS[unit]
        return f"{_rounded(Fraction(count) / scale, 0 if scale == 1 else 1)} {unit}"
    prefixes = ("", "k", "M", "G", "T", "P") if unit is ByteUnit.DECIMAL else ("", "Ki", "Mi", "Gi", "Ti", "Pi")
    names = tuple(f"{prefix}B" for prefix in prefixes)
    amount = Fraction(count)
    for name in names:
        text = _rounded(amount, 0 if name == "B" else 1)
        # The rounded number decides, so that 999,999 B reads 1.0 MB and not 1000.0 kB.
        if abs(float(text.replace(",", ""))) < unit.value or name == names[-1]:
            return f"{text} {name}"
        amount /= unit.value
    raise AssertionError("unreachable: the last name returns")


def binary(count: Number) -> str:
    """Bytes of memory: ``11.9 GiB``, the unit in which devices are sold."""
    return format_bytes(count, ByteUnit.BINARY)


def format_seconds(seconds: Number) -> str:
    """A time for a table, three significant digits: ``4.53 us``, ``12.1 ms``, ``3.2 s``."""
    for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(float(seconds)) >= scale:
            return f"{float(seconds) / scale:.3g} {name}" if float(seconds) < 1000 else f"{float(seconds):,.0f} s"
    return f"{float(seconds) / 1e-9:.3g} ns"


def format_loss(value: float) -> str:
    """A loss for a table: six places, or where those would show less of it, six significant digits.

    >>> format_loss(5.25), format_loss(0.0123456789), format_loss(1.5e-9)
    ('5.250000', '0.0123457', '1.5e-09')
    """
    return f"{value:.6f}" if abs(value) >= 0.1 or value == 0 else f"{value:.6g}"


def format_ratio(share: Number) -> str:
    """A share for a table, in percent: ``1%``, ``0.025%``; two significant digits below 10%."""
    percent = float(share) * 100
    return f"{percent:.2g}%" if abs(percent) < 10 else f"{percent:,.1f}%"


def _rounded(value: Fraction, places: int) -> str:
    """Half away from zero, exactly: binary floats would print 0.25 and 0.35 in two ways."""
    scaled = abs(value) * 10**places
    quotient = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    digits = str(quotient).rjust(places + 1, "0")
    text = f"{int(digits[: len(digits) - places]):,}" + (f".{digits[-places:]}" if places else "")
    return f"-{text}" if value < 0 and quotient else text
