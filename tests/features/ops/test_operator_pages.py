"""Pages of operators that users describe: each shows something, or says what lacks."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from planner.errors import TofuError, UsageError
from planner.features.ops import verification
from planner.features.ops.run import Operators
from planner.features.ops.table import print_page

DESCRIBED = """
from planner.tdl.builder import call, op
@op("{name}", domain="com.microsoft")
def described(node, A, *bias):
    return lambda *at: call("Gelu", A[{read}])
"""


def operators(folder: Path, name: str, read: str) -> Operators:
    file = folder / "mine.py"
    file.write_text(DESCRIBED.format(name=name, read=read))
    return Operators(file)


def test_an_operator_without_a_case_is_named(tmp_path: Path) -> None:
    with pytest.raises(TofuError, match=r"microsoft\.Mine is described in .*mine\.py, and no case") as error:
        operators(tmp_path, "Mine", "at").page("Mine")
    assert 'make("Mine"' in str(error.value.hint)


@pytest.mark.parametrize("read", ["at", "at[0] * at[1], at[1]"])
def test_descriptions_without_cases_are_not_verified(tmp_path: Path, read: str) -> None:
    mine = operators(tmp_path, "Mine", read)
    with pytest.raises(UsageError, match=r"^no test case for com\.microsoft\.Mine\n") as error:
        mine.verify(None)
    assert "add CASES" in error.value.hint


def test_a_description_that_cannot_be_read_is_no_empty_page(tmp_path: Path) -> None:
    with pytest.raises(TofuError, match=r"microsoft\.RotaryEmbedding|mine\.py"):
        operators(tmp_path, "RotaryEmbedding", "at[0] * at[1], at[1]").page("com.microsoft.RotaryEmbedding")


def test_a_good_description_in_the_place_of_a_shipped_one_is_shown(tmp_path: Path) -> None:
    shown = operators(tmp_path, "RotaryEmbedding", "at").page("com.microsoft.RotaryEmbedding")
    assert shown.examples


@pytest.mark.parametrize("op_type", ["Conv", "Attention", "Softmax", "LSTM", "com.microsoft.Gelu", "RandomNormal"])
def test_a_look_up_runs_no_strategy(op_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page says is in the description: --verify alone runs strategies."""

    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(verification, "verify_strategy", refuse)
    page = Operators().page(op_type)
    assert page.documentation
    text = io.StringIO()
    print_page(page, text)
    assert ("tofu ops --verify" in text.getvalue()) is bool(page.examples)
