"""Quantities read and printed."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import units
from planner.errors import UsageError
from planner.units import ByteUnit, Quantity


@pytest.mark.parametrize(
    ("text", "quantity", "value"),
    [
        ("12GiB", Quantity.BYTES, 12 * 2**30),
        ("0B", Quantity.BYTES, 0),
        ("1.5 kB", Quantity.BYTES, 1500),
        ("1KB", Quantity.BYTES, 1000),
        ("21GB/s", Quantity.BYTES_PER_S, 21 * 10**9),
        ("5us", Quantity.SECONDS, Fraction(5, 10**6)),
        ("5µs", Quantity.SECONDS, Fraction(5, 10**6)),
        ("2min", Quantity.SECONDS, 120),
        ("4.1TFLOP/s", Quantity.FLOP_PER_S, 4_100_000_000_000),
        ("1%", Quantity.RATIO, Fraction(1, 100)),
        ("0.01", Quantity.RATIO, Fraction(1, 100)),
        ("1e-2%", Quantity.RATIO, Fraction(1, 10_000)),
    ],
)
def test_parse_is_exact(text: str, quantity: Quantity, value: Fraction | int) -> None:
    assert units.parse(text, quantity, "field") == value


@pytest.mark.parametrize(
    ("text", "quantity", "says"),
    [
        ("-1GiB", Quantity.BYTES, "negative"),
        ("12", Quantity.BYTES, "has no unit"),
        ("", Quantity.BYTES, "is not a number of bytes"),
        ("GiB", Quantity.BYTES, "is not a number of bytes"),
        ("nan", Quantity.BYTES, "is not a number of bytes"),
        (".inf", Quantity.SECONDS, "is not a time"),
        ("1e999GiB", Quantity.BYTES, "is not a number of bytes"),
        ("1" * 100 + "B", Quantity.BYTES, "is not a number of bytes"),
        ("12gib", Quantity.BYTES, "did you mean GiB?"),
        ("21GB", Quantity.BYTES_PER_S, "did you mean GB/s?"),
        ("100Gb/s", Quantity.BYTES_PER_S, "bits are not bytes"),
        ("5parsec", Quantity.SECONDS, "unknown unit 'parsec'"),
        ("5 us us", Quantity.SECONDS, "is not a time"),
        ("٣s", Quantity.SECONDS, "is not a time"),
    ],
)
def test_refusal_names_the_field_and_the_reason(text: str, quantity: Quantity, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        units.parse(text, quantity, "levels[0].bandwidth")
    assert caught.value.what.startswith("levels[0].bandwidth: ")
    assert says in str(caught.value)


def test_bytes_are_whole() -> None:
    assert units.parse_bytes("0.5KiB", "memory") == 512
    with pytest.raises(UsageError, match="whole number"):
        units.parse_bytes("0.3B", "memory")


def test_one_reader_per_quantity() -> None:
    assert units.parse_bytes_per_s("1MB/s", "f") == 10**6
    assert units.parse_seconds("1ms", "f") == Fraction(1, 1000)
    assert units.parse_flop_per_s("1GFLOPS", "f") == 10**9
    assert units.parse_ratio("50%", "f") == Fraction(1, 2)


@given(st.sampled_from(Quantity), st.integers(0, 10**24), st.integers(0, 12))
def test_round_trip(quantity: Quantity, digits: int, places: int) -> None:
    value = Fraction(digits, 10**places)
    text = units.to_text(value, quantity)
    assert units.parse(text, quantity, "field") == value


@given(st.integers(0, 2**60))
def test_round_trip_of_whole_bytes(count: int) -> None:
    assert units.parse_bytes(units.to_text(count, Quantity.BYTES), "field") == count


@pytest.mark.parametrize(
    ("value", "quantity", "text"),
    [
        (12 * 2**30, Quantity.BYTES, "12GiB"),
        (1000, Quantity.BYTES, "1kB"),
        (0, Quantity.BYTES, "0B"),
        (Fraction(5, 10**6), Quantity.SECONDS, "5us"),
        (4_100_000_000_000, Quantity.FLOP_PER_S, "4.1TFLOP/s"),
        (Fraction(1, 100), Quantity.RATIO, "1%"),
    ],
)
def test_text_is_the_shortest(value: Fraction | int, quantity: Quantity, text: str) -> None:
    assert units.to_text(value, quantity) == text


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), Fraction(1, 3)])
def test_no_text_for_what_cannot_be_read_back(value: float | Fraction) -> None:
    with pytest.raises(ValueError, match=r"not a quantity|no finite decimal"):
        units.to_text(value, Quantity.SECONDS)


@pytest.mark.parametrize(
    ("count", "unit", "text"),
    [
        (54_000_000, ByteUnit.DECIMAL, "54.0 MB"),
        (312, ByteUnit.DECIMAL, "312 B"),
        (0, ByteUnit.DECIMAL, "0 B"),
        (999_999, ByteUnit.DECIMAL, "1.0 MB"),
        (15_032_400_000, "MB", "15,032.4 MB"),
        (12 * 2**30, ByteUnit.BINARY, "12.0 GiB"),
        (12 * 2**30, "GiB", "12.0 GiB"),
        (12, "B", "12 B"),
        (-1500, ByteUnit.DECIMAL, "-1.5 kB"),
        (7 * 10**19, ByteUnit.DECIMAL, "70,000.0 PB"),
    ],
)
def test_bytes_in_tables(count: int, unit: ByteUnit | str, text: str) -> None:
    assert units.format_bytes(count, unit) == text


def test_unknown_unit_in_a_table_is_our_bug() -> None:
    with pytest.raises(ValueError, match="'MBit'"):
        units.format_bytes(1, "MBit")


@given(st.integers(0, 10**18), st.sampled_from(ByteUnit))
def test_printed_bytes_are_near(count: int, unit: ByteUnit) -> None:
    number, name = units.format_bytes(count, unit).split(" ")
    back = units.parse(number.replace(",", "") + name, Quantity.BYTES, "field")
    assert abs(back - count) <= units.parse(f"0.05{name}" if name != "B" else "0B", Quantity.BYTES, "field")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 ns"), (4.53e-6, "4.53 us"), (0.0121, "12.1 ms"), (3.2, "3.2 s"), (12345.6, "12,346 s"), (2e-8, "20 ns")],
)
def test_seconds_in_tables(seconds: float, text: str) -> None:
    assert units.format_seconds(seconds) == text


@pytest.mark.parametrize(("share", "text"), [(0.01, "1%"), (0.00025, "0.025%"), (0.8612, "86.1%"), (0, "0%")])
def test_shares_in_tables(share: float, text: str) -> None:
    assert units.format_ratio(share) == text


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30.0), ("5m", 300.0), ("1.5h", 5400.0), (" 2 m ", 120.0)])
def test_a_time_to_wait(text: str, seconds: float) -> None:
    assert units.parse_duration(text, "--time") == seconds


@pytest.mark.parametrize("text", ["0s", "0m", "-1s", "5", "5 minutes", "ms", "", "1e999s", "inf", "5M"])
def test_no_time_to_wait(text: str) -> None:
    with pytest.raises(UsageError, match="--time"):
        units.parse_duration(text, "--time")


def test_a_small_loss_shows_its_digits() -> None:
    values = (5.25, 0.0, -0.5, 0.0123456789, 1.5e-9, float("nan"), float("inf"))
    shown = ["5.250000", "0.000000", "-0.500000", "0.0123457", "1.5e-09", "nan", "inf"]
    assert list(map(units.format_loss, values)) == shown
