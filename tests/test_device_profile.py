"""Profiles' files: what is written is read back, and what is refused is refused with its line."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import UsageError
from planner.graph.core.model import DType
from planner.machine.device_profile import (
    DeviceProfile,
    MeasuredDevice,
    MeasuredOp,
    UnmeasuredOp,
    load_profile,
    named,
    parse_profile,
    rounded_seconds,
)

GOOD = """\
profile: 1
device: {kind: cpu, name: "a processor", threads: 2, runtime: onnxruntime 1.31.1, overhead: 2us}
ops:
  - {op: MatMul, inputs: "float32[8,4] float32[4,2]", outputs: "float32[8,2]",
     operations: 128, bytes: 224, seconds: 1.5us, runs: 7}
  - {op: Clip, inputs: "float32[8] - float32[]", outputs: "float32[8]",
     operations: 8, bytes: 68, seconds: 0s, runs: 1000}
"""


def test_reads_what_a_person_wrote() -> None:
    profile = parse_profile(GOOD, "p.yaml")
    assert profile.device == MeasuredDevice("cpu", "a processor", 2, "onnxruntime 1.31.1", 2e-6)
    product, clip = profile.ops
    assert product.signature.inputs == ((DType.FLOAT32, 2), (DType.FLOAT32, 2))
    assert product.shapes.inputs == ((8, 4), (4, 2))
    assert (product.work, product.seconds, product.runs) == (224, 1.5e-6, 7)
    assert clip.shapes.inputs == ((8,), None, ())
    assert clip.signature.inputs == ((DType.FLOAT32, 1), None, (DType.FLOAT32, 0))


places = st.lists(
    st.none() | st.tuples(st.sampled_from(DType), st.lists(st.integers(1, 10**12), max_size=4).map(tuple)), max_size=4
).map(tuple)
texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=20).map(str.strip)
words = texts.filter(bool)
whole_numbers = st.integers(0, 10**18 - 1)
seconds = st.integers(0, 10**16).map(lambda picoseconds: rounded_seconds(picoseconds / 1e12))


@st.composite
def profiles(draw: st.DrawFn) -> DeviceProfile:
    keys = draw(st.lists(st.builds(named, words, texts, texts, places, places), max_size=4, unique=True))
    measured = [
        MeasuredOp(*key, draw(whole_numbers), draw(whole_numbers), draw(seconds), draw(st.integers(1, 1000)))
        for key in keys
    ]
    lacking = draw(st.lists(st.builds(named, words, texts, texts, places, places), max_size=2))
    device = MeasuredDevice(draw(st.sampled_from(["cpu", "cuda"])), draw(words), 2, draw(words), draw(seconds))
    unmeasured = tuple(UnmeasuredOp(*key, draw(words)) for key in lacking)
    return DeviceProfile(device, draw(texts), draw(texts), tuple(measured), unmeasured)


@given(profiles())
def test_what_is_written_is_read_back(profile: DeviceProfile) -> None:
    assert parse_profile(profile.to_text(), "p") == profile


def test_an_op_stands_on_a_line_and_json_is_read_too() -> None:
    profile = parse_profile(GOOD, "p.yaml")
    text = profile.to_text()
    assert [line[:12] for line in text.splitlines() if line.startswith("  - ")] == ["  - {op: Mat", "  - {op: Cli"]
    assert parse_profile(json.dumps(yaml.safe_load(text)), "p.json") == profile


@pytest.mark.parametrize(
    ("before", "after", "line", "says"),
    [
        ("profile: 1", "profile: 2", 1, "the form has version 2, and this tofu reads 1"),
        ("profile: 1\n", "", 1, "the key 'profile' is missing"),
        ("kind: cpu", "kind: tpu", 2, "device.kind: 'tpu' is neither cpu nor cuda"),
        ("threads: 2", "threads: 0", 2, "expected a whole number from 1"),
        ("overhead: 2us", "overhead: 2", 2, "device.overhead"),
        ("float32[8,4]", "flaot32[8,4]", 4, "there is no element type 'flaot32'; did you mean 'float32'?"),
        ("float32[8,4]", "float32(8,4)", 4, "'float32(8,4)' is no tensor, such as float32[64,128], and no -"),
        ("float32[8,4]", "float32[8,-4]", 4, "is no tensor"),
        ("seconds: 1.5us", "seconds: -1us", 5, "ops[0].seconds"),
        ("seconds: 1.5us", "second: 1.5us", 4, "ops[0]: the key 'seconds' is missing"),
        ("operations: 128", "operations: 1.5", 5, "ops[0].operations: expected a whole number from 0"),
        ("runs: 7", "runs: 0", 5, "ops[0].runs: expected a whole number from 1"),
        ("op: MatMul", "op: 7", 4, "ops[0].op: expected text, found a whole number; in quotes it is text: '7'"),
    ],
)
def test_faults_are_told_with_their_line(before: str, after: str, line: int, says: str) -> None:
    assert before in GOOD
    with pytest.raises(UsageError, match=r"p\.yaml: not a usable profile") as caught:
        parse_profile(GOOD.replace(before, after), "p.yaml")
    assert any(fact.startswith(f"line {line}: ") and says in fact for fact in caught.value.facts), caught.value.facts


def test_all_findings_at_once_and_an_op_twice() -> None:
    twice = GOOD + GOOD.partition("ops:\n")[2]
    with pytest.raises(UsageError) as caught:
        parse_profile(twice.replace("profile: 1", "profile: one"), "p.yaml")
    assert [fact.partition(":")[0] for fact in caught.value.facts] == ["line 1", "line 8", "line 10"]
    assert "ops[2]: the same op and shapes were given on line 4" in caught.value.facts[1]


@pytest.mark.parametrize("text", ["", "[]", "ops", "profile: 1\n---\nprofile: 1", "a: &x 1", "a: !!int 1"])
def test_what_is_no_profile_at_all(text: str) -> None:
    with pytest.raises(UsageError, match=r"p\.yaml"):
        parse_profile(text, "p.yaml")


@given(st.text(max_size=60))
def test_no_text_is_a_bug(text: str) -> None:
    with contextlib.suppress(UsageError):
        parse_profile(text, "p.yaml")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_profile(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not a text file"):
        load_profile(tmp_path / "bytes.yaml")
